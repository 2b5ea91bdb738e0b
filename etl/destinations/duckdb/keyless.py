"""Mirror a table without a key: rows are told apart by all their columns, and equal rows only counted.

The state is a multiset of rows. An insert adds one to a row's count, a delete takes one off, an update does both.
Additions commute, so a run's effect is one number per distinct row, whatever the order inside it was: rows with a
positive number are inserted that often, rows with a negative one deleted that often. (A run that deletes a row before
it exists is not what Postgres sends.)

Rows older than a column read NULL here, but at the source the column's missing value; the old image of such a row
carries that value, or NULL from servers before the minor releases that corrected it. So what finds no equal row is
matched once more with NULL and the missing value taken as equal, in those columns only.
"""

# ruff: noqa: S608 -- names go through `quote`; rows are Arrow columns
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import Staged, TableShape, staged
from etl.destinations.missing_values import missing_values
from etl.destinations.runs import JoinedRun
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema

_NET: Final = "_etl_net"
_WANTED: Final = "_etl_wanted"
_WANTED_AGAIN: Final = "_etl_wanted_again"
_HITS: Final = "_etl_hits"
_HITS_AGAIN: Final = "_etl_hits_again"


def apply_by_full_row(session: Session, shape: TableShape, run: JoinedRun) -> int:
    """Apply a run of a table under REPLICA IDENTITY FULL; returns how many old rows were not there."""
    if run.unchanged or (~run.is_insert & ~run.has_old).any():
        raise DestinationTableError(
            "an update or delete arrived without the whole old row",
            hint="set REPLICA IDENTITY FULL on the source table, or give it a primary key",
            table=shape.table.name,
        )
    columns = run.schema.columns
    born = run.new.filter(pa.array(~run.is_delete))
    died = run.old.take(pa.array(run.old_index[~run.is_insert]))
    with (
        staged(session, shape, columns, born, "_etl_born") as new,
        staged(session, shape, columns, died, "_etl_died") as old,
        _net_changes(session, shape, new, old),
    ):
        unmatched = _delete(session, shape, run, new.names)
        session.run(
            f"INSERT INTO {shape.sql} ({', '.join(new.names)})"
            f" SELECT {_cells(columns)} FROM (SELECT *, unnest(range(net)) FROM temp.main.{_NET} WHERE net > 0)",
            table=shape.table.name,
        )
    return unmatched


@contextmanager
def _net_changes(session: Session, shape: TableShape, new: Staged, old: Staged) -> Iterator[None]:
    """One row per distinct row of the run, with the number of copies it adds (`net`), where that is not zero."""
    cells = ", ".join(f"v{index}" for index in range(len(new.names)))
    born, died = (", ".join(f"{value} AS v{i}" for i, value in enumerate(side.values)) for side in (new, old))
    with _temporary(
        session,
        _NET,
        f"SELECT {cells}, CAST(sum(sign) AS BIGINT) AS net FROM (SELECT {born}, 1 AS sign FROM {new.source} AS n"
        f" UNION ALL SELECT {died}, -1 AS sign FROM {old.source} AS n) GROUP BY {cells} HAVING sum(sign) <> 0",
        shape.table.name,
    ):
        yield


def _delete(session: Session, shape: TableShape, run: JoinedRun, names: Sequence[str]) -> int:
    """Delete the rows that lost copies; returns how many copies were not found."""
    cells = _cells(run.schema.columns)
    wanted = f"SELECT {cells}, -net AS copies, row_number() OVER () AS id FROM temp.main.{_NET} WHERE net < 0"
    with _temporary(session, _WANTED, wanted):
        left = _copies(session, _WANTED)
        if not left:
            return 0
        rows = f"SELECT t.rowid AS rid, {_aliased([f't.{name}' for name in names])} FROM {shape.sql} AS t"
        with _hits(session, shape.table.name, len(names), rows, (_WANTED, _HITS)):
            left -= _delete_hits(session, shape)
            if left:
                left -= _delete_again(session, shape, run, names)
    return left


def _delete_again(session: Session, shape: TableShape, run: JoinedRun, names: Sequence[str]) -> int:
    """Match what is left with NULL taken as the missing value; returns how many rows were deleted."""
    columns = run.schema.columns
    missing = missing_values(columns, run.new.schema)
    if all(column.null_count for column in missing.columns):
        return 0
    with staged(session, shape, columns, missing, "_etl_missing") as values:
        cells = [f"coalesce(w.v{index}, {value})" for index, value in enumerate(values.values)]
        wanted = (
            f"SELECT {_cells(columns)}, copies, row_number() OVER () AS id FROM (SELECT {_aliased(cells)},"
            f" CAST(sum(w.copies - found) AS BIGINT) AS copies FROM temp.main.{_WANTED} AS w, {values.source} AS n,"
            f" LATERAL (SELECT count(*) AS found FROM temp.main.{_HITS} AS h WHERE h.id = w.id) GROUP BY ALL)"
            " WHERE copies > 0"
        )
        cells = [f"coalesce(t.{name}, {value})" for name, value in zip(names, values.values, strict=True)]
        rows = f"SELECT t.rowid AS rid, {_aliased(cells)} FROM {shape.sql} AS t, {values.source} AS n"
        with (
            _temporary(session, _WANTED_AGAIN, wanted),
            _hits(session, shape.table.name, len(names), rows, (_WANTED_AGAIN, _HITS_AGAIN)),
        ):
            return _delete_hits(session, shape, _HITS_AGAIN)


@contextmanager
def _hits(session: Session, table: str, width: int, rows: str, names: tuple[str, str]) -> Iterator[None]:
    """For every wanted row, as many equal ones among `rows` as copies are wanted: their `rid`.

    `names` are the tables of what is wanted and of what was found.
    """
    wanted, name = names
    same = " AND ".join(f"r.v{index} IS NOT DISTINCT FROM w.v{index}" for index in range(width))
    with _temporary(
        session,
        name,
        f"SELECT rid, id FROM (SELECT r.rid, w.id, w.copies, row_number() OVER (PARTITION BY w.id) AS nth"
        f" FROM ({rows}) AS r JOIN temp.main.{wanted} AS w ON {same}) WHERE nth <= copies",
        table,
    ):
        yield


def _delete_hits(session: Session, shape: TableShape, hits: str = _HITS) -> int:
    return session.run(
        f"DELETE FROM {shape.sql} WHERE rowid IN (SELECT rid FROM temp.main.{hits})", table=shape.table.name
    )


def _copies(session: Session, wanted: str) -> int:
    return int(session.rows(f"SELECT coalesce(sum(copies), 0) FROM temp.main.{wanted}")[0][0])


@contextmanager
def _temporary(session: Session, name: str, query: str, table: str | None = None) -> Iterator[None]:
    """A temporary table; when an error ends the block, the transaction's rollback removes it."""
    session.run(f"CREATE TEMP TABLE {name} AS {query}", table=table)
    yield
    session.run(f"DROP TABLE temp.main.{name}")


def _cells(columns: Sequence[ColumnSchema]) -> str:
    return ", ".join(f"v{index}" for index in range(len(columns)))


def _aliased(values: Sequence[str]) -> str:
    return ", ".join(f"{value} AS v{index}" for index, value in enumerate(values))

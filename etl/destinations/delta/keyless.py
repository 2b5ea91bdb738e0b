"""Mirror a table without a key: rows are told apart by all their columns, and equal rows only counted.

The state is a multiset of rows, and a run's effect one number per distinct row: how many copies it adds. Delta cannot
delete some of several equal rows, so a row that loses copies is deleted whole and its remaining copies are inserted
again, all by one MERGE.

Rows older than a column read NULL here, but at the source the column's missing value; the old image of such a row
carries that value, or NULL from servers before the minor releases that corrected it. So what finds no equal row is
matched once more with NULL and the missing value taken as equal, in those columns only.
"""

# ruff: noqa: S608 -- names go through `quote`; rows are staged columns
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.destinations.delta.append import append
from etl.destinations.delta.shape import shaped
from etl.destinations.delta.writes import Write
from etl.destinations.missing_values import missing_values
from etl.destinations.runs import JoinedRun
from etl.errors import DestinationTableError

Int64s = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Plan:
    """Places in a table of rows: `deleted` go with all their copies, `inserted` come once per entry."""

    deleted: list[int] = field(default_factory=list)
    inserted: list[int] = field(default_factory=list)
    unmatched: int = 0


def merge_by_full_row(write: Write, run: JoinedRun) -> int:
    """Apply a run of a table under REPLICA IDENTITY FULL; returns how many old rows were not there."""
    columns = run.schema.columns
    if run.is_insert.all():
        append(write, columns, shaped(write.shape, columns, run.new))
        return 0
    if not run.schema.old_image_is_full:
        raise DestinationTableError(
            "an update or delete arrived for a table whose rows nothing identifies",
            hint="give the source table a primary key, or set REPLICA IDENTITY FULL on it",
            table=write.name,
        )
    if run.unchanged or (~run.is_insert & ~run.has_old).any():
        raise DestinationTableError(
            "an update or delete arrived without the whole old row",
            hint="set REPLICA IDENTITY FULL on the source table, or give it a primary key",
            table=write.name,
        )
    born = run.new.filter(pa.array(~run.is_delete))
    died = run.old.take(pa.array(run.old_index[~run.is_insert]))
    rows = shaped(write.shape, columns, pa.concat_tables([born, died]))
    signs = np.repeat(np.array([1, -1]), [born.num_rows, died.num_rows])
    distinct, net = _net(rows, signs)
    missing = shaped(write.shape, columns, missing_values(columns, run.new.schema))
    candidates = _candidates(write, run, distinct.filter(pa.array(net < 0)), missing)
    everything = pa.concat_tables([distinct, candidates.drop_columns(["copies"])])
    plan = _plan(distinct, net, candidates, missing)
    _merge(write, run, everything, plan)
    return plan.unmatched


def _net(rows: pa.Table, signs: Int64s) -> tuple[pa.Table, Int64s]:
    """The distinct rows whose number of copies changes, and by how many."""
    counts: dict[tuple[object, ...], int] = defaultdict(int)
    first: dict[tuple[object, ...], int] = {}
    for place, (row, sign) in enumerate(zip(_tuples(rows), signs.tolist(), strict=True)):
        counts[row] += sign
        first.setdefault(row, place)
    changed = [row for row, count in counts.items() if count]
    return (
        rows.take(pa.array([first[row] for row in changed], pa.int64())),
        np.array([counts[row] for row in changed], np.int64),
    )


def _candidates(write: Write, run: JoinedRun, wanted: pa.Table, missing: pa.Table) -> pa.Table:
    """The distinct rows here that equal a wanted one, NULL taken as the missing value, and how many `copies` there are."""
    names = write.shape.names(run.schema.columns)
    if not wanted.num_rows:
        empty = pa.table([pa.array([], f.type) for f in wanted.schema], schema=wanted.schema)
        return empty.append_column("copies", pa.array([], pa.int64()))
    with write.session.staged(wanted) as view, write.session.staged(missing) as values:
        same = " AND ".join(
            f"coalesce(t.{name}, m.c{place}) <=> coalesce(w.c{place}, m.c{place})"
            if not missing.column(place).null_count
            else f"t.{name} <=> w.c{place}"
            for place, name in enumerate(names)
        )
        cells = ", ".join(f"t.{name} AS c{place}" for place, name in enumerate(names))
        grouped = ", ".join(f"c{place}" for place in range(len(names)))
        return write.session.arrow(
            f"SELECT {grouped}, count(*) AS copies FROM (SELECT {cells} FROM {write.sql} AS t CROSS JOIN {values} AS m"
            f" LEFT SEMI JOIN {view} AS w ON {same}) GROUP BY {grouped}",
            wanted.schema.append(pa.field("copies", pa.int64())),
            write.name,
        )


def _plan(distinct: pa.Table, net: Int64s, candidates: pa.Table, missing: pa.Table) -> _Plan:
    """Which rows go and which come. Places of candidates follow those of `distinct`."""
    plan = _Plan()
    defaults = next(iter(_tuples(missing)))
    here = _tuples(candidates.drop_columns(["copies"]))
    left = Counter(dict(zip(here, candidates.column("copies").to_pylist(), strict=True)))
    before = Counter(left)
    alike: dict[tuple[object, ...], list[tuple[object, ...]]] = defaultdict(list)
    for row in here:
        alike[_filled(row, defaults)].append(row)
    wanted: list[tuple[tuple[object, ...], int]] = []
    for place, (row, change) in enumerate(zip(_tuples(distinct), net.tolist(), strict=True)):
        if change > 0:
            plan.inserted += [place] * change
            continue
        found = min(left[row], -change)
        left[row] -= found
        wanted.append((row, -change - found))
    for row, copies in wanted:
        missed = copies
        for other in alike[_filled(row, defaults)]:
            found = min(left[other], missed)
            left[other] -= found
            missed -= found
        plan.unmatched += missed
    for place, row in enumerate(here, start=distinct.num_rows):
        if left[row] != before[row]:
            plan.deleted.append(place)
            plan.inserted += [place] * left[row]
    return plan


def _filled(row: tuple[object, ...], defaults: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(default if value is None else value for value, default in zip(row, defaults, strict=True))


def _merge(write: Write, run: JoinedRun, rows: pa.Table, plan: _Plan) -> None:
    names = write.shape.names(run.schema.columns)
    source = rows.take(pa.array(plan.deleted + plan.inserted, pa.int64()))
    gone = np.arange(source.num_rows) < len(plan.deleted)
    with write.session.staged(source.append_column("gone", pa.array(gone))) as view:
        same = " AND ".join(f"t.{name} <=> s.c{place}" for place, name in enumerate(names))
        values = ", ".join(f"s.c{place}" for place in range(len(names)))
        write.commit(
            f"MERGE INTO {write.sql} AS t USING {view} AS s ON s.gone AND {same}"
            " WHEN MATCHED THEN DELETE"
            f" WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({', '.join(names)}) VALUES ({values})",
        )


def _tuples(rows: pa.Table) -> Sequence[tuple[object, ...]]:
    """Rows as values that are equal when Postgres' are: by their storage, for Python knows no date beyond 9999."""
    columns = [_plain(column) for column in rows.columns]
    return list(zip(*columns, strict=True)) if columns else []


def _plain(column: pa.ChunkedArray) -> list[object]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_date32(kind):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_floating(kind):
        return [_float(value) for value in column.to_pylist()]
    if pa.types.is_list(kind):
        return _plain_lists(column)
    return list(column.to_pylist())


def _plain_lists(column: pa.ChunkedArray) -> list[object]:
    cells = iter(
        _plain(pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type))
    )
    lengths = pc.list_value_length(column).to_pylist()
    return [None if length is None else tuple(islice(cells, length)) for length in lengths]


def _float(value: float | None) -> object:
    """NaN equals itself in Postgres and in Spark."""
    return "NaN" if value is not None and value != value else value  # noqa: PLR0124 -- the test for NaN

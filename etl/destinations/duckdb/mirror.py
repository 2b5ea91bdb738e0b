"""Keep the current state of a table: one run of changes applied to its rows.

No table has a primary key or an index: deleting by a join and inserting is cheaper than any upsert at every batch
size, and DuckDB can rename and drop every column (docs/adr/0008-duckdb-version-and-ddl-transactions.md).
"""

# ruff: noqa: S608 -- names go through `quote`; rows are Arrow columns
from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from etl.destinations.duckdb.dialect import quote
from etl.destinations.duckdb.keyless import apply_by_full_row
from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import TableShape, insert, staged
from etl.destinations.fold import Fold, Partial, fold_by_key
from etl.destinations.runs import JoinedRun
from etl.errors import DestinationTableError
from etl.schema.table import ReplicatedTableSchema

_EXISTING: Final = 'temp.main."_etl_existing"'


def apply_run(session: Session, shape: TableShape, run: JoinedRun) -> int:
    """Apply a run; returns how many old rows were not there. Raises `DestinationTableError`."""
    if run.schema.key_columns:
        return _apply_by_key(session, shape, run)
    if run.is_insert.all():
        insert(session, shape, run.schema.columns, run.new)
        return 0
    if run.schema.old_image_is_full:
        return apply_by_full_row(session, shape, run)
    raise DestinationTableError(
        "an update or delete arrived for a table whose rows nothing identifies",
        hint="give the source table a primary key, or set REPLICA IDENTITY FULL on it",
        table=shape.table.name,
    )


def _apply_by_key(session: Session, shape: TableShape, run: JoinedRun) -> int:
    fold = fold_by_key(run, shape.table.name)
    if fold.partial is None:
        unmatched = _delete(session, shape, run.schema, fold.gone)
        insert(session, shape, run.schema.columns, fold.rows)
        return unmatched
    _keep_existing(session, shape, run.schema, fold.partial)
    unmatched = _delete(session, shape, run.schema, fold.gone)
    _insert_partial(session, shape, run.schema, fold)
    session.run(f"DROP TABLE {_EXISTING}")
    return unmatched


def _delete(session: Session, shape: TableShape, schema: ReplicatedTableSchema, gone: pa.Table) -> int:
    if not gone.num_rows:
        return 0
    with staged(session, shape, schema.key_columns, gone) as keys:
        same = " AND ".join(
            f"t.{name} = {value}" for name, value in zip(keys.names, keys.values, strict=True)
        )
        deleted = session.run(
            f"DELETE FROM {shape.sql} AS t USING {keys.source} AS n WHERE {same}", table=shape.table.name
        )
    return max(int(gone.num_rows) - deleted, 0)


def _keep_existing(
    session: Session, shape: TableShape, schema: ReplicatedTableSchema, partial: Partial
) -> None:
    """Set aside the values that the stream did not send, before their rows are deleted."""
    wanted = [shape.column(column) for column in schema.columns if column.name in partial.missing]
    roots = partial.roots.append_column("root", pa.array(np.arange(partial.roots.num_rows)))
    with staged(session, shape, schema.key_columns, roots) as keys:
        same = " AND ".join(
            f"t.{name} = {value}" for name, value in zip(keys.names, keys.values, strict=True)
        )
        root = keys.extra[0]
        values = ", ".join(f"t.{quote(column.name)} AS e{index}" for index, column in enumerate(wanted))
        session.run(
            f"CREATE TEMP TABLE {_EXISTING.removeprefix('temp.main.')} AS"
            f" SELECT DISTINCT ON ({root}) {root} AS root, {values}"
            f" FROM {shape.sql} AS t JOIN {keys.source} AS n ON {same}",
            table=shape.table.name,
        )


def _insert_partial(session: Session, shape: TableShape, schema: ReplicatedTableSchema, fold: Fold) -> None:
    partial = fold.partial
    if partial is None or not fold.rows.num_rows:
        return
    wanted = [column.name for column in schema.columns if column.name in partial.missing]
    data = fold.rows.append_column("root", pa.array(partial.root))
    for name in wanted:
        data = data.append_column("missing", pa.array(partial.missing[name]))
    with staged(session, shape, schema.columns, data) as rows:
        root, *missing = rows.extra
        values = list(rows.values)
        for index, (name, flag) in enumerate(zip(wanted, missing, strict=True)):
            place = fold.rows.schema.get_field_index(name)
            values[place] = f"CASE WHEN {flag} THEN e.e{index} ELSE {values[place]} END"
        session.run(
            f"INSERT INTO {shape.sql} ({', '.join(rows.names)}) SELECT {', '.join(values)}"
            f" FROM {rows.source} AS n LEFT JOIN {_EXISTING} AS e ON e.root = {root}",
            table=shape.table.name,
        )

"""Rows added as they are: copied ones, inserts alone, and the changes of a changelog."""

# ruff: noqa: S608 -- names go through `quote`; rows are staged columns
from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from etl.destinations.change_rows import METADATA, change_rows, copied_rows, truncate_row
from etl.destinations.delta.dialect import quote
from etl.destinations.delta.shape import shaped
from etl.destinations.delta.writes import Write
from etl.destinations.runs import JoinedRun
from etl.events import Truncate
from etl.schema.table import ColumnSchema, ReplicatedTableSchema


def append(write: Write, columns: Sequence[ColumnSchema], rows: pa.Table, *, overwrite: bool = False) -> None:
    """Add rows in one commit; with `overwrite` in place of all that are there."""
    with write.session.staged(rows) as view:
        insert(write, columns, view, rows.schema.names, overwrite=overwrite)


def insert(
    write: Write, columns: Sequence[ColumnSchema], view: str, given: Sequence[str], *, overwrite: bool = False
) -> None:
    """Add the rows of a view in one commit. Of its columns, `given`, the first are the values of `columns`."""
    names = [*write.shape.names(columns), *map(quote, given[len(columns) :])]
    write.commit(
        f"INSERT {'OVERWRITE' if overwrite else 'INTO'} {write.sql} ({', '.join(names)})"
        f" SELECT {', '.join(map(quote, given))} FROM {view}"
    )


def append_copy(write: Write, schema: ReplicatedTableSchema, rows: pa.Table) -> None:
    """Append copied rows to a changelog."""
    append(write, schema.columns, signed(shaped(write.shape, schema.columns, copied_rows(rows))))


def append_changes(write: Write, parts: Sequence[JoinedRun | Truncate]) -> None:
    """Append all changes of a write to a changelog in one commit. The parts are under one schema version."""
    columns = next((part.schema.columns for part in parts if isinstance(part, JoinedRun)), ())
    tables = [
        signed(truncate_row(part))
        if isinstance(part, Truncate)
        else signed(shaped(write.shape, columns, change_rows(part)))
        for part in parts
    ]
    rows = pa.concat_tables(tables, promote_options="default")
    append(write, columns, rows.select([*(f"c{place}" for place in range(len(columns))), *METADATA.names]))


def signed(rows: pa.Table) -> pa.Table:
    """The unsigned numbers of the stream as Spark's signed ones; an LSN has 63 bits for as long as it matters."""
    for field in METADATA:
        if pa.types.is_unsigned_integer(field.type):
            place = rows.schema.get_field_index(field.name)
            rows = rows.set_column(place, field.name, rows.column(place).cast(pa.int64()))
    return rows

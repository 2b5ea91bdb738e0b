"""A destination table as it really is, and source columns cast to it without losing anything.

A source column's type may have changed since the table was made; its values are then cast to the type the column has
here. A cast that would change a value (round it, cut it, refuse it) is not made: the table fails, and says where.
"""

# ruff: noqa: S608 -- names go through `quote`; rows are Arrow columns
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from etl.destinations.columns import TableColumns
from etl.destinations.duckdb.dialect import quote, same_name, type_of
from etl.destinations.duckdb.session import Session
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema


@dataclass(frozen=True)
class TableShape(TableColumns):
    """A table of this destination; `sql` is its quoted name."""

    sql: str

    same_name = staticmethod(same_name)


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows readable in SQL as `source`; one entry per column.

    `names` are the quoted destination columns, `types` their types, `values` the expressions over `source` (alias
    ``n``) that give their values in that type. `extra` names the columns that came along, in order.
    """

    source: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    values: tuple[str, ...]
    extra: tuple[str, ...]


@contextmanager
def staged(
    session: Session,
    shape: TableShape,
    columns: Sequence[ColumnSchema],
    data: pa.Table,
    name: str = "_etl_rows",
) -> Iterator[Staged]:
    """Make rows readable in SQL, each value checked to survive the cast to its destination column.

    `data` holds `columns` in order, then any number of further columns, which stay as they are. Raises
    `DestinationTableError` naming the column that cannot take its values.
    """
    targets = [shape.column(column) for column in columns]
    arrays = list(data.columns)
    for index, (column, target) in enumerate(zip(columns, targets, strict=True)):
        if target.type == "JSON" and type_of(column.type_oid, arrays[index].type) == "JSON":
            arrays[index] = _as_json(arrays[index])
    fields = [f"c{index}" for index in range(len(arrays))]
    with session.arrow(name, pa.table(arrays, names=fields)) as source:
        values = []
        for column, target, field, array in zip(columns, targets, fields, arrays, strict=False):
            carried = _carried(array.type)
            declared = type_of(column.type_oid, array.type) if carried != "JSON" else carried
            if target.type in {carried, declared}:
                values.append(f"n.{field}" if carried == target.type else f"CAST(n.{field} AS {target.type})")
                continue
            _refuse_lossy(session, shape, column, f"n.{field}", (carried, target.type, f"{source} AS n"))
            values.append(f"CAST(n.{field} AS {target.type})")
        yield Staged(
            source=source,
            names=tuple(quote(target.name) for target in targets),
            types=tuple(target.type for target in targets),
            values=tuple(values),
            extra=tuple(f"n.{field}" for field in fields[len(columns) :]),
        )


def insert(session: Session, shape: TableShape, columns: Sequence[ColumnSchema], data: pa.Table) -> None:
    """Append rows as they are."""
    if not data.num_rows:
        return
    with staged(session, shape, columns, data) as rows:
        session.run(
            f"INSERT INTO {shape.sql} ({', '.join(rows.names)})"
            f" SELECT {', '.join(rows.values)} FROM {rows.source} AS n",
            table=shape.table.name,
        )


def _carried(arrow: pa.DataType) -> str:
    """The type DuckDB reads an Arrow column as."""
    return "JSON" if isinstance(arrow, pa.JsonType) else type_of(_NO_TYPE, arrow)


def _as_json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text as JSON without a look at it.

    Postgres' json holds texts that DuckDB's cast refuses (lone surrogates): what Postgres took, we keep.
    """
    target = pa.json_(column.type)
    return pa.chunked_array(
        [pa.ExtensionArray.from_storage(target, chunk) for chunk in column.chunks], target
    )


def _refuse_lossy(
    session: Session, shape: TableShape, column: ColumnSchema, value: str, cast: tuple[str, str, str]
) -> None:
    carried, target, source = cast
    try:
        lost = session.rows(
            f"SELECT count(*) FROM {source} WHERE {value} IS NOT NULL"
            f" AND TRY_CAST(TRY_CAST({value} AS {target}) AS {carried}) IS DISTINCT FROM {value}",
            table=shape.table.name,
        )[0][0]
    except DestinationTableError:
        lost = "all"
    if lost:
        raise DestinationTableError(
            f"column {column.name!r} is {target} here and cannot take {lost} of the values, which come as {carried}",
            hint="the source column's type has changed; copy the table again to take the new type",
            table=shape.table.name,
        )


_NO_TYPE: Final = 0

"""A destination table as it really is, and source columns brought into its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from etl.destinations.columns import TableColumns
from etl.destinations.delta.conform import conform
from etl.destinations.delta.dialect import arrow_of, quote, same_name
from etl.destinations.delta.places import Place
from etl.schema.table import ColumnSchema


@dataclass(frozen=True)
class TableShape(TableColumns):
    """A table of this destination, and where it is."""

    place: Place

    same_name = staticmethod(same_name)

    def names(self, columns: Sequence[ColumnSchema]) -> list[str]:
        """The quoted destination names of source columns."""
        return [quote(self.column(column).name) for column in columns]


def natural_types(shape: TableShape, columns: Sequence[ColumnSchema]) -> list[pa.Field]:
    """The columns that `shaped` gives for these."""
    return [
        pa.field(f"c{place}", arrow_of(shape.column(column).type)) for place, column in enumerate(columns)
    ]


def shaped(shape: TableShape, columns: Sequence[ColumnSchema], data: pa.Table) -> pa.Table:
    """`data` (the values of `columns` in order, then any further columns) as the destination takes them.

    The columns are called ``c0``, ``c1`` and so on, in the types of the destination; further ones keep their names.
    Raises `DestinationTableError` naming the column that cannot take its values.
    """
    arrays, names = list(data.columns), list(data.schema.names)
    for place, column in enumerate(columns):
        arrays[place] = conform(arrays[place], shape.column(column).type, column.name, shape.table.name)
        names[place] = f"c{place}"
    return pa.table(arrays, names=names)

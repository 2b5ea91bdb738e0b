"""A destination table as it really is, and source columns brought into its shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from etl.ddl.operations import ActualColumn
from etl.destinations.base import DestinationTable
from etl.destinations.delta.conform import conform
from etl.destinations.delta.dialect import quote, same_name
from etl.destinations.delta.places import Place
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema


@dataclass(frozen=True)
class TableShape:
    """A table of this destination: where it is, and `columns`, those of the source."""

    table: DestinationTable
    place: Place
    columns: tuple[ActualColumn, ...]

    @cached_property
    def _by_attnum(self) -> dict[int, ActualColumn]:
        return {column.attnum: column for column in self.columns if column.attnum is not None}

    @cached_property
    def _by_name(self) -> dict[str, ActualColumn]:
        return {same_name(column.name): column for column in self.columns}

    def column(self, source: ColumnSchema) -> ActualColumn:
        """The column that `source` goes to. Raises `DestinationTableError` when there is none."""
        found = self._by_attnum.get(source.attnum) or self._by_name.get(same_name(source.name))
        if found is None:
            raise DestinationTableError(
                f"column {source.name!r} is not in the destination table",
                hint="something else changed the table; copy it again",
                table=self.table.name,
            )
        return found

    def names(self, columns: Sequence[ColumnSchema]) -> list[str]:
        """The quoted destination names of source columns."""
        return [quote(self.column(column).name) for column in columns]


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

"""The columns that a destination table really has, and which of them a source column goes to."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

from etl.ddl.operations import ActualColumn
from etl.destinations.base import DestinationTable
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema


@dataclass(frozen=True)
class TableColumns:
    """A table of a destination; `columns` are those of the source, without metadata columns."""

    table: DestinationTable
    columns: tuple[ActualColumn, ...]

    @staticmethod
    @abstractmethod
    def same_name(name: str) -> str:
        """What the destination compares when it compares names."""

    @cached_property
    def _by_attnum(self) -> dict[int, ActualColumn]:
        return {column.attnum: column for column in self.columns if column.attnum is not None}

    @cached_property
    def _by_name(self) -> dict[str, ActualColumn]:
        return {self.same_name(column.name): column for column in self.columns}

    def column(self, source: ColumnSchema) -> ActualColumn:
        """The column that `source` goes to, by its tag, else by its name. Raises `DestinationTableError`."""
        found = self._by_attnum.get(source.attnum) or self._by_name.get(self.same_name(source.name))
        if found is None:
            raise DestinationTableError(
                f"column {source.name!r} is not in the destination table",
                hint="something else changed the table; copy it again",
                table=self.table.name,
            )
        return found

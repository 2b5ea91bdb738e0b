"""The DuckDB destination for the destination suite: one file a kit."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import duckdb

from etl.destinations.base import Destination, DestinationTable
from etl.destinations.duckdb import DuckDBDestination, DuckDBSettings
from etl.destinations.duckdb.dialect import quote
from etl.destinations.naming import split_name
from etl.testing.builders import PlainRow
from etl.testing.destination_kit import DestinationKit


class DuckDBKit(DestinationKit):
    """A database file in `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = count()
        self.path = directory / "etl.duckdb"

    def connect(self) -> Destination:
        """One more destination over the file."""
        return DuckDBDestination(DuckDBSettings(self.path))

    def rows(self, table: DestinationTable) -> list[PlainRow]:
        """Read over a connection of its own, which sees what is committed."""
        name = ".".join(map(quote, (self.path.stem, *split_name(table.name))))
        return self.query(f"SELECT * FROM {name}")  # noqa: S608 -- quoted

    def query(self, sql: str) -> list[PlainRow]:
        """Any statement's rows."""
        with duckdb.connect(str(self.path)) as connection:
            rows: list[PlainRow] = connection.execute(sql).to_arrow_table().to_pylist()
            return rows

    def fresh(self) -> DestinationKit:
        """Another file."""
        directory = self._directory / f"fresh{next(self._names)}"
        directory.mkdir()
        return DuckDBKit(directory)

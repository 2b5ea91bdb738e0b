"""How a test looks into a destination: columns and rows of its tables, as they are now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import duckdb

Row = tuple[Any, ...]
#: Name, type in the destination's own words, default.
Column = tuple[str, str, str | None]


class Reader(Protocol):
    """An open destination. Tables are named ``schema.table`` as at the source."""

    def columns(self, table: str) -> list[Column]:
        """The columns in order, without metadata columns."""

    def rows(self, table: str, columns: str) -> list[Row]:
        """The rows in no particular order; `columns` is SQL."""

    def query(self, query: str, parameters: Sequence[object]) -> list[Row]:
        """The rows of a query."""

    def as_source(self, column: Column) -> str:
        """SQL for the source that reads the column of this name as it is kept here."""


class DuckDBReader:
    """A DuckDB file; only while no daemon has it open."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[DuckDBReader]:
        """A reader over the file, which is open meanwhile."""
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield cls(connection)

    def columns(self, table: str) -> list[Column]:
        """As the catalog has them."""
        schema, name = table.split(".", 1)
        rows = self.query(
            "SELECT column_name, data_type, column_default FROM duckdb_columns()"
            " WHERE schema_name = ? AND table_name = ? AND NOT starts_with(column_name, '_etl_')"
            " ORDER BY column_index",
            [schema, name],
        )
        return [(str(row[0]), str(row[1]), row[2]) for row in rows]

    def rows(self, table: str, columns: str) -> list[Row]:
        """All rows."""
        schema, name = table.split(".", 1)
        return self.query(f'SELECT {columns} FROM "{schema}"."{name}"', ())  # noqa: S608 - the names of a test

    def query(self, query: str, parameters: Sequence[object]) -> list[Row]:
        """By way of Arrow, because the driver's own rows want pytz for a timestamptz."""
        table = self._connection.execute(query, parameters).to_arrow_table()
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def as_source(self, column: Column) -> str:
        """Both drivers read the types of both sides alike."""
        return f'"{column[0]}"'

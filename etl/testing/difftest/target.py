"""What the destination holds, as texts: tables are found by the tags that their columns carry, not by name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Protocol

import duckdb

_TAG = re.compile(r"pg:(\d+)\.(\d+)")
_NUMBERS = ("DECIMAL", "FLOAT", "DOUBLE", "REAL")
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UINTEGER", "HUGEINT"}
_BC = re.compile(r"^(\S+) \(BC\)(.*)$")


@dataclass(frozen=True, slots=True)
class TargetColumn:
    """A column of the destination; `default` is the destination's SQL."""

    attnum: int
    name: str
    type: str
    default: str | None


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table of the destination that says which source table it is."""

    oid: int
    name: str
    columns: tuple[TargetColumn, ...]


class Target(Protocol):
    """An open destination."""

    def tables(self) -> list[TargetTable]:
        """All tables with tagged columns."""

    def rows(self, table: TargetTable, columns: Sequence[TargetColumn]) -> list[tuple[str | None, ...]]:
        """The rows, each value as `canonical` writes it."""

    def kept_texts(self, oid: int) -> set[tuple[int, str]]:
        """(attnum, exact text) of the values that their columns could not hold."""

    def default_value(self, column: TargetColumn) -> str | None:
        """What the default gives a new row, as `canonical` writes it."""

    def canonical(self, text: str | None, kind: str) -> str | None:
        """Postgres' text of a value as it would be written were it in a column of this type here."""


class DuckDBTarget:
    """A DuckDB file while no daemon has it open."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[DuckDBTarget]:
        """The file, to be read."""
        with closing(duckdb.connect(str(path), read_only=True)) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            yield cls(connection)

    def tables(self) -> list[TargetTable]:
        """See `Target`."""
        found: dict[tuple[int, str], list[TargetColumn]] = {}
        for schema, table, name, kind, default, comment in self._connection.execute(
            "SELECT schema_name, table_name, column_name, data_type, column_default, comment FROM duckdb_columns()"
            " WHERE comment IS NOT NULL ORDER BY schema_name, table_name, column_index"
        ).fetchall():
            tag = _TAG.match(comment)
            if tag is not None and not table.startswith("_etl_copy_"):
                sql = f"{_quoted(schema)}.{_quoted(table)}"
                found.setdefault((int(tag[1]), sql), []).append(
                    TargetColumn(int(tag[2]), name, kind, default)
                )
        return [TargetTable(oid, sql, tuple(columns)) for (oid, sql), columns in found.items()]

    def rows(self, table: TargetTable, columns: Sequence[TargetColumn]) -> list[tuple[str | None, ...]]:
        """See `Target`."""
        values = ", ".join(_as_text(_quoted(column.name), column.type) for column in columns)
        found = self._connection.execute(f"SELECT {values} FROM {table.name}").fetchall()
        kinds = [column.type for column in columns]
        return [
            tuple(self.canonical(text, kind) for text, kind in zip(row, kinds, strict=True)) for row in found
        ]

    def kept_texts(self, oid: int) -> set[tuple[int, str]]:
        """See `Target`."""
        found = self._connection.execute(
            "SELECT column_attnum, value FROM _etl.unrepresentable WHERE table_oid = ?", [oid]
        ).fetchall()
        return set(found)

    def default_value(self, column: TargetColumn) -> str | None:
        """See `Target`."""
        value = f"CAST(({column.default}) AS {column.type})"
        found = self._connection.execute(f"SELECT {_as_text(value, column.type)}").fetchall()
        return self.canonical(found[0][0], column.type)

    def canonical(self, text: str | None, kind: str) -> str | None:
        """See `Target`."""
        if text is None:
            return None
        if kind.endswith("[]"):
            return _canonical_list(text)
        if kind in _INTEGERS or kind.startswith(_NUMBERS):
            return canonical_number(text, is_float=not kind.startswith("DECIMAL") and kind not in _INTEGERS)
        if kind.startswith(("DATE", "TIME")):
            return _BC.sub(r"\1\2 BC", text)
        return text


def canonical_number(text: str, *, is_float: bool) -> str:
    """One text for one number, however it was written."""
    if is_float:
        # engines take 0 and -0 for equal, and may keep either
        return repr(float(text) + 0.0)
    try:
        number = Decimal(text)
    except InvalidOperation:
        return text
    return format(number.normalize(), "f") if number.is_finite() else str(number)


def _canonical_list(text: str) -> str:
    """A list as JSON, or Postgres' own text where it is none (more dimensions, other bounds)."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except ValueError:
        return text


def _as_text(value: str, kind: str) -> str:
    if kind == "BLOB":
        return f"'\\x' || lower(hex({value}))"
    if kind.endswith("[]"):
        return f"CAST(to_json({value}) AS VARCHAR)"
    return f"CAST({value} AS VARCHAR)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'

"""A Delta lake as a second engine sees it: delta-rs reads what Spark wrote, and needs no JVM for it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from etl.destinations.delta.places import escaped
from etl.testing.reader import Column, Row

#: Compiling less makes a JVM that lives for one test start faster.
TEST_SPARK = {
    "master": "local[2]",
    "conf": {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"},
}
_SPARK_NAMES = {"long": "bigint", "integer": "int", "short": "smallint"}


def delta_settings(lake: Path, **others: Any) -> dict[str, Any]:
    """The ``destination`` section of a pipeline into this folder, without upkeep; `others` are laid over it."""
    upkeep = {"optimize_commits": 0, "vacuum_hours": 0}
    return {"type": "delta", "path": str(lake), "spark": TEST_SPARK, "maintenance": upkeep, **others}


class DeltaReader:
    """The tables under a lake's folder. It may be read at any time: a version is whole or not there."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake

    def folder(self, table: str) -> Path:
        """Where a table lies."""
        return self._lake.joinpath(*map(escaped, table.split(".", 1)))

    def columns(self, table: str) -> list[Column]:
        """As the table's newest version has them, types in Spark's words."""
        fields = self._open(table).schema().fields
        return [
            (field.name, _type_name(json.loads(field.type.to_json())), field.metadata.get("CURRENT_DEFAULT"))
            for field in fields
            if not field.name.startswith("_etl_")
        ]

    def rows(self, table: str, columns: str) -> list[Row]:
        """All rows of the newest version."""
        return self._select(f"SELECT {columns} FROM wanted", {"wanted": self._open(table)})  # noqa: S608

    def query(self, query: str, parameters: Sequence[object]) -> list[Row]:
        """The tables of schema ``public`` go by their names; there are no parameters."""
        if parameters:
            raise NotImplementedError
        folders = [found for found in (self._lake / "public").iterdir() if (found / "_delta_log").is_dir()]
        return self._select(query, {found.name: DeltaTable(str(found)) for found in folders})

    def as_source(self, column: Column) -> str:
        """What has no type in Delta is kept as the text that Postgres prints."""
        name, kind, _ = column
        if kind == "string":
            # unlike a cast to text, which would trim a character(n)
            return f'CASE WHEN "{name}" IS NOT NULL THEN format(\'%s\', "{name}") END'
        return f'"{name}"::text[]' if kind == "array<string>" else f'"{name}"'

    def commits(self, table: str) -> list[dict[str, Any]]:
        """What each commit says of itself, oldest first: ``operation``, and ``etl``, our part of it, if any."""
        history = self._open(table).history()
        return [
            {"operation": each["operation"], "etl": json.loads(each.get("userMetadata") or "{}").get("etl")}
            for each in reversed(history)
        ]

    def _open(self, table: str) -> DeltaTable:
        return DeltaTable(str(self.folder(table)))

    @staticmethod
    def _select(query: str, tables: dict[str, DeltaTable]) -> list[Row]:
        engine = QueryBuilder()
        for name, table in tables.items():
            engine.register(name, table)
        found = pa.table(engine.execute(query).read_all())
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def _type_name(kind: Any) -> str:
    if isinstance(kind, dict):
        return f"array<{_type_name(kind['elementType'])}>"
    return _SPARK_NAMES.get(kind, str(kind))

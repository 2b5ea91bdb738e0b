"""A Delta lake as the oracle sees it, read by delta-rs: what Spark wrote must mean the same to a second engine."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from etl.testing.delta_reader import _type_name
from etl.testing.difftest.target import TargetColumn, TargetTable, canonical_number

_TAG = re.compile(r"pg:(\d+)\.(\d+)")
_QUOTED = re.compile(r"(?:[A-Z_]+)?'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_NUMBERS = ("decimal", "float", "double", "bigint", "int", "smallint")
_UTC = re.compile(r"(\d\d:\d\d:\d\d(?:\.\d+)?)(?:\+00(?::00)?|Z)?$")


class DeltaTarget:
    """A lake's folder."""

    def __init__(self, lake: Path) -> None:
        self._lake = lake

    def tables(self) -> list[TargetTable]:
        """See `Target`."""
        found = []
        for log in sorted(self._lake.glob("*/*/_delta_log")):
            if log.parent.parent.name == "_etl":
                continue
            columns: dict[int, list[TargetColumn]] = {}
            for field in DeltaTable(str(log.parent)).schema().fields:
                tag = _TAG.match(str(field.metadata.get("comment", "")))
                if tag is not None:
                    kind = _type_name(json.loads(field.type.to_json()))
                    default = field.metadata.get("CURRENT_DEFAULT")
                    columns.setdefault(int(tag[1]), []).append(
                        TargetColumn(int(tag[2]), field.name, kind, default)
                    )
            found += [TargetTable(oid, str(log.parent), tuple(each)) for oid, each in columns.items()]
        return found

    def rows(self, table: TargetTable, columns: Sequence[TargetColumn]) -> list[tuple[str | None, ...]]:
        """See `Target`."""
        names = ", ".join('"' + column.name.replace('"', '""') + '"' for column in columns)
        found = _select(Path(table.name), f"SELECT {names} FROM wanted")
        texts = [
            [self.canonical(_text(value), column.type) for value in _values(values)]
            for values, column in zip(found.columns, columns, strict=True)
        ]
        return list(zip(*texts, strict=True))

    def kept_texts(self, oid: int) -> set[tuple[int, str]]:
        """See `Target`."""
        folder = self._lake / "_etl" / "unrepresentable"
        if not (folder / "_delta_log").is_dir():
            return set()
        found = _select(folder, f"SELECT column_attnum, value FROM wanted WHERE table_oid = {oid}")
        return set(zip(*(column.to_pylist() for column in found.columns), strict=True))

    def default_value(self, column: TargetColumn) -> str | None:
        """See `Target`."""
        quoted = _QUOTED.fullmatch(column.default or "")
        text = column.default if quoted is None else re.sub(r"\\(.)|''", lambda m: m[1] or "'", quoted[1])
        return self.canonical(text, column.type)

    def canonical(self, text: str | None, kind: str) -> str | None:
        """See `Target`."""
        if text is None:
            return None
        if kind.startswith("array"):
            try:
                return json.dumps(json.loads(text), ensure_ascii=False)
            except ValueError:
                return text
        if kind.startswith(_NUMBERS):
            return canonical_number(text, is_float=kind in {"float", "double"})
        if kind.startswith("timestamp"):
            return _UTC.sub(lambda m: m[1].rstrip("0").rstrip(".") if "." in m[1] else m[1], text)
        return text


def _select(folder: Path, query: str) -> pa.Table:
    engine = QueryBuilder()
    engine.register("wanted", DeltaTable(str(folder)))
    return pa.table(engine.execute(query).read_all())


def _values(column: pa.ChunkedArray) -> list[Any]:
    """Python's dates end at the year 1, Arrow's text forms do not."""
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def _text(value: Any) -> str | None:
    """As Postgres would print it."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return "\\x" + value.hex()
        case list():
            return json.dumps(value, ensure_ascii=False)
        case str():
            return _before_christ(value)
        case int() | float() | Decimal() | date() | datetime():
            return str(value)
        case _:
            raise TypeError(type(value))


def _before_christ(text: str) -> str:
    """Arrow counts a year 0: ``-0043-03-15`` is ``0044-03-15 BC``."""
    found = re.fullmatch(r"(-\d{4,}|0000)(-\d\d-\d\d.*)", text)
    return text if found is None else f"{1 - int(found[1]):04}{found[2]} BC"

"""DuckDB's SQL, purely: names and literals, column types, defaults.

Every name and literal that reaches DuckDB as text goes through `quote` or `literal`; row values never do, they are
Arrow columns.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa

from etl.schema.defaults import DefaultLiteral, LiteralKind
from etl.schema.table import ColumnSchema
from etl.schema.types import TypeCategory, TypeOptions, arrow_type, pg_type

_ASCII_LOWER: Final = str.maketrans({upper: chr(upper + 32) for upper in range(ord("A"), ord("Z") + 1)})


def quote(name: str) -> str:
    """An identifier, quoted. Raises `ValueError` for what can be no identifier (empty, or with a NUL)."""
    if not name or "\0" in name:
        raise ValueError("an identifier is not empty and holds no NUL")
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A string literal. Backslashes mean themselves in DuckDB. Raises `ValueError` for text with a NUL."""
    if "\0" in text:
        raise ValueError("a string literal holds no NUL")
    return "'" + text.replace("'", "''") + "'"


def same_name(name: str) -> str:
    """What DuckDB compares when it compares names: letters A to Z in lower case, all others as they are."""
    return name.translate(_ASCII_LOWER)


# --- types ----------------------------------------------------------------------------------------------------

#: Types that Arrow carries as text and DuckDB has a type for.
_OF_TEXT: Final = {TypeCategory.JSON: "JSON", TypeCategory.UUID: "UUID"}

_OF_ARROW: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.large_string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.large_binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP WITH TIME ZONE",
}


def column_type(column: ColumnSchema, options: TypeOptions) -> str:
    """The type a new column gets, spelled as ``duckdb_columns().data_type`` spells it."""
    return type_of(column.type_oid, arrow_type(column.type_oid, column.typmod, options))


def type_of(type_oid: int, carried: pa.DataType) -> str:
    """The DuckDB type for values of a Postgres type that are carried as the Arrow type `carried`."""
    if pa.types.is_list(carried) or pa.types.is_large_list(carried):
        return f"{_element_type(type_oid, carried.value_type)}[]"
    if pa.types.is_decimal(carried):
        return f"DECIMAL({carried.precision},{carried.scale})"
    if pa.types.is_string(carried) or pa.types.is_large_string(carried):
        return _OF_TEXT.get(pg_type(type_oid).category, "VARCHAR")
    return _OF_ARROW[carried]


def _element_type(array_oid: int, carried: pa.DataType) -> str:
    # JSON text enters a list only by a cast that checks it, and Postgres' json holds texts which that cast refuses
    element = pg_type(array_oid).element_oid
    named = type_of(element, carried) if element is not None else _OF_ARROW.get(carried, "VARCHAR")
    return "VARCHAR" if named == "JSON" else named


# --- defaults -------------------------------------------------------------------------------------------------

_PLAIN_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_DECIMAL: Final = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_INTEGER_BITS: Final = {"SMALLINT": 16, "INTEGER": 32, "BIGINT": 64}
_KIND_OF_TYPE: Final = {
    "BOOLEAN": LiteralKind.BOOLEAN,
    "DATE": LiteralKind.DATE,
    "TIME": LiteralKind.TIME,
    "TIMESTAMP": LiteralKind.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": LiteralKind.TIMESTAMPTZ,
    "JSON": LiteralKind.JSON,
    "UUID": LiteralKind.UUID,
}
_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?")
_OFFSET: Final = re.compile(r"[+-]\d\d(:\d\d)?")


def render_default(column: ColumnSchema, default: DefaultLiteral, options: TypeOptions) -> str | None:
    """The default as DuckDB stores and shows it, or None when the column's type would read it otherwise.

    Numbers are plain; everything else is a string literal, which DuckDB casts to the column's type when it uses it.
    Both come back from ``duckdb_columns().column_default`` as they went in.
    """
    kind, text = default.kind, default.text
    if "\0" in text:
        return None
    target = column_type(column, options)
    if kind is LiteralKind.NUMERIC:
        return _number(target, text)
    if target == "VARCHAR":
        # of the types kept as text only those whose text is the value
        is_text = pg_type(column.type_oid).category in {TypeCategory.STRING, TypeCategory.UNKNOWN}
        return literal(text) if kind is LiteralKind.STRING and is_text else None
    if _KIND_OF_TYPE.get(target) is not kind or not _reads_the_same(kind, text):
        return None
    return literal(text)


def _number(target: str, text: str) -> str | None:
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    whole, _, fraction = text.lstrip("-").partition(".")
    decimal = _DECIMAL.fullmatch(target)
    if decimal is not None:
        precision, scale = int(decimal[1]), int(decimal[2])
        fits = len(fraction.rstrip("0")) <= scale and len(whole.lstrip("0")) <= precision - scale
        return text if fits and len(whole + fraction) <= _MAX_DECIMAL_DIGITS else None
    if target in _INTEGER_BITS:
        bound = 2 ** (_INTEGER_BITS[target] - 1)
        return text if not fraction and -bound <= int(text) < bound else None
    if target in {"FLOAT", "DOUBLE"}:
        return text if len(whole + fraction) <= _MAX_DECIMAL_DIGITS else None
    return literal(text) if target == "VARCHAR" else None


_MAX_DECIMAL_DIGITS: Final = 38


def _reads_the_same(kind: LiteralKind, text: str) -> bool:
    match kind:
        case LiteralKind.DATE:
            return _DATE.fullmatch(text) is not None
        case LiteralKind.TIME:
            return _TIME_OF_DAY.fullmatch(text) is not None
        case LiteralKind.TIMESTAMP:
            return _TIMESTAMP.fullmatch(text) is not None
        case LiteralKind.TIMESTAMPTZ:
            moment = _TIMESTAMP.match(text)
            # without an offset the session that uses the default would decide what it means
            return moment is not None and _OFFSET.fullmatch(text[moment.end() :]) is not None
        case LiteralKind.BOOLEAN:
            return text in {"true", "false"}
        case _:
            return True

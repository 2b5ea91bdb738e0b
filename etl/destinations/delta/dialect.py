"""Spark's SQL and Delta's types, purely: names and literals, column types, defaults.

Every name and literal that reaches Spark as text goes through `quote` or `literal`; row values never do, they are
Arrow columns or parameters.
"""

from __future__ import annotations

import json
import re
from typing import Final

import pyarrow as pa

from etl.schema.defaults import DefaultLiteral, LiteralKind
from etl.schema.table import ColumnSchema
from etl.schema.types import TypeCategory, TypeOptions, arrow_type, pg_type


def quote(name: str) -> str:
    """An identifier, quoted. Raises `ValueError` for what can be no identifier (empty, or with a NUL)."""
    if not name or "\0" in name:
        raise ValueError("an identifier is not empty and holds no NUL")
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A string literal, in which Spark reads backslash escapes. Raises `ValueError` for text with a NUL."""
    if "\0" in text:
        raise ValueError("a string literal holds no NUL")
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def same_name(name: str) -> str:
    """What Spark compares when it compares names: it ignores case.

    Delta compares lower case, and Spark letter by letter upper case, then lower case (`String.equalsIgnoreCase`), by which
    the dotless i and the long s are an i and an s. What either takes for one name is one name here.
    """
    return "".join(map(_without_case, name)).replace("i\u0307", "i")


def _without_case(letter: str) -> str:
    # Java's mapping of letters is one to one; of Python's longer ones only that of İ is shorter there
    upper = letter.upper() if len(letter.upper()) == 1 else letter
    lower = upper.lower()
    return lower if len(lower) == 1 else lower[0]


# --- types ----------------------------------------------------------------------------------------------------

_OF_ARROW: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.uint32(): "bigint",
    pa.uint64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.time64("us"): "string",
    pa.timestamp("us"): "timestamp_ntz",
    pa.timestamp("us", tz="UTC"): "timestamp",
}

#: The Arrow type that holds exactly the values of a Spark type; types no column of ours is made with included.
_TO_ARROW: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY: Final = re.compile(r"array<(.+)>")


def column_type(column: ColumnSchema, options: TypeOptions) -> str:
    """The type a new column gets, spelled as Spark's ``simpleString`` spells it."""
    return type_of(arrow_type(column.type_oid, column.typmod, options))


def type_of(carried: pa.DataType) -> str:
    """The Spark type for values that are carried as the Arrow type `carried`."""
    if pa.types.is_list(carried):
        return f"array<{type_of(carried.value_type)}>"
    if pa.types.is_decimal(carried):
        return f"decimal({carried.precision},{carried.scale})"
    return _OF_ARROW[carried]


def arrow_of(spark_type: str) -> pa.DataType | None:
    """The Arrow type that Spark reads as `spark_type`, None for types that etl never writes (structs, maps)."""
    if match := _DECIMAL.fullmatch(spark_type):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _ARRAY.fullmatch(spark_type):
        element = arrow_of(match[1])
        return None if element is None else pa.list_(element)
    return _TO_ARROW.get(spark_type)


# --- defaults -------------------------------------------------------------------------------------------------

_PLAIN_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_MAX_DECIMAL_DIGITS: Final = 38
_INTEGER_BITS: Final = {"smallint": 16, "int": 32, "bigint": 64}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{0,5}[1-9])?")
_TIMESTAMP: Final = re.compile(r"\d{4}-\d\d-\d\d ([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?")
_OFFSET: Final = re.compile(r"[+-]\d\d(:\d\d)?")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_JSONB_OID: Final = 3802


def render_default(column: ColumnSchema, default: DefaultLiteral, options: TypeOptions) -> str | None:
    """The default as Delta keeps and shows it, or None when the column would read another value than Postgres does.

    Delta keeps the expression's text as it was given, so what is rendered is what `describe` finds.
    """
    target = column_type(column, options)
    if "\0" in default.text:
        return None
    if default.kind is LiteralKind.NUMERIC:
        return _number(target, default.text)
    if target == "string":
        return literal(default.text) if _is_text_as_stored(column, default) else None
    return _typed(target, default)


def _typed(target: str, default: DefaultLiteral) -> str | None:
    kind, text = default.kind, default.text
    match target:
        case "boolean" if kind is LiteralKind.BOOLEAN and text in {"true", "false"}:
            return text
        case "date" if kind is LiteralKind.DATE and _DATE.fullmatch(text):
            return f"DATE{literal(text)}"
        case "timestamp_ntz" if kind is LiteralKind.TIMESTAMP and _TIMESTAMP.fullmatch(text):
            return f"TIMESTAMP_NTZ{literal(text)}"
        case "timestamp" if kind is LiteralKind.TIMESTAMPTZ and _is_moment(text):
            return f"TIMESTAMP{literal(text)}"
    return None


def _number(target: str, text: str) -> str | None:
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole + fraction) > _MAX_DECIMAL_DIGITS or (
        text.startswith("-") and not (whole + fraction).strip("0")
    ):
        # minus zero: a number with a sign in one type, without it in another, and other text in a third
        return None
    if decimal := _DECIMAL.fullmatch(target):
        precision, scale = int(decimal[1]), int(decimal[2])
        fits = len(fraction.rstrip("0")) <= scale and len(whole.lstrip("0")) <= precision - scale
        return text if fits else None
    if target in _INTEGER_BITS:
        bound = 2 ** (_INTEGER_BITS[target] - 1)
        return text if not fraction and -bound <= int(text) < bound else None
    if target in {"float", "double"}:
        return text
    return literal(text) if target == "string" else None


def _is_text_as_stored(column: ColumnSchema, default: DefaultLiteral) -> bool:
    """Whether the literal's text is, letter for letter, what the stream would carry for it."""
    category, text = pg_type(column.type_oid).category, default.text
    match default.kind:
        case LiteralKind.STRING:
            return category in {TypeCategory.STRING, TypeCategory.UNKNOWN}
        case LiteralKind.UUID:
            return _UUID.fullmatch(text) is not None
        case LiteralKind.TIME:
            return category is not TypeCategory.STRING and _TIME.fullmatch(text) is not None
        case LiteralKind.JSON:
            return column.type_oid != _JSONB_OID or _is_normal_jsonb(text)
        case _:
            return False


def _is_normal_jsonb(text: str) -> bool:
    """Whether jsonb prints this text as it stands. Objects of several keys are left out: jsonb has its own order."""
    try:
        value = json.loads(text, parse_float=_plain_float, parse_constant=_no_constant)
        plain = json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return plain == text and not (isinstance(value, dict) and len(value) > 1) and "{" not in text[1:]


def _plain_float(text: str) -> float:
    """A number as jsonb keeps it: digit by digit, without an exponent and without a sign on zero."""
    if not _PLAIN_NUMBER.fullmatch(text) or not float(text):
        raise ValueError(text)
    return float(text)


def _no_constant(name: str) -> float:
    raise ValueError(name)


def _is_moment(text: str) -> bool:
    """A timestamp with an offset: without one the session that uses the default would decide what it means."""
    found = _TIMESTAMP.match(text)
    return found is not None and _OFFSET.fullmatch(text[found.end() :]) is not None

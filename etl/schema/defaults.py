"""Literal defaults: what the parser recognises in ``pg_get_expr`` text (contract, "Column defaults")."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from etl.schema.literal import Literal, LiteralForm, TypeName, read_literal
from etl.schema.types import TypeCategory, known_types, pg_type


class LiteralKind(StrEnum):
    """The shapes of a deterministic literal default."""

    STRING = "string"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    JSON = "json"
    UUID = "uuid"


@dataclass(frozen=True, slots=True)
class DefaultLiteral:
    """A parsed default. `text` is the value without quotes and casts (``true``/``false`` for booleans)."""

    kind: LiteralKind
    text: str


def parse_default(expression: str | None, type_oid: int) -> DefaultLiteral | None:
    """The literal in a ``pg_get_expr`` text, or None when it is not one of the supported shapes.

    `type_oid` is the column's type: it decides the literal's kind, for Postgres assigns the default to the column. A
    default is supported when its text *is* the value the column gets; where a cast or the assignment would compute
    another value (rounding, cutting, a session's time zone), it is not. In detail:

    - No default and ``NULL`` in any spelling are None: there is nothing to install.
    - Strings, numbers, ``true`` and ``false``, in any number of parentheses and casts. Everything else (functions,
      operators, ``ARRAY[…]``, sub-selects, ``CURRENT_DATE``, ``DATE '…'``) is unsupported. What stands between quotes is
      never looked at: ``'please select one'`` and ``'a::b'`` are strings.
    - ``E'…'``, ``B'…'``, ``U&'…'`` are never guessed at; ``pg_get_expr`` does not write them.
    - Text columns take strings, numbers as Postgres writes them (``42`` is the string ``42``) and booleans
      (``true``). A length in a cast must not cut the string.
    - Columns of a type the registry does not know (enums, domains, extension types) are carried as text; they take
      strings, whether cast to text or to the user's own type. Numbers and booleans there belong to domains whose
      text form we do not know: unsupported.
    - Numbers are digits with at most one point and a sign. Exponents, NaN and infinities are unsupported. ``1e6`` is
      supported once Postgres has rewritten it: ``'1000000'::numeric``. Integer columns and casts take no fractions,
      ``numeric(p, s)`` casts no more than s digits of one (fewer are filled up: ``42.1::numeric(4,2)`` is 42.10);
      ``real`` is exact only in a real column.
    - Booleans are ``true`` and ``false``, quoted or not; ``'t'`` and ``'yes'`` reach us as ``true``.
    - Dates and times are ISO text with four-digit years, on a column of the very type; ``infinity``, BC, ``now``
      and ``24:00:00`` are unsupported, for destinations do not share them. ``timestamptz`` needs its offset.
    - Intervals, ``timetz``, arrays, ``bytea``, bit strings, money, network and geometric types are unsupported.

    A default that was cut short on its way must not come here: the caller passes None.
    """
    literal = read_literal(expression) if expression is not None else None
    if literal is None:
        return None
    column = pg_type(type_oid)
    rule = _RULES.get(column.category)
    if rule is None or not all(_keeps_value(cast, literal.text) for cast in literal.casts):
        return None
    return rule(literal, {_cast_kind(cast) for cast in literal.casts}, column.name)


class _Cast(StrEnum):
    """What a cast turns a literal into."""

    STRING = "string"
    INTEGER = "integer"
    NUMERIC = "numeric"
    REAL = "real"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    JSON = "json"
    JSONB = "jsonb"
    UUID = "uuid"
    USER = "user"
    OTHER = "other"


#: The names `format_type` writes, and the short names people write.
_CAST_NAMES = {
    **dict.fromkeys(
        ("text", "character varying", "varchar", "character", "char", "bpchar", "name"), _Cast.STRING
    ),
    **dict.fromkeys(("smallint", "integer", "bigint", "int", "int2", "int4", "int8", "oid"), _Cast.INTEGER),
    **dict.fromkeys(("numeric", "decimal"), _Cast.NUMERIC),
    **dict.fromkeys(("real", "float4"), _Cast.REAL),
    **dict.fromkeys(("double precision", "float8"), _Cast.DOUBLE),
    **dict.fromkeys(("boolean", "bool"), _Cast.BOOLEAN),
    "date": _Cast.DATE,
    **dict.fromkeys(("time", "time without time zone"), _Cast.TIME),
    **dict.fromkeys(("timestamp", "timestamp without time zone"), _Cast.TIMESTAMP),
    **dict.fromkeys(("timestamptz", "timestamp with time zone"), _Cast.TIMESTAMPTZ),
    "json": _Cast.JSON,
    "jsonb": _Cast.JSONB,
    "uuid": _Cast.UUID,
}

_BUILT_IN_NAMES = {t.name for t in known_types()} | {"bit varying", "time with time zone"}

#: Literal, what its casts turn it into, the column's type name → the default.
_Rule = Callable[[Literal, set[_Cast], str], DefaultLiteral | None]

#: Types that cut a string in silence, and the bytes they keep.
_NARROW = {"char": 1, "character": 1, "name": 63}

_DIGITS = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_PRINTED_NUMBER = re.compile(r"(?!-[0.]+$)-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
_OFFSET = r"[+-][0-9]{2}(?::[0-5][0-9]){0,2}"
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"


def _cast_kind(cast: TypeName) -> _Cast:
    name = cast.name.removeprefix("pg_catalog.")
    if cast.is_array:
        return _Cast.OTHER
    if name in _CAST_NAMES:
        return _CAST_NAMES[name]
    return _Cast.OTHER if name in _BUILT_IN_NAMES or cast.arguments else _Cast.USER


def _keeps_value(cast: TypeName, text: str) -> bool:
    """Whether the cast leaves a value of this text as it is, as far as its own arguments and form say."""
    kind = _cast_kind(cast)
    if kind is _Cast.STRING:
        return len(text) <= cast.arguments[0] if cast.arguments else not _is_cut(text, cast.name)
    if kind is _Cast.INTEGER:
        return _fraction_digits(text) == 0
    if kind is _Cast.NUMERIC and cast.arguments:
        return _fraction_digits(text) <= _scale(cast)
    if kind in {_Cast.TIME, _Cast.TIMESTAMP, _Cast.TIMESTAMPTZ} and cast.arguments:
        return "." not in text
    return kind is not _Cast.OTHER


def _is_cut(text: str, type_name: str) -> bool:
    return type_name in _NARROW and len(text.encode("utf-8", "surrogatepass")) > _NARROW[type_name]


def _scale(cast: TypeName) -> int:
    return cast.arguments[1] if len(cast.arguments) > 1 else 0


def _fraction_digits(text: str) -> int:
    return len(text.partition(".")[2].rstrip("0"))


def _string(literal: Literal, casts: set[_Cast], type_name: str) -> DefaultLiteral | None:
    if literal.form is LiteralForm.STRING and casts <= {_Cast.STRING}:
        cut = _is_cut(literal.text, type_name)
        return None if cut else DefaultLiteral(LiteralKind.STRING, literal.text)
    # assigned to a "char" column, a number is a character code
    if type_name == "char" or any(cast.arguments for cast in literal.casts):
        return None
    number = _PRINTED_NUMBER.fullmatch(literal.text) and casts <= {_Cast.INTEGER, _Cast.NUMERIC}
    truth = literal.text in {"true", "false"} and casts <= {_Cast.BOOLEAN}
    return DefaultLiteral(LiteralKind.STRING, literal.text) if number or truth else None


def _user_type(literal: Literal, casts: set[_Cast], _: str) -> DefaultLiteral | None:
    # a cast to character pads in a way the domain decides
    padded = any(cast.name in {"character", "char", "bpchar"} for cast in literal.casts)
    if literal.form is not LiteralForm.STRING or padded or not casts <= {_Cast.STRING, _Cast.USER}:
        return None
    return DefaultLiteral(LiteralKind.STRING, literal.text)


def _number(*allowed: _Cast, whole: bool = False) -> _Rule:
    def rule(literal: Literal, casts: set[_Cast], type_name: str) -> DefaultLiteral | None:
        exact = type_name == "float4" or _Cast.REAL not in casts
        fits = not whole or _fraction_digits(literal.text) == 0
        if not (_DIGITS.fullmatch(literal.text) and exact and fits and casts <= set(allowed)):
            return None
        text = _at_scale(literal)
        return DefaultLiteral(LiteralKind.NUMERIC, text.partition(".")[0] if whole else text)

    return rule


def _at_scale(literal: Literal) -> str:
    """The number as its last ``numeric(p, s)`` cast writes it: with exactly s digits of fraction."""
    scales = [_scale(cast) for cast in literal.casts if cast.arguments]
    if not scales:
        return literal.text
    whole, _, fraction = literal.text.partition(".")
    digits = fraction.rstrip("0").ljust(scales[-1], "0")
    return f"{whole}.{digits}" if digits else whole


def _quoted(kind: LiteralKind, pattern: str, *allowed: _Cast) -> _Rule:
    shape = re.compile(pattern, re.DOTALL)

    def rule(literal: Literal, casts: set[_Cast], _: str) -> DefaultLiteral | None:
        if literal.form is LiteralForm.STRING and casts <= set(allowed) and shape.fullmatch(literal.text):
            return DefaultLiteral(kind, literal.text)
        return None

    return rule


def _boolean(literal: Literal, casts: set[_Cast], _: str) -> DefaultLiteral | None:
    if literal.text not in {"true", "false"} or not casts <= {_Cast.BOOLEAN}:
        return None
    return DefaultLiteral(LiteralKind.BOOLEAN, literal.text)


def _json(literal: Literal, casts: set[_Cast], type_name: str) -> DefaultLiteral | None:
    # json assigned to a jsonb column is rewritten: keys sorted, duplicates gone
    allowed = (_Cast.JSON, _Cast.JSONB) if type_name == "json" else (_Cast.JSONB,)
    return _quoted(LiteralKind.JSON, r".+", *allowed)(literal, casts, type_name)


_RULES: dict[TypeCategory, _Rule] = {
    TypeCategory.STRING: _string,
    TypeCategory.UNKNOWN: _user_type,
    TypeCategory.INTEGER: _number(_Cast.INTEGER, _Cast.NUMERIC, whole=True),
    TypeCategory.NUMERIC: _number(_Cast.INTEGER, _Cast.NUMERIC),
    TypeCategory.FLOAT: _number(_Cast.INTEGER, _Cast.NUMERIC, _Cast.REAL, _Cast.DOUBLE),
    TypeCategory.BOOLEAN: _boolean,
    TypeCategory.DATE: _quoted(LiteralKind.DATE, _DATE, _Cast.DATE),
    TypeCategory.TIME: _quoted(LiteralKind.TIME, _TIME, _Cast.TIME),
    TypeCategory.TIMESTAMP: _quoted(LiteralKind.TIMESTAMP, f"{_DATE} {_TIME}", _Cast.TIMESTAMP),
    TypeCategory.TIMESTAMPTZ: _quoted(
        LiteralKind.TIMESTAMPTZ, f"{_DATE} {_TIME}{_OFFSET}", _Cast.TIMESTAMPTZ
    ),
    TypeCategory.JSON: _json,
    TypeCategory.UUID: _quoted(LiteralKind.UUID, _UUID, _Cast.UUID),
}

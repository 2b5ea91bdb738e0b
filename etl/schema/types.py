"""Postgres types by OID and the Arrow type each column is carried in.

Pure facts: no value is touched here (`etl.pgoutput.values` does that). A type the registry does not know (enum,
domain, composite, extension type) is carried as text, exactly as Postgres prints it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

import pyarrow as pa

from etl.schema.type_catalog import BUILT_IN, TEXT_ARRAYS, TypeCategory

__all__ = [
    "DATE_INFINITY",
    "DATE_MINUS_INFINITY",
    "TIMESTAMP_INFINITY",
    "TIMESTAMP_MINUS_INFINITY",
    "ArrayForm",
    "NumericForm",
    "NumericModifier",
    "PgType",
    "TypeCategory",
    "TypeOptions",
    "arrow_type",
    "element_type",
    "known_types",
    "numeric_modifier",
    "pg_type",
]

#: ±infinity in a date32 column, in days since 1970: no date of Postgres (4714 BC to 5874897 AD) lies there.
DATE_INFINITY: Final = 2**31 - 1
DATE_MINUS_INFINITY: Final = -DATE_INFINITY

#: ±infinity in a timestamp column, in microseconds since 1970. The one finite value of Postgres at this place
#: (294247-01-10 04:00:54.775807) is reported as unrepresentable.
TIMESTAMP_INFINITY: Final = 2**63 - 1
TIMESTAMP_MINUS_INFINITY: Final = -TIMESTAMP_INFINITY

_MAX_DECIMAL128_PRECISION = 38


class NumericForm(StrEnum):
    """How numeric columns are carried: decimal128 where the declared precision allows it, or always as text."""

    DECIMAL = "decimal"
    TEXT = "text"


class ArrayForm(StrEnum):
    """How array columns are carried: Arrow lists where the element type is known, or always as text."""

    LIST = "list"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class TypeOptions:
    """The choices a pipeline has about types. They are part of a destination table's shape."""

    numeric: NumericForm = NumericForm.DECIMAL
    arrays: ArrayForm = ArrayForm.LIST


@dataclass(frozen=True, slots=True)
class PgType:
    """A type of ``pg_type``: `name` is ``typname``, `element_oid` the element type of an array, else None."""

    oid: int
    name: str
    category: TypeCategory
    element_oid: int | None = None


@dataclass(frozen=True, slots=True)
class NumericModifier:
    """``numeric(precision, scale)``; the scale may be negative or above the precision (Postgres 15 and later)."""

    precision: int
    scale: int

    @property
    def fits_decimal128(self) -> bool:
        """True when Arrow's decimal128(precision, scale) holds every finite value of the type."""
        return 1 <= self.precision <= _MAX_DECIMAL128_PRECISION and 0 <= self.scale <= self.precision


def pg_type(oid: int) -> PgType:
    """The type with this OID; an unknown one has category `TypeCategory.UNKNOWN` and name ``""``."""
    return _BY_OID.get(oid) or PgType(oid, "", TypeCategory.UNKNOWN)


def known_types() -> tuple[PgType, ...]:
    """Every type of the registry, arrays included, by ascending OID."""
    return tuple(_BY_OID[oid] for oid in sorted(_BY_OID))


def element_type(oid: int) -> PgType | None:
    """The element type of an array that can be carried as a list, else None.

    None for scalars, for arrays of unknown types, and for arrays kept as text (geometric types, ``box[]`` with
    its ``;`` between elements among them).
    """
    element_oid = pg_type(oid).element_oid
    return None if element_oid is None or element_oid in TEXT_ARRAYS else pg_type(element_oid)


def numeric_modifier(typmod: int) -> NumericModifier | None:
    """Decode ``atttypmod`` of a numeric column; None when unconstrained (typmod -1).

    The precision is in the upper 16 bits, the scale in the lower 11 as a signed number
    (``numeric_typmod_scale`` of Postgres 15; older servers only write scales both rules read alike).
    """
    if typmod < _TYPMOD_HEADER:
        return None
    packed = typmod - _TYPMOD_HEADER
    return NumericModifier((packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 0x400) - 0x400)


@lru_cache(maxsize=4096)
def arrow_type(type_oid: int, typmod: int = -1, options: TypeOptions = TypeOptions()) -> pa.DataType:
    """The Arrow type of a column of this Postgres type. Total: every OID has one, text at worst."""
    element = element_type(type_oid)
    if element is not None:
        if options.arrays is ArrayForm.TEXT:
            return pa.string()
        return pa.list_(arrow_type(element.oid, typmod, options))
    if type_oid == NUMERIC_OID:
        modifier = numeric_modifier(typmod)
        if options.numeric is NumericForm.DECIMAL and modifier is not None and modifier.fits_decimal128:
            return pa.decimal128(modifier.precision, modifier.scale)
        return pa.string()
    return _ARROW.get(type_oid, pa.string())


NUMERIC_OID: Final = 1700
_TYPMOD_HEADER = 4

_ARROW: Final[dict[int, pa.DataType]] = {
    16: pa.bool_(),
    17: pa.binary(),
    20: pa.int64(),
    21: pa.int16(),
    23: pa.int32(),
    26: pa.uint32(),
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1083: pa.time64("us"),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", tz="UTC"),
}


def _registry() -> dict[int, PgType]:
    types: dict[int, PgType] = {}
    for oid, name, array_oid, category in BUILT_IN:
        types[oid] = PgType(oid, name, category)
        types[array_oid] = PgType(array_oid, f"_{name}", TypeCategory.ARRAY, oid)
    return types


_BY_OID: Final = _registry()

"""From the text Postgres prints to typed Arrow columns, one whole column at a time.

The stream and the initial copy both go through `convert`, so a value is the same whichever way it came.

The rule: a value is exact, or it is listed in `Converted.unrepresentable` with its exact text and the column carries
NULL there. Nothing is rounded, clipped or guessed, and no text that Postgres can print raises. The text must have been
printed under the session settings every connection of ours pins: DateStyle ISO, IntervalStyle postgres, TimeZone UTC,
extra_float_digits 3, bytea_output hex, client_encoding UTF8.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from etl.schema.types import TypeOptions

__all__ = ["Converted", "convert"]


@dataclass(frozen=True, slots=True)
class Converted:
    r"""A typed column of n values.

    - `array`: n values of ``arrow_type(type_oid, typmod, options)``.
    - `unrepresentable`: ``(row, text)`` ascending by row, `text` exactly as Postgres printed it; NULL in `array`.
    - `escaped_rows`: how many values held bytes that are not UTF-8 (only a SQL_ASCII database sends such); each
      such byte stands in `array` as the four characters ``\xNN``.
    """

    array: pa.Array
    unrepresentable: tuple[tuple[int, str], ...] = ()
    escaped_rows: int = 0


def convert(text: pa.Array, type_oid: int, typmod: int = -1, options: TypeOptions | None = None) -> Converted:
    """Convert a column of n texts; `text` is ``pa.binary()`` or ``pa.string()``, its nulls are SQL NULL.

    Give ``pa.binary()`` for bytes as they came: they are checked to be UTF-8. ``pa.string()`` is trusted to be.
    Raises `ValueConversionError` naming the type, never the value, for text Postgres cannot print for that type.
    """
    raise NotImplementedError

"""From the text Postgres prints to typed Arrow columns, one whole column at a time.

The stream and the initial copy both go through `convert`, so a value is the same whichever way it came.

The rule: a value is exact, or it is listed in `Converted.unrepresentable` with its exact text and the column carries
NULL there. Nothing is rounded, clipped or guessed, and no text that Postgres can print raises. The text must have been
printed under the session settings every connection of ours pins: DateStyle ISO, IntervalStyle postgres, TimeZone UTC,
extra_float_digits 3, bytea_output hex, client_encoding UTF8.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from etl.errors import ValueConversionError
from etl.pgoutput import value_array, value_scalar, value_time
from etl.pgoutput.value_text import Int32s, Mask, select, utf8, validity, validity_buffer
from etl.schema.types import TypeOptions, arrow_type, element_type, pg_type

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
    with suppress(ValueError):
        column = _convert(text, type_oid, typmod, options or _DEFAULTS)
        escaped = 0 if column.escaped is None else int(column.escaped.sum())
        return Converted(column.array, _texts(text, column.unrepresentable), escaped)
    # Raised here and not where the parser failed: the parser's own message quotes the value.
    name = pg_type(type_oid).name or f"with oid {type_oid}"
    raise ValueConversionError(
        f"a text received for type {name} is not one Postgres prints for it",
        hint="the schema may have changed unseen, or a session setting is not the pinned one: run `etl check`",
    )


@dataclass(frozen=True, slots=True)
class _Column:
    """A converted column with its flawed rows as masks of n, None where there are none."""

    array: pa.Array
    unrepresentable: Mask | None = None
    escaped: Mask | None = None


def _convert(text: pa.Array, type_oid: int, typmod: int, options: TypeOptions) -> _Column:
    target = arrow_type(type_oid, typmod, options)
    if text.null_count == len(text):
        return _Column(pa.nulls(len(text), target))
    element = element_type(type_oid)
    if element is not None and pa.types.is_list(target):
        return _convert_arrays(text, element.oid, typmod, options, target)
    if pa.types.is_string(target):
        array, escaped = utf8(text)
        return _Column(array, None, escaped)
    return _Column(*_CONVERTERS[target.id](text, target))


def _convert_arrays(
    text: pa.Array, element_oid: int, typmod: int, options: TypeOptions, target: pa.DataType
) -> _Column:
    shaped = value_array.not_one_dimensional(text)
    flat = value_array.elements_of(text if shaped is None else select(text, pa.array(~shaped)))
    child = _convert(flat.text, element_oid, typmod, options)
    unrepresentable = _any_of(shaped, _owners(flat.offsets, child.unrepresentable))
    valid = validity(text)
    if unrepresentable is not None:
        valid = ~unrepresentable if valid is None else valid & ~unrepresentable
    buffers = [validity_buffer(valid), pa.py_buffer(flat.offsets)]
    array = pa.Array.from_buffers(target, len(text), buffers, children=[child.array])
    return _Column(array, unrepresentable, _owners(flat.offsets, child.escaped))


def _owners(offsets: Int32s, elements: Mask | None) -> Mask | None:
    """The rows that hold at least one of the marked elements."""
    if elements is None:
        return None
    rows = np.zeros(len(offsets) - 1, np.bool_)
    rows[np.searchsorted(offsets, np.flatnonzero(elements), side="right") - 1] = True
    return rows


def _any_of(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one | other


def _texts(text: pa.Array, rows: Mask | None) -> tuple[tuple[int, str], ...]:
    if rows is None:
        return ()
    indices = np.flatnonzero(rows)
    texts = text.take(pa.array(indices)).to_pylist()
    return tuple(
        (int(row), value if isinstance(value, str) else value.decode("utf-8", "backslashreplace"))
        for row, value in zip(indices, texts, strict=True)
    )


_Converter = Callable[[pa.Array, pa.DataType], tuple[pa.Array, Mask | None]]

_DEFAULTS: Final = TypeOptions()

_CONVERTERS: Final[dict[int, _Converter]] = {
    pa.bool_().id: value_scalar.boolean,
    pa.int16().id: value_scalar.number,
    pa.int32().id: value_scalar.number,
    pa.int64().id: value_scalar.number,
    pa.uint32().id: value_scalar.number,
    pa.float32().id: value_scalar.number,
    pa.float64().id: value_scalar.number,
    pa.decimal128(1).id: value_scalar.decimal,
    pa.binary().id: value_scalar.hex_bytes,
    pa.date32().id: value_time.date,
    pa.time64("us").id: value_time.time_of_day,
    pa.timestamp("us").id: value_time.timestamp,
}

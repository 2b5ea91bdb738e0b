"""Numbers, booleans and bytes: from a column of text to one typed array, without a loop over rows.

Each converter takes n texts (NULL where SQL says NULL) and the target type, and returns the array with the mask of the
values it could not represent (NULL there), or None when it could represent all. They raise `ValueError` on text
that Postgres cannot print.
"""

from __future__ import annotations

import binascii

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.pgoutput.value_text import (
    Mask,
    Rows,
    as_string,
    rows_of,
    rows_where,
    select,
    validity_buffer,
    variable_width,
)

Parsed = tuple[pa.Array, Mask | None]

_NUMERIC_SPECIAL = pa.array(["NaN", "Infinity", "-Infinity"])
_NUMERIC = r"^-?[0-9]+(\.[0-9]+)?$"
#: Up to this precision a decimal is read as an int64; Arrow's own decimal parser costs twice as much.
_INT64_DIGITS = 18
_MAX_DIGITS = 38


def number(text: pa.Array, target: pa.DataType) -> Parsed:
    """Integers, and floats with their NaN and ±Infinity: Arrow reads what Postgres prints."""
    return as_string(text).cast(target), None


def boolean(text: pa.Array, target: pa.DataType) -> Parsed:
    """``t`` and ``f`` (manual, "Boolean Type")."""
    rows = rows_of(text)
    present = rows.lengths if rows.valid is None else rows.lengths[rows.valid]
    true = rows.data == ord("t")
    if (present != 1).any() or not (true | (rows.data == ord("f"))).all():
        raise ValueError("neither t nor f")
    return pa.array(_spread(true, rows.valid), target, mask=None if rows.valid is None else ~rows.valid), None


def _spread(values: Mask, valid: Mask | None) -> Mask:
    if valid is None:
        return values
    spread = np.zeros(len(valid), np.bool_)
    spread[valid] = values
    return spread


def hex_bytes(text: pa.Array, target: pa.DataType) -> Parsed:
    r"""``\x`` and two hex digits a byte (manual, "bytea Hex Format")."""
    rows = rows_of(text)
    present = rows.without_nulls()
    lengths = present.lengths
    if (lengths < 2).any() or (lengths & 1).any():
        raise ValueError("not the hex form of bytea")
    digits = rows.data.copy()
    if (digits[present.starts] != ord("\\")).any() or (digits[present.starts + 1] != ord("x")).any():
        raise ValueError("not the hex form of bytea")
    # The prefixes become zero bytes, so that one call decodes all rows; then those bytes are left out.
    digits[present.starts] = digits[present.starts + 1] = ord("0")
    decoded = np.frombuffer(binascii.unhexlify(digits), np.uint8)
    keep = np.ones(len(decoded), np.bool_)
    keep[present.starts >> 1] = False
    before = np.arange(len(text) + 1) if rows.valid is None else np.append(0, np.cumsum(rows.valid))
    return variable_width(decoded[keep], (rows.offsets >> 1) - before, rows.valid, target), None


def decimal(text: pa.Array, target: pa.DataType) -> Parsed:
    """``numeric(p,s)`` as decimal128: what does not fit (NaN, ±Infinity, too many digits) is unrepresentable."""
    text = as_string(text)
    parsed = _plain_decimal(text, target)
    if parsed is not None:
        return parsed, None
    fits = pc.match_substring_regex(text, _decimal_pattern(target))
    others = text.filter(pc.invert(fits))
    printed = pc.or_(pc.is_in(others, _NUMERIC_SPECIAL), pc.match_substring_regex(others, _NUMERIC))
    if pc.any(pc.invert(printed)).as_py():
        raise ValueError("not a number")
    unrepresentable = np.zeros(len(text), np.bool_)
    unrepresentable[rows_where(pc.invert(fits))] = True
    kept = select(text, fits)
    parsed = _plain_decimal(kept, target)
    return (kept.cast(target) if parsed is None else parsed), unrepresentable


def _plain_decimal(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Every value, when each is finite with exactly the declared fraction, as Postgres prints it; else None.

    Arrow's string to decimal cast wraps around silently beyond 38 digits, also when it only scales a value up.
    Hence the proof first: at most 38 digits, and a fraction that needs no scaling.
    """
    rows = rows_of(text)
    present = rows.without_nulls()
    scale = target.scale
    point = 1 if scale else 0
    shortest, longest = present.lengths.min(initial=_MAX_DIGITS), present.lengths.max(initial=0)
    if shortest <= scale + point or longest > _MAX_DIGITS + point:
        return None
    if point and (rows.data[present.ends - 1 - scale] != ord(".")).any():
        return None
    try:
        if target.precision > _INT64_DIGITS:
            return text.cast(target)
        return _int64_decimal(text, rows, present, target)
    except pa.ArrowInvalid:
        return None


def _int64_decimal(text: pa.Array, rows: Rows, present: Rows, target: pa.DataType) -> pa.Array | None:
    if target.scale:
        keep = np.ones(len(rows.data), np.bool_)
        keep[present.ends - 1 - target.scale] = False
        before = np.arange(len(text) + 1) if rows.valid is None else np.append(0, np.cumsum(rows.valid))
        text = variable_width(rows.data[keep], rows.offsets - before, rows.valid, pa.string())
    unscaled = text.cast(pa.int64()).fill_null(0).to_numpy()
    if len(unscaled) and max(-int(unscaled.min()), int(unscaled.max())) >= 10**target.precision:
        return None
    words: npt.NDArray[np.int64] = np.empty((len(unscaled), 2), np.int64)
    words[:, 0] = unscaled
    np.right_shift(unscaled, 63, out=words[:, 1])
    return pa.Array.from_buffers(target, len(unscaled), [validity_buffer(rows.valid), pa.py_buffer(words)])


def _decimal_pattern(target: pa.DataType) -> str:
    whole = target.precision - target.scale
    digits = f"[0-9]{{1,{whole}}}" if whole else "0"
    fraction = rf"(\.[0-9]{{1,{target.scale}}})?" if target.scale else ""
    return f"^-?{digits}{fraction}$"

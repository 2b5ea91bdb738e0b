"""Numbers, booleans and bytes: from a column of text to one typed array, without a loop over rows.

Each converter takes n texts (NULL where SQL says NULL) and the target type, and returns the array with the mask of the
values it could not represent (NULL there), or None when it could represent all. They raise `ValueError` on text
that Postgres cannot print.
"""

from __future__ import annotations

import binascii

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.pgoutput.value_text import (
    Mask,
    as_string,
    rows_of,
    rows_where,
    select,
    spans,
    validity_buffer,
)

Parsed = tuple[pa.Array, Mask | None]

_NUMERIC_SPECIAL = pa.array(["NaN", "Infinity", "-Infinity"])
_NUMERIC = r"^-?[0-9]+(\.[0-9]+)?$"
_MAX_DIGITS = 38


def number(text: pa.Array, target: pa.DataType) -> Parsed:
    """Integers, and floats with their NaN and ±Infinity: Arrow reads what Postgres prints."""
    return as_string(text).cast(target), None


def boolean(text: pa.Array, target: pa.DataType) -> Parsed:
    """``t`` and ``f`` (manual, "Boolean Type")."""
    rows = rows_of(text)
    true = rows.data == ord("t")
    if (rows.without_nulls().lengths != 1).any() or not (true | (rows.data == ord("f"))).all():
        raise ValueError("neither t nor f")
    bits = np.packbits(np.asarray(rows.of_all(true), np.bool_), bitorder="little")
    return pa.Array.from_buffers(target, rows.count, [validity_buffer(rows.valid), pa.py_buffer(bits)]), None


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
    decoded = np.frombuffer(binascii.unhexlify(digits.data), np.uint8)
    null = None if rows.valid is None else ~rows.valid
    starts = (rows.starts >> 1) + (1 if rows.valid is None else rows.valid)
    return spans(decoded, starts, rows.ends >> 1, np.arange(rows.count), null, target), None


def decimal(text: pa.Array, target: pa.DataType) -> Parsed:
    """``numeric(p,s)`` as decimal128: what does not fit (NaN, ±Infinity, too many digits) is unrepresentable."""
    text = as_string(text)
    parsed = _as_declared(text, target)
    if parsed is not None:
        return parsed, None
    unfit = pc.is_in(text, _NUMERIC_SPECIAL)
    parsed = _as_declared(select(text, pc.invert(unfit)), target)
    if parsed is None:
        fits = pc.match_substring_regex(text, _fitting(target))
        printed = pc.or_(unfit, pc.match_substring_regex(text, _NUMERIC))
        if pc.any(pc.invert(printed)).as_py():
            raise ValueError("not a number")
        unfit = pc.invert(fits)
        parsed = select(text, fits).cast(target)
    unrepresentable = np.zeros(len(text), np.bool_)
    unrepresentable[rows_where(unfit)] = True
    return parsed, unrepresentable if unrepresentable.any() else None


def _as_declared(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """Every value, when each is finite with exactly the declared fraction, as Postgres prints it; else None.

    Arrow's string to decimal cast wraps around silently beyond 38 digits, also when it only scales a value up.
    Hence the proof first: at most 38 digits, and a fraction that needs no scaling.
    """
    rows = rows_of(text)
    present = rows.without_nulls()
    scale, point = target.scale, int(target.scale > 0)
    lengths = present.lengths
    shortest, longest = lengths.min(initial=_MAX_DIGITS), lengths.max(initial=0)
    if shortest <= scale + point or longest > _MAX_DIGITS + point or rows.has_letters:
        return None
    if point and (rows.data[present.ends - 1 - scale] != ord(".")).any():
        return None
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        return None


def _fitting(target: pa.DataType) -> str:
    whole = target.precision - target.scale
    digits = f"[0-9]{{1,{whole}}}" if whole else "0"
    fraction = rf"(\.[0-9]{{1,{target.scale}}})?" if target.scale else ""
    return f"^-?{digits}{fraction}$"

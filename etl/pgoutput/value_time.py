"""Dates and times in ISO style: from a column of text to one typed array.

Arrow reads the years 0001 to 9999 of a whole column in one call. Only when that fails are the values it cannot read
(±infinity, BC, later years, odd offsets) found and computed one by one; the others still go through Arrow.
The converters follow the shape of `etl.pgoutput.value_scalar`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.pgoutput.value_text import Mask, as_string, fixed_width, rows_of, rows_where, select, validity
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)

Parsed = tuple[pa.Array, Mask | None]

_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000

_PLAIN_DATE: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_PLAIN_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
_PLAIN_TIMESTAMPTZ: Final = _PLAIN_TIMESTAMP[:-1] + r"[+-][0-9]{2}(:[0-9]{2})?$"

_DATE: Final = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(?P<date>\d{4,6}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"(?P<offset>[+-]\d\d(?::\d\d(?::\d\d)?)?)?(?P<era> BC)?",
    re.ASCII,
)


def date(text: pa.Array, target: pa.DataType) -> Parsed:
    """``date``: days since 1970-01-01; every date of Postgres fits, ±infinity are the sentinels."""
    text = as_string(text)
    try:
        return text.cast(target), None
    except pa.ArrowInvalid:
        infinities = (DATE_INFINITY, DATE_MINUS_INFINITY)
        days, _ = _with_specials(text.cast(pa.string()), target, _PLAIN_DATE, infinities, _days_of)
        return fixed_width(days.astype(np.int32), validity(text), target), None


def timestamp(text: pa.Array, target: pa.DataType) -> Parsed:
    """``timestamp`` and ``timestamptz``: microseconds since 1970-01-01 (UTC for the latter).

    ±infinity are the sentinels; a finite value at or beyond them (years above 294246) is unrepresentable.
    """
    text = as_string(text)
    try:
        return text.cast(target), None
    except pa.ArrowInvalid:
        plain, of = (
            (_PLAIN_TIMESTAMP, _local_micros) if target.tz is None else (_PLAIN_TIMESTAMPTZ, _utc_micros)
        )
        infinities = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)
        micros, unrepresentable = _with_specials(text, target, plain, infinities, of)
        valid = validity(text)
        if unrepresentable is not None:
            valid = ~unrepresentable if valid is None else valid & ~unrepresentable
        return fixed_width(micros, valid, target), unrepresentable


def _with_specials(
    text: pa.Array,
    target: pa.DataType,
    plain: str,
    infinities: tuple[int, int],
    value_of: Callable[[str], int | None],
) -> tuple[npt.NDArray[np.int64], Mask | None]:
    """Raw values of all rows (0 where NULL), and where `value_of` found none."""
    infinite, minus_infinite = pc.equal(text, "infinity"), pc.equal(text, "-infinity")
    regular = pc.match_substring_regex(text, plain)
    raw = pa.int32() if pa.types.is_date32(target) else pa.int64()
    values = select(text, regular).cast(target).view(raw).fill_null(0).to_numpy().astype(np.int64)
    values[rows_where(infinite)] = infinities[0]
    values[rows_where(minus_infinite)] = infinities[1]
    others = rows_where(pc.invert(pc.or_(regular, pc.or_(infinite, minus_infinite))))
    unrepresentable = np.zeros(len(values), np.bool_)
    for row, value in zip(others, text.take(pa.array(others)).to_pylist(), strict=True):
        exact = value_of(value)
        if exact is None:
            unrepresentable[row] = True
        else:
            values[row] = exact
    return values, unrepresentable if unrepresentable.any() else None


def _days_of(value: str) -> int:
    match = _DATE.fullmatch(value)
    if match is None:
        raise ValueError("not a date")
    year, month, day = (int(part) for part in match.group(1, 2, 3))
    return _days_from_civil(1 - year if match[4] else year, month, day)


def _local_micros(value: str) -> int | None:
    return _micros(value, zoned=False)


def _utc_micros(value: str) -> int | None:
    return _micros(value, zoned=True)


def _micros(value: str, *, zoned: bool) -> int | None:
    match = _TIMESTAMP.fullmatch(value)
    if match is None or (match["offset"] is not None) is not zoned:
        raise ValueError("not a timestamp")
    hour, minute, second = (int(part) for part in match.group(2, 3, 4))
    seconds = hour * 3600 + minute * 60 + second - _offset_seconds(match["offset"] or "+00")
    days = _days_of(match["date"] + (match["era"] or ""))
    micros = days * _DAY + seconds * _SECOND + int((match[5] or "0").ljust(6, "0"))
    return micros if TIMESTAMP_MINUS_INFINITY < micros < TIMESTAMP_INFINITY else None


def _offset_seconds(offset: str) -> int:
    hours, minutes, seconds, *_ = (int(part) for part in f"{offset[1:]}:00:00".split(":"))
    total = hours * 3600 + minutes * 60 + seconds
    return -total if offset[0] == "-" else total


def _days_from_civil(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 in the proleptic Gregorian calendar; `year` 0 is 1 BC.

    Years are counted from March, so that the leap day is the last of its year; 400 years have 146097 days.
    """
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError("not a date")
    if month <= 2:
        year -= 1
    day_of_year = (153 * ((month - 3) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719468


# --- time of day ----------------------------------------------------------------------------------------------

_BLANK_TIME: Final = np.uint64(int.from_bytes(b"00:00:00", "little"))
_COLONS: Final = np.uint64(0x0000FF0000FF0000)
_BLANK_FRACTION: Final = np.uint64(int.from_bytes(b"000000\0\0", "little"))
_FRACTION_DIGITS: Final = np.array([(1 << 8 * digits) - 1 for digits in range(7)], np.uint64)
_PADDING: Final = np.zeros(16, np.uint8)


def time_of_day(text: pa.Array, target: pa.DataType) -> Parsed:
    """``time``: microseconds since midnight, ``24:00:00`` included; Arrow has no parser for it.

    The eight bytes ``HH:MM:SS`` of every row are read as one 64-bit number and taken apart by arithmetic, then the
    up to six digits after the point likewise.
    """
    rows = rows_of(text)
    present = rows.without_nulls()
    lengths = present.lengths
    if len(lengths) and (lengths.min() < 8 or lengths.max() > 15 or (lengths == 9).any()):
        raise ValueError("not a time")
    padded = np.concatenate((rows.data, _PADDING))
    words = np.ndarray(len(padded) - 7, "<u8", padded, strides=(1,))
    clock = words[present.starts] ^ _BLANK_TIME
    if (clock & _COLONS).any() or (padded[present.starts + 8][lengths > 8] != ord(".")).any():
        raise ValueError("not a time")
    pairs = _pairs(clock)
    hours, minutes, seconds = pairs & 0xFF, pairs >> 24 & 0xFF, pairs >> 48 & 0xFF
    micros = ((hours * 60 + minutes) * 60 + seconds) * _SECOND
    digits = np.maximum(lengths - 9, 0)
    if digits.any():
        fraction = (words[present.starts + 9] ^ _BLANK_FRACTION) & _FRACTION_DIGITS[digits]
        pairs = _pairs(fraction)
        micros += (pairs & 0xFF) * 10_000 + (pairs >> 16 & 0xFF) * 100 + (pairs >> 32 & 0xFF)
    if ((minutes > 59) | (seconds > 59) | (micros > _DAY)).any():
        raise ValueError("not a time")
    values = np.zeros(len(text), np.int64)
    values[slice(None) if rows.valid is None else rows.valid] = micros.view(np.int64)
    return fixed_width(values, rows.valid, target), None


def _pairs(digits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Ten times each byte plus the next one, in place of the byte; every byte must be a digit's value."""
    if ((digits + 0x0606060606060606 | digits) & 0xF0F0F0F0F0F0F0F0).any():
        raise ValueError("not a digit")
    return digits * 10 + (digits >> 8)

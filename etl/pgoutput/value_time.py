"""Dates and times in ISO style: from a column of text to one typed array.

Arrow reads the years 0001 to 9999 of a whole column in one call. Only when that fails are the values it cannot read
found: ±infinity are set at once, BC, later years and odd offsets are computed one by one, the others still go through
Arrow.
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

from etl.pgoutput.value_text import Bytes, Mask, as_string, fixed_width, rows_of, rows_where, select, validity
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)

Parsed = tuple[pa.Array, Mask | None]

_DAY: Final = 86_400_000_000
_SECOND: Final = 1_000_000

_DATE: Final = re.compile(r"(\d{4,7})-(\d\d)-(\d\d)( BC)?", re.ASCII)
_TIMESTAMP: Final = re.compile(
    r"(?P<date>\d{4,6}-\d\d-\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
    r"(?P<offset>[+-]\d\d(?::\d\d(?::\d\d)?)?)?(?P<era> BC)?",
    re.ASCII,
)


def date(text: pa.Array, target: pa.DataType) -> Parsed:
    """``date``: days since 1970-01-01; every date of Postgres fits, ±infinity are the sentinels."""
    text = as_string(text)
    array = _all_plain(text, target)
    if array is not None:
        return array, None
    plain, rest = _plain(text, zoned=False)
    days = plain.cast(target).view(pa.int32()).fill_null(0).to_numpy().copy()
    _read_rest(text, rest, days, (DATE_INFINITY, DATE_MINUS_INFINITY), _days_of)
    return fixed_width(days, validity(text), target), None


def timestamp(text: pa.Array, target: pa.DataType) -> Parsed:
    """``timestamp`` and ``timestamptz``: microseconds since 1970-01-01 (UTC for the latter).

    ±infinity are the sentinels; a finite value at or beyond them (years above 294246) is unrepresentable.
    """
    text = as_string(text)
    array = _all_plain(text, target)
    if array is not None:
        return array, None
    zoned = target.tz is not None
    plain, rest = _plain(text, zoned=zoned)
    micros = plain.cast(target).view(pa.int64()).fill_null(0).to_numpy().copy()
    infinities = (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY)
    beyond = _read_rest(text, rest, micros, infinities, _utc_micros if zoned else _local_micros)
    valid = validity(text)
    if beyond is not None:
        valid = ~beyond if valid is None else valid & ~beyond
    return fixed_width(micros, valid, target), beyond


def _all_plain(text: pa.Array, target: pa.DataType) -> pa.Array | None:
    """The whole column in one call, when Arrow reads every value."""
    if rows_of(text).has_letters:
        return None
    try:
        return text.cast(target)
    except pa.ArrowInvalid:
        return None


def _plain(text: pa.Array, *, zoned: bool) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """The values Arrow reads, NULL elsewhere; and the rows of the others: not four digits of year, BC, odd offset."""
    rows = rows_of(text)
    if (rows.without_nulls().lengths < len("infinity")).any():
        raise ValueError("neither a date nor a timestamp")
    last = len(rows.data) - 1
    irregular = rows.data[np.minimum(rows.starts + 4, last)] != ord("-")
    irregular |= rows.data[np.maximum(rows.ends - 1, 0)] == ord("C")
    if zoned:
        irregular |= ~(
            _is_sign(rows.data[np.maximum(rows.ends - 3, 0)])
            | _is_sign(rows.data[np.maximum(rows.ends - 6, 0)])
        )
    if rows.valid is not None:
        irregular &= rows.valid
    return select(text, pa.array(~irregular)), np.flatnonzero(irregular)


def _is_sign(characters: Bytes) -> Mask:
    sign: Mask = (characters == ord("+")) | (characters == ord("-"))
    return sign


def _read_rest(
    text: pa.Array,
    rest: npt.NDArray[np.int64],
    values: npt.NDArray[np.signedinteger],
    infinities: tuple[int, int],
    value_of: Callable[[str], int | None],
) -> Mask | None:
    """Fill `values` at the rows `rest`; the mask of those for which `value_of` found none."""
    texts = text.take(pa.array(rest))
    infinite, minus_infinite = pc.equal(texts, "infinity"), pc.equal(texts, "-infinity")
    values[rest[rows_where(infinite)]] = infinities[0]
    values[rest[rows_where(minus_infinite)]] = infinities[1]
    finite = rows_where(pc.invert(pc.or_(infinite, minus_infinite)))
    beyond = []
    for row, value in zip(rest[finite], texts.take(pa.array(finite)).to_pylist(), strict=True):
        exact = value_of(value)
        if exact is None:
            beyond.append(row)
        else:
            values[row] = exact
    if not beyond:
        return None
    mask = np.zeros(len(values), np.bool_)
    mask[beyond] = True
    return mask


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
# Arrow has no parser for it. Eight characters of every row are read as one 64-bit number, the first in the lowest
# byte, and taken apart by arithmetic on the whole column.

Words = npt.NDArray[np.uint64]


def time_of_day(text: pa.Array, target: pa.DataType) -> Parsed:
    """``time``: microseconds since midnight, ``24:00:00`` included."""
    rows = rows_of(text)
    present = rows.without_nulls()
    lengths, starts = present.lengths, present.starts
    if not ((lengths == 8) | ((lengths > 9) & (lengths < 16))).all():
        raise ValueError("not a time")
    clock = _words(rows.data, starts) ^ _CLOCK
    pair = _pairs(clock)
    hours, minutes, seconds = pair & 0xFF, pair >> 24 & 0xFF, pair >> 48 & 0xFF
    micros = ((hours * 60 + minutes) * 60 + seconds) * _SECOND
    if lengths.max(initial=0) > 8:
        if (rows.data[starts[lengths > 8] + 8] != ord(".")).any():
            raise ValueError("not a time")
        digits = _words(rows.data, starts + 9) ^ _FRACTION
        pair = _pairs(digits & _FIRST[np.maximum(lengths - 9, 0)])
        micros += (pair & 0xFF) * 10_000 + (pair >> 16 & 0xFF) * 100 + (pair >> 32 & 0xFF)
    if ((clock & _COLONS != 0) | (minutes > 59) | (seconds > 59) | (micros > _DAY)).any():
        raise ValueError("not a time")
    return fixed_width(rows.of_all(micros.view(np.int64)), rows.valid, target), None


def _word(pattern: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(pattern, "little"))


#: Layouts to XOR with: digits at the zeros become their values, the right separators zero.
_CLOCK: Final = _word(b"00:00:00")
_FRACTION: Final = _word(b"000000\0\0")
_COLONS: Final = _word(b"\0\0\xff\0\0\xff\0\0")
#: ``_FIRST[k]`` keeps the first k characters of a word.
_FIRST: Final = np.array([(1 << 8 * kept) - 1 for kept in range(7)], np.uint64)
_PADDING: Final = np.zeros(16, np.uint8)


def _words(data: Bytes, starts: npt.NDArray[np.signedinteger]) -> Words:
    """The eight bytes at each start, zeros beyond the end of `data`."""
    padded = np.concatenate((data, _PADDING))
    words: Words = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    at_starts: Words = words[starts]
    return at_starts


def _pairs(digits: Words) -> Words:
    """Ten times each byte plus the next one. Raises `ValueError` unless every byte is 0 to 9."""
    if ((digits + 0x0606060606060606 | digits) & 0xF0F0F0F0F0F0F0F0).any():
        raise ValueError("not a digit")
    return digits * 10 + (digits >> 8)

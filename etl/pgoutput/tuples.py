"""TupleData of many rows at once: where each column's text stands, and that text as one Arrow array.

`split` walks the columns, not the rows: for column j it reads the kind and the length of all rows at their
current offsets and advances the offsets. `gather_text` lets Arrow copy the values: the offsets start, end, start,
end, … make one array over the untouched chunk, of which every second element is a value; taking those is a memory
copy a value, without an index a byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from etl.pgoutput.wire import Blame, Bools, Bytes, Int32s, Int64s, anonymous, first, words

NULL: Final = ord("n")
UNCHANGED: Final = ord("u")
TEXT: Final = ord("t")
BINARY: Final = ord("b")

_KIND_SHIFT: Final = np.uint64(56)
_LENGTH_SHIFT: Final = np.uint64(24)
_LENGTH_MASK: Final = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Text:
    r"""A column's text: `values` is a `pa.StringArray`.

    `escaped` int64: the rows whose bytes were not UTF-8 (only a database in SQL_ASCII sends them). In these, and
    only in these, every offending byte stands as ``\xNN``; the caller reports them.
    """

    values: pa.StringArray
    escaped: Int64s


@dataclass(frozen=True, slots=True)
class SplitTuples:
    """n tuples of ncols columns, not yet read: arrays of shape (ncols, n), a column contiguous.

    - `kind` uint8: `NULL`, `UNCHANGED` (a TOAST value that was not sent), `TEXT` or `BINARY`.
    - `start`, `length` int32: the value in `data`; length 0 unless it is TEXT or BINARY.
    - `next` int64 (n): the offset behind each tuple.
    """

    data: bytes
    kind: Bytes
    start: Int32s
    length: Int32s
    next: Int64s

    def __len__(self) -> int:
        return len(self.next)

    def text(self, column: int, index: Int64s | None = None) -> pa.BinaryArray:
        """The column's bytes, NULL where the kind is not TEXT; those of the tuples at `index`, NULL for -1."""
        valid = self.kind[column] == TEXT
        return gather_text(self.data, self.start[column], self.length[column], valid, index)

    def unchanged(self, column: int) -> Bools | None:
        """Mask of the rows whose value was not sent, or None when there is none."""
        mask = self.kind[column] == UNCHANGED
        return mask if mask.any() else None


def split(
    data: bytes, positions: Int64s, ends: Int64s, ncols: int, *, blame: Blame = anonymous
) -> SplitTuples:
    """Find the columns of the tuples that start at `positions` (the count of columns) and may reach to `ends`.

    Raises `DecodeError`, made by `blame`, when a tuple has not `ncols` columns, an unknown kind, or passes its
    end. What follows a tuple (`next` against `ends`) is the caller's to judge.
    """
    count = len(positions)
    word = words(data, positions)
    if ((short := ends - positions < 2 + ncols) | (other := (word >> np.uint64(48)) != ncols)).any():
        row = first(short | other)
        found = int(word[row] >> np.uint64(48))
        message = f"tuple of {found} columns, not {ncols}" if other[row] else "tuple ends too early"
        raise blame(row, int(positions[row]), message)
    kind = np.empty((ncols, count), np.uint8)
    start = np.empty((ncols, count), np.int32)
    length = np.empty((ncols, count), np.int32)
    at = positions + 2
    for column in range(ncols):
        at = _step(data, at, ends, (kind[column], start[column], length[column]), column, blame)
    return SplitTuples(data, kind, start, length, at)


def _step(
    data: bytes, at: Int64s, ends: Int64s, out: tuple[Bytes, Int32s, Int32s], column: int, blame: Blame
) -> Int64s:
    """Read one column of all tuples at `at`; return where the next one stands."""
    kind, start, length = out
    word = words(data, at)
    kind[:] = word >> _KIND_SHIFT
    word >>= _LENGTH_SHIFT
    word &= _LENGTH_MASK
    size = word.view(np.int64)
    if (kind == TEXT).all():
        begin = at + 5
    else:
        sent = _sent(kind, at, ends, column, blame)
        size *= sent
        begin = at + (sent * 4 + 1)
    after = begin + size
    if (past := after > ends).any():
        row = first(past)
        raise blame(row, int(at[row]), f"column {column}: value passes the end of its message")
    start[:] = begin
    length[:] = size
    return after


def _sent(kind: Bytes, at: Int64s, ends: Int64s, column: int, blame: Blame) -> Bools:
    """Where a length and a value follow the kind. Raises `DecodeError` for a kind that is none."""
    sent: Bools = (kind == TEXT) | (kind == BINARY)
    if (unknown := ~(sent | (kind == NULL) | (kind == UNCHANGED))).any():
        row = first(unknown)
        what = "tuple ends too early" if at[row] >= ends[row] else f"unknown kind {chr(kind[row])!r}"
        raise blame(row, int(at[row]), f"column {column}: {what}")
    return sent


def gather_text(
    data: bytes, starts: Int32s, lengths: Int32s, valid: Bools, index: Int64s | None = None
) -> pa.BinaryArray:
    """The byte strings at ``data[start:start + length]`` as one Arrow array; NULL where not `valid`.

    The ranges stand in stream order and do not overlap, as `split` leaves them. `index` picks among them, -1
    picks NULL; without it they are all taken in order.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    np.add(starts, lengths, out=offsets[1::2])
    offsets[-1] = offsets[-2] if count else 0
    whole = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if index is None:
        missing, picks = ~valid, np.arange(0, 2 * count, 2)
    else:
        missing, picks = ~valid[index] | (index < 0) if count else index < 0, 2 * index
    return whole.take(pa.array(picks, mask=missing if missing.any() else None))


def decode_text(values: pa.BinaryArray) -> Text:
    """Bytes as UTF-8 text; never fails, see `Text.escaped`."""
    try:
        return Text(values.cast(pa.string()), np.empty(0, np.int64))
    except pa.ArrowInvalid:
        return _escape(values)


def _escape(values: pa.BinaryArray) -> Text:
    texts: list[str | None] = []
    escaped: list[int] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            escaped.append(row)
            texts.append(value.decode(errors="backslashreplace"))
    return Text(pa.array(texts, pa.string()), np.array(escaped, np.int64))

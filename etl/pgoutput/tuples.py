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


@dataclass(frozen=True, slots=True)
class Text:
    """A column's text: `values` is a `pa.StringArray`.

    `escaped` int64: the rows whose bytes were not UTF-8 (only a database in SQL_ASCII sends them). In these, and
    only in these, every offending byte stands as ``\\xNN``; the caller reports them.
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

    def text(self, column: int) -> pa.BinaryArray:
        """The column's bytes, NULL where the kind is not TEXT."""
        valid = self.kind[column] == TEXT
        return gather_text(self.data, self.start[column], self.length[column], valid)

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
    kind, start, length = out
    word = words(data, at)
    kind[:] = word >> np.uint64(56)
    size = ((word >> np.uint64(24)) & np.uint64(0xFFFFFFFF)).astype(np.int64)
    sent = (kind == TEXT) | (kind == BINARY)
    unknown = ~(sent | (kind == NULL) | (kind == UNCHANGED))
    if unknown.any():
        row = first(unknown)
        what = "tuple ends too early" if at[row] >= ends[row] else f"unknown kind {chr(kind[row])!r}"
        raise blame(row, int(at[row]), f"column {column}: {what}")
    begin = at + np.where(sent, 5, 1)
    after = begin + np.where(sent, size, 0)
    if (after > ends).any():
        row = first(after > ends)
        raise blame(row, int(at[row]), f"column {column}: value passes the end of its message")
    start[:] = begin
    length[:] = after - begin
    return after


def gather_text(data: bytes, starts: Int32s, lengths: Int32s, valid: Bools) -> pa.BinaryArray:
    """The byte strings at ``data[start:start + length]`` as one Arrow array; NULL where not `valid`.

    The ranges stand in stream order and do not overlap, as `split` leaves them.
    """
    count = len(starts)
    offsets = np.empty(2 * count + 1, np.int32)
    offsets[0:-1:2] = starts
    offsets[1::2] = starts + lengths
    offsets[-1] = offsets[-2] if count else 0
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    picks = pa.array(np.arange(0, 2 * count, 2, dtype=np.int64), mask=None if valid.all() else ~valid)
    return whole.take(picks)


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

r"""TupleData of many rows at once: where each column's text stands, and that text as Arrow arrays.

`split` walks the columns, not the rows: for column j it reads kind and length of all rows at their current
offsets and advances the offsets. What it leaves, start and end of every value in stream order, is the offsets
buffer of an Arrow array over the untouched chunk, in which values and the gaps between them take turns. `gather`
has Arrow take the values out of it, column by column, in one call: a memory copy a value.

Measured for 6,000 rows of 6 columns, ns a value: this take 15, one take a column 40 (20 µs a call), a byte gather
by repeat and arange 60-300 (it grows with the bytes), a string view cast to string 28.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from etl.pgoutput.wire import Blame, Bools, Bytes, Int32s, Int64s, UInt64s, anonymous, first, reader, words

NULL: Final = ord("n")
UNCHANGED: Final = ord("u")
TEXT: Final = ord("t")
BINARY: Final = ord("b")

_KIND_SHIFT: Final = np.uint64(56)
_COUNT_SHIFT: Final = np.uint64(48)
_LENGTH_SHIFT: Final = np.uint64(24)
_LENGTH_MASK: Final = np.uint64(0xFFFFFFFF)
_NONE: Final = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class SplitTuples:
    """n tuples of ncols columns, not yet read.

    - `kind` uint8 (ncols, n): `NULL`, `UNCHANGED` (a TOAST value that was not sent), `TEXT` or `BINARY`.
    - `bounds` int32 (2 n ncols + 1): start and end of each value in `data`, row by row, equal unless it is TEXT
      or BINARY; the last one once more.
    - `next` int64 (n): the offset behind each tuple.
    """

    data: bytes
    kind: Bytes
    bounds: Int32s
    next: Int64s

    def __len__(self) -> int:
        return len(self.next)

    def starts(self, column: int) -> Int32s:
        """Where the column's values start in `data`, one a row."""
        return self._pairs()[:, column, 0]

    def lengths(self, column: int) -> Int32s:
        """How many bytes the column's values have, one a row."""
        pairs = self._pairs()
        return pairs[:, column, 1] - pairs[:, column, 0]

    def _pairs(self) -> Int32s:
        return self.bounds[:-1].reshape(len(self), len(self.kind), 2)


@dataclass(frozen=True, slots=True)
class Text:
    r"""A column's text: `values` is a `pa.StringArray`.

    `escaped` int64: the rows whose bytes were not UTF-8. Only a database in SQL_ASCII sends them, and only to a
    client that asks for SQL_ASCII: asked for UTF8, it fails at such a row for ever. In these rows, and only in
    these, every offending byte stands as ``\xNN``; the caller reports them.
    """

    values: pa.StringArray
    escaped: Int64s


def split(
    data: bytes, positions: Int64s, ends: Int64s, ncols: int, *, blame: Blame = anonymous
) -> SplitTuples:
    """Find the columns of the tuples that start at `positions` (at their count of columns).

    `positions` ascend, and no tuple may pass its own end in `ends`, which lie within `data`. Raises `DecodeError`,
    made by `blame`, when a tuple has not `ncols` columns, an unknown kind, or passes its end. What follows a tuple
    (`next` against `ends`) is the caller's to judge.
    """
    _check_width(data, positions, ends, ncols, blame)
    rows = len(positions)
    kind = np.empty((ncols, rows), np.uint8)
    bounds = np.empty(2 * rows * ncols + 1, np.int32)
    pairs = bounds[:-1].reshape(rows, ncols, 2)
    at = positions + 2
    read = reader(data, ends)
    for column in range(ncols):
        out = (kind[column], pairs[:, column])
        after = _all_text(read(at), at, ends, out)
        at = _mixed(read(at), at, ends, out, column, blame) if after is None else after
    bounds[-1] = bounds[-2] if rows * ncols else 0
    return SplitTuples(data, kind, bounds, at)


def _check_width(data: bytes, positions: Int64s, ends: Int64s, ncols: int, blame: Blame) -> None:
    """Every tuple has room for `ncols` columns and says that it has them: what is allocated next is bounded."""
    room = ends - positions
    found = words(data, positions) >> _COUNT_SHIFT
    if (wrong := (room < 2 + ncols) | (found != ncols)).any():
        row = first(wrong)
        same = room[row] < 2 or found[row] == ncols
        message = "tuple ends too early" if same else f"tuple of {found[row]} columns, not {ncols}"
        raise blame(row, int(positions[row]), message)


def _all_text(word: UInt64s, at: Int64s, ends: Int64s, out: tuple[Bytes, Int32s]) -> Int64s | None:
    """Read one column at `at` on the guess that every value is TEXT; None when one is not, or passes its end.

    Kind and length are read as one number. Less the kind 't' it is the length; another kind makes it negative or
    beyond 2³², so that the one comparison with the ends judges the kind, too.
    """
    kind, pairs = out
    begin = at + 5
    word >>= _LENGTH_SHIFT
    after = word.view(np.int64)
    after += begin
    after -= TEXT << 32
    if np.count_nonzero(word > ends.view(np.uint64)):
        return None
    kind.fill(TEXT)
    pairs[:, 0] = begin
    pairs[:, 1] = after
    return after


def _mixed(
    word: UInt64s, at: Int64s, ends: Int64s, out: tuple[Bytes, Int32s], column: int, blame: Blame
) -> Int64s:
    """Read one column at `at` whatever the kinds are; return where the next one stands."""
    kind, pairs = out
    kind[:] = word >> _KIND_SHIFT
    word >>= _LENGTH_SHIFT
    word &= _LENGTH_MASK
    sent = _sent(kind, at, ends, column, blame)
    begin = at + 1 + 4 * sent
    after = begin + word.view(np.int64) * sent
    if (past := after > ends).any():
        row = first(past)
        raise blame(row, int(at[row]), f"column {column}: value passes the end of its message")
    pairs[:, 0] = begin
    pairs[:, 1] = after
    return after


def _sent(kind: Bytes, at: Int64s, ends: Int64s, column: int, blame: Blame) -> Bools:
    """Where a length and a value follow the kind. Raises `DecodeError` for a kind that is none."""
    sent: Bools = (kind == TEXT) | (kind == BINARY)
    if (unknown := ~(sent | (kind == NULL) | (kind == UNCHANGED))).any():
        row = first(unknown)
        what = "tuple ends too early" if at[row] >= ends[row] else f"unknown kind {chr(kind[row])!r}"
        raise blame(row, int(at[row]), f"column {column}: {what}")
    return sent


def gather(tuples: SplitTuples, index: Int64s | None = None) -> tuple[Text, ...]:
    """The text of every column, NULL where its kind is not TEXT.

    `index` picks tuples, -1 picks a tuple of NULLs; without it all are taken in order. The columns are slices of
    one array and keep each other's bytes alive.
    """
    ncols, rows = tuples.kind.shape
    if not ncols or not rows:
        empty = Text(pa.nulls(rows if index is None else len(index), pa.string()), _NONE)
        return tuple(empty for _ in range(ncols))
    places = np.arange(rows) if index is None else index
    picks = places * (2 * ncols) + np.arange(0, 2 * ncols, 2)[:, None]
    missing = tuples.kind != TEXT
    if index is not None:
        missing = missing[:, index] | (index < 0)
    chunk = [None, pa.py_buffer(tuples.bounds), pa.py_buffer(tuples.data)]
    whole = pa.Array.from_buffers(pa.binary(), 2 * rows * ncols, chunk)
    taken = whole.take(pa.array(picks.ravel(), mask=missing.ravel() if missing.any() else None))
    return _decode(taken, ncols, len(places))


def _decode(taken: pa.BinaryArray, ncols: int, rows: int) -> tuple[Text, ...]:
    """Cut the values of all columns, one column after the other, into texts."""
    values = _as_utf8(taken)
    parts = [values[column * rows : (column + 1) * rows] for column in range(ncols)]
    if values.type == pa.string():
        return tuple(Text(part, _NONE) for part in parts)
    return tuple(escape(part) for part in parts)


def _as_utf8(values: pa.BinaryArray) -> pa.Array:
    """The same array as text, or unchanged when it is not all UTF-8. ASCII needs no closer look."""
    content = values.buffers()[2]
    if content is None or not content.size or np.frombuffer(content, np.int8).min() >= 0:
        return pa.Array.from_buffers(pa.string(), len(values), values.buffers())
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return values


def escape(values: pa.BinaryArray) -> Text:
    r"""Bytes as text, whatever they are: what is not UTF-8 stands as ``\xNN``, see `Text.escaped`."""
    text = _as_utf8(values)
    if text.type == pa.string():
        return Text(text, _NONE)
    texts: list[str | None] = []
    escaped: list[int] = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts.append(None if value is None else value.decode())
        except UnicodeDecodeError:
            escaped.append(row)
            texts.append(value.decode(errors="backslashreplace"))
    return Text(pa.array(texts, pa.string()), np.array(escaped, np.int64))

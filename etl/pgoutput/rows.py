"""Inserts, updates and deletes of one relation, many at once: new and old tuples, split and ready to be cast.

Layout (Postgres manual, "Logical Replication Message Formats"): Insert is ``oid 'N' tuple``; Update is ``oid
['K' | 'O' tuple] 'N' tuple``; Delete is ``oid 'K' | 'O' tuple``. 'K' is an old key image (full width, NULL outside
the identity columns), 'O' a whole old row (REPLICA IDENTITY FULL).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from etl.errors import DecodeError
from etl.pgoutput.frames import TAG_DELETE, TAG_INSERT, TAG_UPDATE, Frames
from etl.pgoutput.tuples import BINARY, UNCHANGED, SplitTuples, Text, gather, split
from etl.pgoutput.wire import Bools, Bytes, Int64s, UInt64s, first, words

SUB_NEW: Final = ord("N")
SUB_KEY: Final = ord("K")
SUB_OLD: Final = ord("O")

_ALLOWED: Final = np.zeros((256, 256), np.bool_)
_ALLOWED[TAG_INSERT, SUB_NEW] = True
_ALLOWED[TAG_UPDATE, [SUB_NEW, SUB_KEY, SUB_OLD]] = True
_ALLOWED[TAG_DELETE, [SUB_KEY, SUB_OLD]] = True


@dataclass(frozen=True, slots=True)
class TextColumns:
    """Rows of a relation, still text.

    - `texts`: one per column; NULL where the value is NULL or was not sent, and throughout a row that has no tuple.
    - `unsent` bool (ncols, rows): the value is unchanged TOAST and was not sent; None when there is none.
    """

    rows: int
    texts: tuple[Text, ...]
    unsent: Bools | None

    def __len__(self) -> int:
        return self.rows


@dataclass(frozen=True, slots=True)
class RawRows:
    """n changes of one relation in stream order.

    - `ops` uint8 (n): 'I', 'U' or 'D'. `lsn` uint64 (n): WAL start of each message.
    - `new`: the new values, n rows; a delete has none.
    - `old`: the old images that were sent, m rows, or None when there is none. `old_kind` uint8 (m): `SUB_KEY` or
      `SUB_OLD`. `old_index` int64 (n): the row in `old`, or -1.
    """

    ops: Bytes
    lsn: UInt64s
    new: TextColumns
    old: TextColumns | None
    old_kind: Bytes
    old_index: Int64s

    def __len__(self) -> int:
        return len(self.ops)

    def new_text(self, column: int) -> Text:
        """The new texts of one column, n rows."""
        return self.new.texts[column]

    def unchanged(self, column: int) -> Bools | None:
        """n flags: the new value was not sent (unchanged TOAST); None when there is none in this column."""
        if self.new.unsent is None:
            return None
        mask: Bools = self.new.unsent[column]
        return mask if mask.any() else None

    def old_text(self, column: int) -> Text:
        """The old texts of one column, m rows, those of `old_index`."""
        if self.old is None:
            return Text(pa.array([], pa.string()), np.empty(0, np.int64))
        return self.old.texts[column]


def decode_rows(frames: Frames, index: Int64s, ncols: int) -> RawRows:
    """Split the Insert, Update and Delete messages at these frames, ascending, all of one relation.

    `ncols` is the number of columns of the relation's RELATION message. Raises `DecodeError` when a message is
    not exactly one change of that width in text format.
    """
    ops, end = frames.tag[index], frames.end[index]
    at = frames.start[index] + 6
    sub = _subtags(frames, index)
    with_old = np.flatnonzero(sub != SUB_NEW)
    with_new = np.flatnonzero(ops != TAG_DELETE)
    old = None
    if len(with_old):
        old = _split(frames, index[with_old], at[with_old], ncols)
        at[with_old] = _behind_old(frames, index[with_old], old.next)
    new = _split(frames, index[with_new], at[with_new], ncols)
    at[with_new] = new.next
    if (at != end).any():
        row = first(at != end)
        raise frames.error(int(index[row]), int(at[row]), f"{end[row] - at[row]} bytes left over")
    new_index = None if len(with_new) == len(index) else _inverse(with_new, len(index))
    return RawRows(
        ops,
        frames.lsn[index],
        _columns(new, new_index),
        _columns(old) if old is not None else None,
        sub[with_old],
        _inverse(with_old, len(index)),
    )


def _columns(tuples: SplitTuples, index: Int64s | None = None) -> TextColumns:
    """The tuples' values; those at `index`, where -1 is a row without a tuple."""
    unsent: Bools = tuples.kind == UNCHANGED
    if index is not None and unsent.any():
        unsent = unsent[:, index] & (index >= 0)
    rows = len(tuples) if index is None else len(index)
    return TextColumns(rows, gather(tuples, index), unsent if unsent.any() else None)


def _subtags(frames: Frames, index: Int64s) -> Bytes:
    """'N', 'K' or 'O' of each message; raises `DecodeError` where the operation does not allow it."""
    at = frames.start[index] + 5
    sub = np.frombuffer(frames.data, np.uint8)[at]
    if (wrong := ~_ALLOWED[frames.tag[index], sub]).any():
        row = first(wrong)
        raise frames.error(int(index[row]), int(at[row]), f"unexpected tuple type {chr(sub[row])!r}")
    return sub


def _split(frames: Frames, index: Int64s, at: Int64s, ncols: int) -> SplitTuples:
    def blame(row: int, at: int, message: str) -> DecodeError:
        return frames.error(int(index[row]), at, message)

    tuples = split(frames.data, at, frames.end[index], ncols, blame=blame)
    if (binary := tuples.kind == BINARY).any():
        row = first(binary.any(axis=0))
        raise blame(row, int(at[row]), "a value is in binary format, though text was asked for")
    return tuples


def _behind_old(frames: Frames, index: Int64s, at: Int64s) -> Int64s:
    """Where the new tuples start that follow old tuples ending `at`; a delete has none and stays where it is."""
    update = np.flatnonzero(frames.tag[index] == TAG_UPDATE)
    # behind the end of its message stands no 'N': the next payload is 'w' or 'k', and the last has nothing behind
    if (missing := words(frames.data, at[update]) >> np.uint64(56) != SUB_NEW).any():
        row = update[first(missing)]
        raise frames.error(int(index[row]), int(at[row]), "no new tuple behind the old one")
    behind = at.copy()
    behind[update] += 1
    return behind


def _inverse(rows: Int64s, count: int) -> Int64s:
    """For each of `count` rows its place in `rows`, or -1."""
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return places

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
from etl.pgoutput.tuples import BINARY, SplitTuples, Text, decode_text, split
from etl.pgoutput.wire import Bools, Bytes, Int64s, UInt64s, first, words

SUB_NEW: Final = ord("N")
SUB_KEY: Final = ord("K")
SUB_OLD: Final = ord("O")

_ALLOWED: Final = np.zeros((256, 256), np.bool_)
_ALLOWED[TAG_INSERT, SUB_NEW] = True
_ALLOWED[TAG_UPDATE, [SUB_NEW, SUB_KEY, SUB_OLD]] = True
_ALLOWED[TAG_DELETE, [SUB_KEY, SUB_OLD]] = True


@dataclass(frozen=True, slots=True)
class RawRows:
    """n changes of one relation in stream order, their columns still text.

    - `ops` uint8 (n): 'I', 'U' or 'D'. `lsn` uint64 (n): WAL start of each message.
    - `new`: the new tuples, compact; `new_index` int64 (n): the row in `new`, or -1 for a delete.
    - `old`: the old tuples, compact, or None; `old_kind` uint8 (m): `SUB_KEY` or `SUB_OLD`; `old_index` int64
      (n): the row in `old`, or -1.
    """

    ops: Bytes
    lsn: UInt64s
    new: SplitTuples
    new_index: Int64s
    old: SplitTuples | None
    old_kind: Bytes
    old_index: Int64s

    def __len__(self) -> int:
        return len(self.ops)

    def new_text(self, column: int) -> Text:
        """n texts of the new tuples: NULL where the value is NULL or unchanged, and for a delete."""
        index = None if len(self.new) == len(self) else self.new_index
        return decode_text(self.new.text(column, index))

    def unchanged(self, column: int) -> Bools | None:
        """n flags: the new value was not sent (unchanged TOAST); None when there is none."""
        mask = self.new.unchanged(column)
        if mask is None or len(self.new) == len(self):
            return mask
        return (self.new_index >= 0) & mask[self.new_index]

    def old_text(self, column: int) -> Text:
        """m texts of the old tuples, compact: rows are those of `old_index`."""
        return decode_text(self.old.text(column) if self.old is not None else pa.array([], pa.binary()))

    def old_unchanged(self, column: int) -> Bools | None:
        """m flags of `old` like `unchanged`; Postgres sends none today."""
        return self.old.unchanged(column) if self.old is not None else None


def decode_rows(frames: Frames, index: Int64s, ncols: int) -> RawRows:
    """Split the Insert, Update and Delete messages at these frames, ascending, all of one relation.

    `ncols` is the number of columns of the relation's RELATION message. Raises `DecodeError` when a message is
    not exactly one change of that width in text format.
    """
    ops, start, end = frames.tag[index], frames.start[index], frames.end[index]
    sub = _subtags(frames, index)
    at = start + 6
    with_old = np.flatnonzero(sub != SUB_NEW)
    with_new = np.flatnonzero(ops != TAG_DELETE)
    old = None
    if len(with_old):
        old = _split(frames, index[with_old], at[with_old], ncols)
        at[with_old] = _behind_old(frames, index[with_old], old.next)
    if len(with_new) == len(index):
        new = _split(frames, index, at, ncols)
    else:
        new = _split(frames, index[with_new], at[with_new], ncols)
    at[with_new] = new.next
    if (at != end).any():
        row = first(at != end)
        raise frames.error(int(index[row]), int(at[row]), f"{end[row] - at[row]} bytes left over")
    return RawRows(
        ops,
        frames.lsn[index],
        new,
        _inverse(with_new, len(index)),
        old,
        sub[with_old],
        _inverse(with_old, len(index)),
    )


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
    if (binary := (tuples.kind == BINARY).any(axis=0)).any():
        row = first(binary)
        raise blame(row, int(at[row]), "a value is in binary format, though text was asked for")
    return tuples


def _behind_old(frames: Frames, index: Int64s, at: Int64s) -> Int64s:
    """Where the new tuples start that follow old tuples ending `at`; a delete has none and stays where it is."""
    update = np.flatnonzero(frames.tag[index] == TAG_UPDATE)
    marker = (words(frames.data, at[update]) >> np.uint64(56)) == SUB_NEW
    if (missing := ~marker | (at[update] >= frames.end[index[update]])).any():
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

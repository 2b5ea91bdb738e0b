"""Inserts, updates and deletes of one relation, many at once: new and old tuples, split and ready to be cast.

Layout (Postgres manual, "Logical Replication Message Formats"): Insert is ``oid 'N' tuple``; Update is ``oid
['K' | 'O' tuple] 'N' tuple``; Delete is ``oid 'K' | 'O' tuple``. 'K' is an old key image (full width, NULL outside
the identity columns), 'O' a whole old row (REPLICA IDENTITY FULL).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from etl.errors import DecodeError
from etl.pgoutput.frames import TAG_DELETE, TAG_INSERT, TAG_UPDATE, Frames
from etl.pgoutput.tuples import BINARY, SplitTuples, Text, decode_text, gather_text, split
from etl.pgoutput.wire import Bools, Bytes, Int64s, UInt64s, first

SUB_NEW: Final = ord("N")
SUB_KEY: Final = ord("K")
SUB_OLD: Final = ord("O")


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
        raise NotImplementedError

    def unchanged(self, column: int) -> Bools | None:
        """n flags: the new value was not sent (unchanged TOAST); None when there is none."""
        raise NotImplementedError

    def old_text(self, column: int) -> Text:
        """m texts of the old tuples, compact: rows are those of `old_index`."""
        raise NotImplementedError

    def old_unchanged(self, column: int) -> Bools | None:
        """m flags of `old` like `unchanged`; Postgres sends none today."""
        raise NotImplementedError


def decode_rows(frames: Frames, index: Int64s, ncols: int) -> RawRows:
    """Split the Insert, Update and Delete messages at these frames, ascending, all of one relation.

    `ncols` is the number of columns of the relation's RELATION message. Raises `DecodeError` when a message is
    not exactly one change of that width in text format.
    """
    raise NotImplementedError

"""Log positions: the 64-bit `Lsn`, the stream `Position` and the schema version key `SnapshotId`.

A position in the stream is never an LSN alone: a DDL message shares its LSN with the row after it, and
the rows of one multi-insert share one LSN. ``(commit_lsn, ordinal)`` is unique and totally ordered.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar, Self

#: Version of the rule by which ordinals are counted. It is part of every stored watermark's meaning.
#: Rule 1: inside one transaction, in the order of the stream, every Insert, Update, Delete and Truncate
#: message counts one, starting at 1, whichever table it belongs to and whether or not we own that table.
#: Relation, Type, Origin and logical messages do not count.
ORDINAL_RULE = 1

MAX_ORDINAL = 2**32 - 1
_MAX_LSN = 2**64 - 1
_LSN = re.compile(r"[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}")


class Lsn(int):
    """A byte position in the write-ahead log; an ``int`` that prints as ``X/Y`` (Postgres manual, pg_lsn type)."""

    __slots__ = ()

    def __new__(cls, value: int = 0) -> Self:
        """Raises `ValueError` outside 0 … 2⁶⁴-1."""
        if not 0 <= value <= _MAX_LSN:
            raise ValueError(f"LSN out of range: {value}")
        return super().__new__(cls, value)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the ``X/Y`` text form. Raises `ValueError` on anything else."""
        if _LSN.fullmatch(text) is None:
            raise ValueError(f"not an LSN: {text!r}")
        high, _, low = text.partition("/")
        return cls(int(high, 16) << 32 | int(low, 16))

    def __str__(self) -> str:
        return f"{self >> 32:X}/{self & 0xFFFFFFFF:X}"

    def __repr__(self) -> str:
        return f"Lsn('{self}')"


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a change stands in the stream: the commit record's LSN of its transaction, and its ordinal in it."""

    ZERO: ClassVar[Position]

    commit_lsn: Lsn
    ordinal: int

    @classmethod
    def end_of(cls, commit_lsn: Lsn) -> Position:
        """The position at or after every change of the transaction that commits at `commit_lsn`."""
        return cls(commit_lsn, MAX_ORDINAL)

    @classmethod
    def parse(cls, text: str) -> Position:
        """Read the text form that `str` writes, ``X/Y#N``. Raises `ValueError` on anything else."""
        lsn, separator, ordinal = text.partition("#")
        if not separator or not ordinal.isascii() or not ordinal.isdigit() or int(ordinal) > MAX_ORDINAL:
            raise ValueError(f"not a position: {text!r}")
        return cls(Lsn.parse(lsn), int(ordinal))

    def before(self) -> Position:
        """The greatest position below this one, within the same transaction (ordinal 0: nothing of it yet)."""
        return Position(self.commit_lsn, max(self.ordinal - 1, 0))

    def __str__(self) -> str:
        return f"{self.commit_lsn}#{self.ordinal}"


Position.ZERO = Position(Lsn(0), 0)


@dataclass(frozen=True, slots=True, order=True)
class SnapshotId:
    """The key of a schema version: ``(commit_lsn, message_lsn)`` of the DDL message; zero for the initial copy.

    Both parts are needed: message LSNs of concurrent transactions are not in commit order.
    """

    COPY: ClassVar[SnapshotId]

    commit_lsn: Lsn
    message_lsn: Lsn

    @classmethod
    def parse(cls, text: str) -> SnapshotId:
        """Read the ``X/Y:X/Y`` text form. Raises `ValueError` on anything else."""
        commit, _, message = text.partition(":")
        return cls(Lsn.parse(commit), Lsn.parse(message))

    def __str__(self) -> str:
        return f"{self.commit_lsn}:{self.message_lsn}"


SnapshotId.COPY = SnapshotId(Lsn(0), Lsn(0))

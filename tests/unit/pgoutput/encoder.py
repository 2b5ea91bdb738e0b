"""Writes what a Postgres server sends: pgoutput messages of protocol version 1, and the CopyData around them.

Written from the manual ("Logical Replication Message Formats", "Streaming Replication Protocol") and sharing
nothing with the decoder, so that a misreading there does not hide here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from etl.pgoutput.frames import Chunk

EPOCH_2000 = 946_684_800_000_000


class Unchanged:
    """A TOAST value that did not change and is not sent."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = Unchanged()


@dataclass(frozen=True)
class Binary:
    """A value in the binary format."""

    raw: bytes


Value = bytes | Unchanged | Binary | None
Row = Sequence[Value]


def _value(value: Value) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, Unchanged):
        return b"u"
    if isinstance(value, Binary):
        return b"b" + struct.pack(">I", len(value.raw)) + value.raw
    return b"t" + struct.pack(">I", len(value)) + value


def tuple_data(row: Row) -> bytes:
    return struct.pack(">H", len(row)) + b"".join(map(_value, row))


def insert(oid: int, new: Row) -> bytes:
    return struct.pack(">cIc", b"I", oid, b"N") + tuple_data(new)


def update(oid: int, new: Row, old: Row | None = None, *, old_kind: bytes = b"O") -> bytes:
    image = b"" if old is None else old_kind + tuple_data(old)
    return struct.pack(">cI", b"U", oid) + image + b"N" + tuple_data(new)


def delete(oid: int, old: Row, *, old_kind: bytes = b"K") -> bytes:
    return struct.pack(">cIc", b"D", oid, old_kind) + tuple_data(old)


def begin(final_lsn: int, timestamp: int = EPOCH_2000, xid: int = 1) -> bytes:
    return struct.pack(">cQqI", b"B", final_lsn, timestamp - EPOCH_2000, xid)


def commit(commit_lsn: int, end_lsn: int, timestamp: int = EPOCH_2000, flags: int = 0) -> bytes:
    return struct.pack(">cBQQq", b"C", flags, commit_lsn, end_lsn, timestamp - EPOCH_2000)


def _string(text: str | bytes) -> bytes:
    return (text.encode() if isinstance(text, str) else text) + b"\0"


def origin(commit_lsn: int, name: str | bytes) -> bytes:
    return struct.pack(">cQ", b"O", commit_lsn) + _string(name)


def relation(
    oid: int,
    schema: str | bytes,
    name: str | bytes,
    columns: Iterable[tuple[int, str | bytes, int, int]],
    identity: bytes = b"d",
) -> bytes:
    encoded = [
        struct.pack(">B", flags) + _string(column) + struct.pack(">Ii", type_oid, typmod)
        for flags, column, type_oid, typmod in columns
    ]
    head = struct.pack(">cI", b"R", oid) + _string(schema) + _string(name) + identity
    return head + struct.pack(">H", len(encoded)) + b"".join(encoded)


def type_name(oid: int, schema: str, name: str) -> bytes:
    return struct.pack(">cI", b"Y", oid) + _string(schema) + _string(name)


def truncate(oids: Sequence[int], *, cascade: bool = False, restart_identity: bool = False) -> bytes:
    options = cascade | restart_identity << 1
    return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), options, *oids)


def message(lsn: int, prefix: str | bytes, content: bytes, *, transactional: bool = True) -> bytes:
    head = struct.pack(">cBQ", b"M", transactional, lsn)
    return head + _string(prefix) + struct.pack(">I", len(content)) + content


def xlog(lsn: int, body: bytes, *, wal_end: int | None = None, clock: int = EPOCH_2000) -> bytes:
    """An XLogData payload around one pgoutput message."""
    return struct.pack(">cQQq", b"w", lsn, lsn if wal_end is None else wal_end, clock - EPOCH_2000) + body


def keepalive(wal_end: int, *, clock: int = EPOCH_2000, reply_requested: bool = False) -> bytes:
    return struct.pack(">cQqB", b"k", wal_end, clock - EPOCH_2000, reply_requested)


def chunk(payloads: Sequence[bytes]) -> Chunk:
    """What the transport hands over: the payloads, one behind the other."""
    return Chunk(b"".join(payloads), np.cumsum([len(payload) for payload in payloads], dtype=np.int64))

"""One chunk of the replication stream, classified: where its messages stand, their tags, LSNs and relations.

Bytes come in as the payloads of CopyData messages, many at once. `scan` looks at all of them together and reads
no message further than its tag and, where it has one, its relation; rows are read by `etl.pgoutput.rows`, the
rest by `etl.pgoutput.messages`. Everything here is protocol version 1 in text mode (Postgres manual, "Streaming
Replication Protocol" for XLogData and the keepalive, "Logical Replication Message Formats" for the tags).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from etl.errors import DecodeError
from etl.lsn import Lsn
from etl.pgoutput.wire import POSTGRES_EPOCH, Bools, Bytes, Int64s, UInt32s, UInt64s, first, words

KIND_KEEPALIVE: Final = ord("k")
KIND_XLOG_DATA: Final = ord("w")

TAG_BEGIN: Final = ord("B")
TAG_COMMIT: Final = ord("C")
TAG_DELETE: Final = ord("D")
TAG_INSERT: Final = ord("I")
TAG_MESSAGE: Final = ord("M")
TAG_ORIGIN: Final = ord("O")
TAG_RELATION: Final = ord("R")
TAG_TRUNCATE: Final = ord("T")
TAG_TYPE: Final = ord("Y")
TAG_UPDATE: Final = ord("U")

_XLOG_HEADER = 25  # 'w', WAL start, WAL end, clock
_KEEPALIVE_SIZE = 18  # 'k', WAL end, clock, reply requested

_MIN_SIZE: Final = {  # bytes of the shortest message of each tag, tag included
    TAG_BEGIN: 21,
    TAG_COMMIT: 26,
    TAG_DELETE: 8,
    TAG_INSERT: 8,
    TAG_MESSAGE: 15,
    TAG_ORIGIN: 10,
    TAG_RELATION: 10,
    TAG_TRUNCATE: 6,
    TAG_TYPE: 7,
    TAG_UPDATE: 8,
}
_IMPOSSIBLE = np.iinfo(np.int64).max


def _by_tag(default: int, values: dict[int, int]) -> Int64s:
    table = np.full(256, default, np.int64)
    table[list(values)] = list(values.values())
    return table


_MIN_SIZE_BY_TAG: Final = _by_tag(_IMPOSSIBLE, _MIN_SIZE)
_IS_ROW_BY_TAG = _by_tag(0, dict.fromkeys((TAG_INSERT, TAG_UPDATE, TAG_DELETE), 1)).astype(np.bool_)
_HAS_OID_BY_TAG = _IS_ROW_BY_TAG | _by_tag(0, {TAG_RELATION: 1}).astype(np.bool_)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Payloads of CopyData messages, one behind the other.

    `ends`: int64, the end offset of each payload in `data`, ascending; a payload starts where the one before it
    ends. `data` is below 2 GiB.
    """

    data: bytes
    ends: Int64s


@dataclass(frozen=True, slots=True)
class Frames:
    """The messages of one chunk, one entry a payload, in stream order.

    - `kind` uint8: `KIND_XLOG_DATA` or `KIND_KEEPALIVE`.
    - `tag` uint8: the pgoutput tag; 0 for a keepalive.
    - `lsn` uint64: WAL start of XLogData; for a keepalive the server's end of WAL.
    - `start`, `end` int64: the pgoutput message in `data`, tag byte included; for a keepalive its bytes after 'k'.
    - `oid` uint32: the relation of Insert, Update, Delete and Relation; else 0.
    """

    data: bytes
    kind: Bytes
    tag: Bytes
    lsn: UInt64s
    start: Int64s
    end: Int64s
    oid: UInt32s

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def is_row(self) -> Bools:
        """True for Insert, Update and Delete."""
        return _IS_ROW_BY_TAG[self.tag]

    @property
    def wal_end(self) -> UInt64s:
        """uint64 per frame: the server's end of WAL when it sent it."""
        at = np.where(self.kind == KIND_XLOG_DATA, self.start - 16, self.start)
        return words(self.data, at)

    @property
    def clock(self) -> Int64s:
        """int64 per frame: the server's clock when it sent it, µs since 1970-01-01 UTC."""
        return words(self.data, self.start + np.where(self.kind == KIND_XLOG_DATA, -8, 8)).view(np.int64) + (
            POSTGRES_EPOCH
        )

    @property
    def reply_requested(self) -> Bools:
        """True for a keepalive that asks for a status update at once."""
        asked = np.zeros(len(self), np.bool_)
        keepalive = np.flatnonzero(self.kind == KIND_KEEPALIVE)
        asked[keepalive] = np.frombuffer(self.data, np.uint8)[self.end[keepalive] - 1] != 0
        return asked

    def error(self, frame: int, at: int, message: str) -> DecodeError:
        """The error for one frame; `at` is an offset of `data`, told as an offset of the message (0 = its tag)."""
        return DecodeError(
            message,
            tag=chr(self.tag[frame]),
            offset=at - int(self.start[frame]),
            lsn=Lsn(int(self.lsn[frame])),
        )


def scan(chunk: Chunk) -> Frames:
    """Classify every payload of the chunk.

    Raises `DecodeError` for a payload that is neither XLogData nor a keepalive, for an unknown tag and for a
    message shorter than its tag allows.
    """
    data, ends = chunk.data, chunk.ends
    starts = _starts(data, ends)
    kind = np.frombuffer(data, np.uint8).take(starts)
    start = starts + _body_offset(kind, ends - starts)
    head = words(data, start)
    tag = (head >> np.uint64(56)).astype(np.uint8)
    tag[kind != KIND_XLOG_DATA] = 0
    oid = (head >> np.uint64(24)).astype(np.uint32)
    oid[~_HAS_OID_BY_TAG[tag]] = 0
    frames = Frames(data, kind, tag, words(data, starts + 1), start, ends, oid)
    if (short := (ends - start < _MIN_SIZE_BY_TAG[tag]) & (kind == KIND_XLOG_DATA)).any():
        raise _message_error(frames, first(short))
    return frames


def _body_offset(kind: Bytes, size: Int64s) -> Int64s | int:
    """How far behind the start of its payload each message stands; raises `DecodeError` for no such payload."""
    is_xlog = kind == KIND_XLOG_DATA
    if is_xlog.all() and (size > _XLOG_HEADER).all():
        return _XLOG_HEADER
    bad = np.where(is_xlog, size <= _XLOG_HEADER, (kind != KIND_KEEPALIVE) | (size != _KEEPALIVE_SIZE))
    if bad.any():
        raise _payload_error(int(kind[first(bad)]), int(size[first(bad)]))
    return np.where(is_xlog, _XLOG_HEADER, 1)


def _starts(data: bytes, ends: Int64s) -> Int64s:
    """Where each payload starts; raises `DecodeError` unless the payloads tile the chunk, none of them empty."""
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1]
    if len(data) >= 2**31 or len(data) != (int(ends[-1]) if len(ends) else 0):
        raise DecodeError("the chunk's ends do not match its bytes", tag="", offset=len(data))
    if (ends <= starts).any():
        at = first(ends <= starts)
        raise DecodeError("empty CopyData payload", tag="", offset=int(starts[at]))
    return starts


def _payload_error(kind: int, size: int) -> DecodeError:
    if kind in {KIND_XLOG_DATA, KIND_KEEPALIVE}:
        return DecodeError(f"CopyData payload of {size} bytes has the wrong size", tag=chr(kind), offset=size)
    return DecodeError("CopyData payload is neither XLogData nor a keepalive", tag=chr(kind), offset=0)


def _message_error(frames: Frames, frame: int) -> DecodeError:
    if int(frames.tag[frame]) not in _MIN_SIZE:
        return frames.error(frame, int(frames.start[frame]), "unknown message of protocol version 1")
    return frames.error(frame, int(frames.end[frame]), "message ends too early")

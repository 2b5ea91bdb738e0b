r"""The messages that are not rows: transaction bounds, relations, types, truncates, logical messages.

Layouts after the Postgres manual, "Logical Replication Message Formats", protocol version 1 (no xid inside the
messages, since nothing is streamed before its commit). Every count and length is held against the bytes that
remain before anything is allocated, and a message must end where its payload ends.

Names are UTF-8 because client_encoding is. A database in SQL_ASCII, asked for just that, may send other bytes:
they become ``\xNN`` escapes, so that a name can always be printed and compared, and `RelationMessage.escaped` says
so; who owns the table decides whether it can live with that. Timestamps are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from etl.errors import DecodeError
from etl.lsn import Lsn
from etl.pgoutput.frames import (
    TAG_BEGIN,
    TAG_COMMIT,
    TAG_MESSAGE,
    TAG_ORIGIN,
    TAG_RELATION,
    TAG_TRUNCATE,
    TAG_TYPE,
    Frames,
)
from etl.pgoutput.wire import POSTGRES_EPOCH, Int64s, UInt32s, UInt64s, first, words
from etl.schema.table import ReplicaIdentity

_U8: Final = struct.Struct(">B")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_I32: Final = struct.Struct(">i")
_U64: Final = struct.Struct(">Q")
_I64: Final = struct.Struct(">q")

_MAX_TIMESTAMP = 2**63 - 1 - POSTGRES_EPOCH
_MIN_COLUMN_SIZE = 10  # flags, an empty name with its NUL, type, typmod
_KEY_FLAG = 1
_CASCADE = 1
_RESTART_IDENTITY = 2
_TRANSACTIONAL = 1
_BEGIN_SIZE = 21
_COMMIT_SIZE = 26


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction starts. `final_lsn` is the LSN of its commit record: the commit_lsn of a `Position`."""

    final_lsn: Lsn
    timestamp: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction ends. `commit_lsn` equals its Begin's final_lsn; `end_lsn` is what may be acknowledged."""

    flags: int
    commit_lsn: Lsn
    end_lsn: Lsn
    timestamp: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction came from another node, where it committed at `commit_lsn`."""

    commit_lsn: Lsn
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as RELATION shows it; `key` tells whether it is part of the replica identity."""

    key: bool
    name: str
    type_oid: int
    typmod: int


@dataclass(frozen=True, slots=True)
class RelationMessage:
    r"""How the following rows of table `oid` are laid out: one `columns` entry per tuple column.

    `escaped` is True when a name held bytes that are not UTF-8 and shows them as ``\xNN``.
    """

    oid: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]
    escaped: bool = False


@dataclass(frozen=True, slots=True)
class TypeMessage:
    """The name of a type that is not built in."""

    oid: int
    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class TruncateMessage:
    """These tables were truncated by one statement."""

    oids: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What ``pg_logical_emit_message`` wrote; `content` is whatever bytes the caller gave, never trusted here.

    Transactional messages stand inside their transaction; others may stand anywhere, outside of Begin and Commit.
    """

    transactional: bool
    lsn: Lsn
    prefix: str
    content: bytes


ControlMessage = Begin | Commit | Origin | RelationMessage | TypeMessage | TruncateMessage | LogicalMessage


@dataclass(frozen=True, slots=True)
class Begins:
    """Many Begin messages as arrays: `final_lsn` uint64, `timestamp` int64, `xid` uint32."""

    final_lsn: UInt64s
    timestamp: Int64s
    xid: UInt32s


@dataclass(frozen=True, slots=True)
class Commits:
    """Many Commit messages as arrays: `commit_lsn` uint64, `end_lsn` uint64, `timestamp` int64."""

    commit_lsn: UInt64s
    end_lsn: UInt64s
    timestamp: Int64s


def parse_control(data: bytes, start: int, end: int, tag: int, lsn: Lsn) -> ControlMessage:
    """Parse the message that stands at ``data[start:end]``, tag byte included.

    Raises `DecodeError` when it is not exactly one such message, or the tag is not that of a control message.
    """
    reader = _Reader(data, start, end, tag, lsn)
    parser = _PARSERS.get(tag)
    if parser is None:
        raise reader.error("not a control message")
    message = parser(reader)
    reader.finish()
    return message


def control(frames: Frames, frame: int) -> ControlMessage:
    """`parse_control` for one frame."""
    return parse_control(
        frames.data,
        int(frames.start[frame]),
        int(frames.end[frame]),
        int(frames.tag[frame]),
        Lsn(int(frames.lsn[frame])),
    )


def begins(frames: Frames, index: Int64s) -> Begins:
    """All Begin messages at these frames at once. Raises `DecodeError` as `parse_control` does."""
    start = _exactly(frames, index, TAG_BEGIN, _BEGIN_SIZE)
    return Begins(
        words(frames.data, start + 1),
        _timestamps(frames, index, start + 9),
        (words(frames.data, start + 17) >> np.uint64(32)).astype(np.uint32),
    )


def commits(frames: Frames, index: Int64s) -> Commits:
    """All Commit messages at these frames at once. Raises `DecodeError` as `parse_control` does."""
    start = _exactly(frames, index, TAG_COMMIT, _COMMIT_SIZE)
    return Commits(
        words(frames.data, start + 2),
        words(frames.data, start + 10),
        _timestamps(frames, index, start + 18),
    )


def _exactly(frames: Frames, index: Int64s, tag: int, size: int) -> Int64s:
    start = frames.start[index]
    wrong = (frames.tag[index] != tag) | (frames.end[index] - start != size)
    if wrong.any():
        frame = int(index[first(wrong)])
        raise frames.error(frame, int(frames.start[frame]), f"not a {chr(tag)!r} message of {size} bytes")
    return start


def _timestamps(frames: Frames, index: Int64s, at: Int64s) -> Int64s:
    values = words(frames.data, at).view(np.int64)
    wrong = values > _MAX_TIMESTAMP
    if wrong.any():
        row = first(wrong)
        raise frames.error(int(index[row]), int(at[row]), "timestamp out of range")
    return values + POSTGRES_EPOCH


class _Reader:
    """A cursor over one message that never passes its end."""

    __slots__ = ("_at", "_data", "_end", "_lsn", "_start", "_tag", "escaped")

    def __init__(self, data: bytes, start: int, end: int, tag: int, lsn: Lsn) -> None:
        self._data = data
        self._start = start
        self._at = start + 1
        self._end = end
        self._tag = tag
        self._lsn = lsn
        self.escaped = False

    def error(self, message: str) -> DecodeError:
        return DecodeError(message, tag=chr(self._tag), offset=self._at - self._start, lsn=self._lsn)

    def finish(self) -> None:
        if self._at != self._end:
            raise self.error(f"{self._end - self._at} bytes left over")

    def number(self, layout: struct.Struct, what: str) -> int:
        if self._end - self._at < layout.size:
            raise self.error(f"{what} is cut off")
        (value,) = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return int(value)

    def count(self, layout: struct.Struct, item_size: int, what: str) -> int:
        """A number of items that can fit into what remains."""
        count = self.number(layout, what)
        if count * item_size > self._end - self._at:
            raise self.error(f"{what} {count} does not fit the message")
        return count

    def lsn(self, what: str) -> Lsn:
        return Lsn(self.number(_U64, what))

    def timestamp(self) -> int:
        value = self.number(_I64, "timestamp")
        if value > _MAX_TIMESTAMP:
            raise self.error("timestamp out of range")
        return value + POSTGRES_EPOCH

    def text(self, what: str) -> str:
        """A NUL-terminated string."""
        stop = self._data.find(b"\0", self._at, self._end)
        if stop < 0:
            raise self.error(f"{what} does not end")
        raw = self._data[self._at : stop]
        self._at = stop + 1
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.escaped = True
            return raw.decode(errors="backslashreplace")

    def schema(self) -> str:
        """A schema name; pg_catalog is sent as the empty string."""
        return self.text("schema name") or "pg_catalog"

    def oids(self, count: int) -> tuple[int, ...]:
        if count * _U32.size > self._end - self._at:
            raise self.error(f"{count} relations do not fit the message")
        return tuple(self.number(_U32, "relation oid") for _ in range(count))

    def content(self) -> bytes:
        size = self.count(_U32, 1, "content length")
        raw = self._data[self._at : self._at + size]
        self._at += size
        return raw


def _begin(reader: _Reader) -> Begin:
    return Begin(reader.lsn("final LSN"), reader.timestamp(), reader.number(_U32, "xid"))


def _commit(reader: _Reader) -> Commit:
    flags = reader.number(_U8, "flags")
    return Commit(flags, reader.lsn("commit LSN"), reader.lsn("end LSN"), reader.timestamp())


def _origin(reader: _Reader) -> Origin:
    return Origin(reader.lsn("origin LSN"), reader.text("origin name"))


def _relation(reader: _Reader) -> RelationMessage:
    oid = reader.number(_U32, "relation oid")
    schema, name = reader.schema(), reader.text("relation name")
    identity = _identity(reader)
    count = reader.count(_U16, _MIN_COLUMN_SIZE, "number of columns")
    columns = tuple(_column(reader) for _ in range(count))
    return RelationMessage(oid, schema, name, identity, columns, reader.escaped)


def _identity(reader: _Reader) -> ReplicaIdentity:
    try:
        return ReplicaIdentity(chr(reader.number(_U8, "replica identity")))
    except ValueError:
        raise reader.error("unknown replica identity") from None


def _column(reader: _Reader) -> RelationColumn:
    key = bool(reader.number(_U8, "column flags") & _KEY_FLAG)
    name = reader.text("column name")
    return RelationColumn(key, name, reader.number(_U32, "column type"), reader.number(_I32, "typmod"))


def _type(reader: _Reader) -> TypeMessage:
    return TypeMessage(reader.number(_U32, "type oid"), reader.schema(), reader.text("type name"))


def _truncate(reader: _Reader) -> TruncateMessage:
    count = reader.number(_U32, "number of relations")
    options = reader.number(_U8, "options")
    oids = reader.oids(count)
    return TruncateMessage(oids, bool(options & _CASCADE), bool(options & _RESTART_IDENTITY))


def _message(reader: _Reader) -> LogicalMessage:
    flags = reader.number(_U8, "flags")
    lsn, prefix = reader.lsn("message LSN"), reader.text("prefix")
    return LogicalMessage(bool(flags & _TRANSACTIONAL), lsn, prefix, reader.content())


_PARSERS: Final[dict[int, Callable[[_Reader], ControlMessage]]] = {
    TAG_BEGIN: _begin,
    TAG_COMMIT: _commit,
    TAG_ORIGIN: _origin,
    TAG_RELATION: _relation,
    TAG_TYPE: _type,
    TAG_TRUNCATE: _truncate,
    TAG_MESSAGE: _message,
}

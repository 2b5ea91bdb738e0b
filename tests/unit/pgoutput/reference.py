"""A second decoder, slow and plain: one message at a time, one byte string after the other.

It says what a stream means in tuples, and `Malformed` where it means nothing. `decoded` brings the decoder under
test to the same form, so that the two can be compared on streams good and bad.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from etl.pgoutput.frames import KIND_KEEPALIVE, Chunk, Frames, scan
from etl.pgoutput.messages import control
from etl.pgoutput.rows import RawRows, decode_rows

UNCHANGED = "<unchanged>"
EPOCH = 946_684_800_000_000

#: ('I' | 'U' | 'D', oid, new row, kind of old row, old row), ('k', …) for a keepalive, else tag and fields.
Meaning = tuple[Any, ...]
#: What a chunk's rows are expected to have: relation oid → number of columns. Any other relation has none.
Widths = Mapping[int, int]


class MalformedError(Exception):
    """The bytes are no such message."""


class Cursor:
    def __init__(self, raw: bytes) -> None:
        self.raw = raw

    def take(self, size: int) -> bytes:
        if size > len(self.raw):
            raise MalformedError
        taken, self.raw = self.raw[:size], self.raw[size:]
        return taken

    def number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def string(self) -> str:
        text, nul, rest = self.raw.partition(b"\0")
        if not nul:
            raise MalformedError
        self.raw = rest
        return text.decode(errors="backslashreplace")

    def time(self) -> int:
        micros = self.number(8, signed=True) + EPOCH
        if micros >= 2**63:
            raise MalformedError
        return micros

    def clock(self) -> int:
        """Informative, so any number will do; it wraps around as int64 does."""
        return (self.number(8, signed=True) + EPOCH + 2**63) % 2**64 - 2**63

    def end(self) -> None:
        if self.raw:
            raise MalformedError


def meaning(payload: bytes, widths: Widths) -> Meaning:
    """What one CopyData payload says; raises `MalformedError`."""
    cursor = Cursor(payload)
    kind = cursor.take(1)
    if kind == b"k":
        said: Meaning = ("k", cursor.number(8), cursor.clock(), cursor.number(1) != 0)
    elif kind == b"w":
        lsn, wal_end, clock = cursor.number(8), cursor.number(8), cursor.clock()
        said = (lsn, wal_end, clock, *_message(cursor, widths))
    else:
        raise MalformedError
    cursor.end()
    return said


def _message(cursor: Cursor, widths: Widths) -> Meaning:
    tag = cursor.take(1).decode("latin-1")
    if tag in "IUD":
        return (tag, *_change(tag, cursor, widths))
    if tag not in _CONTROL:
        raise MalformedError
    return (tag, *_CONTROL[tag](cursor))


def _change(tag: str, cursor: Cursor, widths: Widths) -> Meaning:
    oid = cursor.number(4)
    ncols = widths.get(oid, 0)
    kind, old = cursor.take(1), None
    if kind in {b"K", b"O"} and tag != "I":
        old = _row(cursor, ncols)
        if tag == "D":
            return (oid, None, kind, old)
        old_kind, kind = kind, cursor.take(1)
    elif tag == "D":
        raise MalformedError
    else:
        old_kind = None
    if kind != b"N":
        raise MalformedError
    return (oid, _row(cursor, ncols), old_kind, old)


def _row(cursor: Cursor, ncols: int) -> list[str | None]:
    if cursor.number(2) != ncols:
        raise MalformedError
    return [_value(cursor) for _ in range(ncols)]


def _value(cursor: Cursor) -> str | None:
    kind = cursor.take(1)
    if kind == b"t":
        return cursor.take(cursor.number(4)).decode(errors="backslashreplace")
    if kind not in {b"n", b"u"}:
        raise MalformedError
    return None if kind == b"n" else UNCHANGED


def _relation(cursor: Cursor) -> Meaning:
    head = (cursor.number(4), cursor.string() or "pg_catalog", cursor.string(), cursor.take(1))
    if head[-1] not in {b"d", b"f", b"i", b"n"}:
        raise MalformedError
    columns = [
        (bool(cursor.number(1) & 1), cursor.string(), cursor.number(4), cursor.number(4, signed=True))
        for _ in range(cursor.number(2))
    ]
    return (*head, columns)


def _truncate(cursor: Cursor) -> Meaning:
    count, options = cursor.number(4), cursor.number(1)
    if count * 4 != len(cursor.raw):
        raise MalformedError
    return (bool(options & 1), bool(options & 2), [cursor.number(4) for _ in range(count)])


def _logical(cursor: Cursor) -> Meaning:
    head = (bool(cursor.number(1) & 1), cursor.number(8), cursor.string())
    return (*head, cursor.take(cursor.number(4)))


_CONTROL = {
    "B": lambda c: (c.number(8), c.time(), c.number(4)),
    "C": lambda c: (c.number(1), c.number(8), c.number(8), c.time()),
    "O": lambda c: (c.number(8), c.string()),
    "R": _relation,
    "Y": lambda c: (c.number(4), c.string() or "pg_catalog", c.string()),
    "T": _truncate,
    "M": _logical,
}


def decoded(chunk: Chunk, widths: Widths) -> list[Meaning]:
    """What the decoder under test makes of the whole chunk, in the form of `meaning`; raises `DecodeError`."""
    frames = scan(chunk)
    said: dict[int, Meaning] = {}
    for frame in np.flatnonzero(~frames.is_row).tolist():
        said[frame] = _keepalive(frames, frame) or _plain(control(frames, frame))
    rows = np.flatnonzero(frames.is_row)
    for oid in np.unique(frames.oid[rows]).tolist():
        index = rows[frames.oid[rows] == oid]
        raw = decode_rows(frames, index, widths.get(oid, 0))
        said |= {
            frame: (oid, *change)
            for frame, change in zip(index.tolist(), _changes(raw, widths.get(oid, 0)), strict=True)
        }
    return [
        said[frame]
        if frames.kind[frame] == KIND_KEEPALIVE
        else (
            int(frames.lsn[frame]),
            int(frames.wal_end[frame]),
            int(frames.clock[frame]),
            chr(frames.tag[frame]),
            *said[frame],
        )
        for frame in range(len(frames))
    ]


def _keepalive(frames: Frames, frame: int) -> Meaning | None:
    if frames.kind[frame] != KIND_KEEPALIVE:
        return None
    return ("k", int(frames.lsn[frame]), int(frames.clock[frame]), bool(frames.reply_requested[frame]))


def _plain(message: Any) -> Meaning:
    """The fields of a control message, as plain values in the order of the wire."""
    fields = {name: getattr(message, name) for name in message.__slots__ if name != "escaped"}
    if "oids" in fields:
        return (message.cascade, message.restart_identity, list(message.oids))
    if "columns" in fields:
        fields["replica_identity"] = message.replica_identity.value.encode()
        fields["columns"] = [(c.key, c.name, c.type_oid, c.typmod) for c in message.columns]
    return tuple(int(value) if type(value).__name__ == "Lsn" else value for value in fields.values())


def _changes(raw: RawRows, ncols: int) -> list[Meaning]:
    new = _table(len(raw), ncols, raw.new_text, raw.unchanged)
    old = _table(len(raw.old_kind), ncols, raw.old_text, lambda _: None)
    images = [
        (bytes([raw.old_kind[at]]), old[at]) if at >= 0 else (None, None) for at in raw.old_index.tolist()
    ]
    return [
        (None if op == ord("D") else row, *image)
        for op, row, image in zip(raw.ops.tolist(), new, images, strict=True)
    ]


def _table(rows: int, ncols: int, text: Any, unchanged: Any) -> list[list[str | None]]:
    columns = []
    for column in range(ncols):
        values = text(column).values.to_pylist()
        mask = unchanged(column)
        columns.append(
            [UNCHANGED if mask is not None and mask[row] else value for row, value in enumerate(values)]
        )
    return [[column[row] for column in columns] for row in range(rows)]

"""What is taken out of the stream for one table, raw, to be decoded later as if it came only then.

Every frame goes with its place (`etl.pgoutput.transactions`), so that neither Begin nor Commit nor the frames of other
tables have to be kept. Frames stay as the server sent them: what is kept can be decoded under whatever schema version and
type mapping holds when it is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from etl.pgoutput.frames import TAG_MESSAGE, TAG_RELATION, TAG_TRUNCATE, Chunk, Frames, scan
from etl.pgoutput.messages import Commits, TruncateMessage, control
from etl.pgoutput.transactions import Placement
from etl.pgoutput.wire import Int64s, UInt32s, UInt64s
from etl.schema.message import MESSAGE_PREFIX

_NO_INDEX = np.empty(0, np.int64)
_PREFIX = MESSAGE_PREFIX.encode() + b"\0"
_PREFIX_OFFSET = 10  # behind tag, flags and LSN of a logical message

_SCHEMA = pa.schema(
    [
        ("frame", pa.binary()),
        ("commit_lsn", pa.uint64()),
        ("timestamp", pa.int64()),
        ("xid", pa.uint32()),
        ("ordinal", pa.int64()),
    ]
)
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="zstd")


@dataclass(frozen=True, slots=True)
class Kept:
    """Frames taken out of the stream for one table, in stream order: rows, RELATION, TRUNCATE, schema messages.

    `chunk` holds the payloads as they came. Per frame, as in `Placement`: `commit_lsn` uint64 (never falling),
    `timestamp` int64 (µs since 1970), `xid` uint32 and `ordinal` int64.
    """

    chunk: Chunk
    commit_lsn: UInt64s
    timestamp: Int64s
    xid: UInt32s
    ordinal: Int64s

    def __len__(self) -> int:
        return len(self.commit_lsn)

    @property
    def nbytes(self) -> int:
        """Bytes held in memory."""
        places = (self.chunk.ends, self.commit_lsn, self.timestamp, self.xid, self.ordinal)
        return len(self.chunk.data) + sum(array.nbytes for array in places)

    def slice(self, start: int, stop: int | None = None) -> Kept:
        """The frames from `start` up to `stop`."""
        start, stop, _ = slice(start, stop).indices(len(self))
        bounds = np.concatenate(([0], self.chunk.ends))
        first, last = int(bounds[start]), int(bounds[max(start, stop)])
        return Kept(
            Chunk(self.chunk.data[first:last], self.chunk.ends[start:stop] - first),
            self.commit_lsn[start:stop],
            self.timestamp[start:stop],
            self.xid[start:stop],
            self.ordinal[start:stop],
        )

    @property
    def relation(self) -> bytes | None:
        """The payload of the last RELATION, or None when there is none."""
        frames = scan(self.chunk)
        index = np.flatnonzero(frames.tag == TAG_RELATION)
        return _payload(frames, int(index[-1])) if len(index) else None

    def led_by(self, relation: bytes | None) -> Kept:
        """The same frames behind this RELATION, which takes the first one's place; as they are if they begin with one."""
        if relation is None or not len(self) or self.slice(0, 1).relation is not None:
            return self
        lead = Chunk(relation, np.array([len(relation)], np.int64))
        at = slice(0, 1)
        first = Kept(lead, self.commit_lsn[at], self.timestamp[at], self.xid[at], self.ordinal[at])
        return concat([first, self])


NOTHING = Kept(
    Chunk(b"", _NO_INDEX), np.empty(0, np.uint64), _NO_INDEX, np.empty(0, np.uint32), np.empty(0, np.int64)
)


def concat(parts: Sequence[Kept]) -> Kept:
    """Frames of one table that follow one another in the stream."""
    if len(parts) == 1:
        return parts[0]
    parts = [NOTHING, *parts]
    bases = np.cumsum([0, *(len(part.chunk.data) for part in parts[:-1])])
    ends = [part.chunk.ends + base for part, base in zip(parts, bases, strict=True)]
    return Kept(
        Chunk(b"".join(part.chunk.data for part in parts), np.concatenate(ends)),
        np.concatenate([part.commit_lsn for part in parts]),
        np.concatenate([part.timestamp for part in parts]),
        np.concatenate([part.xid for part in parts]),
        np.concatenate([part.ordinal for part in parts]),
    )


def placed(kept: Kept) -> tuple[Frames, Placement]:
    """What the assembler works on: no Commit, no transaction left open."""
    frames = scan(kept.chunk)
    no_commits = Commits(np.empty(0, np.uint64), np.empty(0, np.uint64), _NO_INDEX)
    return frames, Placement(
        is_row=frames.is_row,
        commit_lsn=kept.commit_lsn,
        timestamp=kept.timestamp,
        xid=kept.xid,
        ordinal=kept.ordinal,
        commit_index=_NO_INDEX,
        commits=no_commits,
        open=None,
    )


def to_bytes(kept: Kept) -> bytes:
    """One record batch as an Arrow IPC stream, compressed."""
    payloads = _payloads(kept.chunk.data, kept.chunk.ends)
    columns = [payloads, *map(pa.array, (kept.commit_lsn, kept.timestamp, kept.xid, kept.ordinal))]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _SCHEMA, options=_COMPRESSED) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))
    return bytes(sink.getvalue())


def from_bytes(buffer: bytes) -> Kept:
    """Read what `to_bytes` wrote. Raises `ValueError` for what is no such record."""
    with pa.ipc.open_stream(buffer) as reader:
        frames, *places = reader.read_next_batch().columns
    commit_lsn, timestamp, xid, ordinal = (column.to_numpy() for column in places)
    return Kept(_chunk(frames), commit_lsn, timestamp, xid, ordinal)


class Keeper:
    """Takes the frames of tables out of one run of the stream; after a reconnect make a new one.

    Postgres sends a table's RELATION once a run, so the last one of every table is remembered: what is kept begins with
    the one that holds. So are the schema messages of the transaction that is open: a table may be taken out in the midst
    of it, and its rows are decoded under the versions of their own transaction.
    """

    def __init__(self) -> None:
        self._relations: dict[int, bytes] = {}
        self._begun: set[int] = set()
        self._messages = NOTHING

    def take(self, frames: Frames, placement: Placement, tables: Collection[int]) -> dict[int, Kept]:
        """What this chunk holds for each of `tables` (oids); no entry for a table of which it holds nothing.

        Call it for every chunk of the run, also with no tables. Schema messages are kept for every table: whose they
        are only the assembler can tell.
        """
        messages = _schema_messages(frames)
        self._begun.intersection_update(tables)
        kept = {
            oid: self._begin(oid, _gather(frames, placement, index))
            for oid, index in _select(frames, messages, tables)
        }
        self._remember(frames, placement, messages)
        return kept

    def _begin(self, oid: int, kept: Kept) -> Kept:
        if oid in self._begun:
            return kept
        self._begun.add(oid)
        return concat([self._messages, kept]).led_by(self._relations.get(oid))

    def _remember(self, frames: Frames, placement: Placement, messages: Int64s) -> None:
        for at in np.flatnonzero(frames.tag == TAG_RELATION).tolist():
            self._relations[int(frames.oid[at])] = _payload(frames, at)
        commit_lsn = np.uint64(placement.open.commit_lsn if placement.open is not None else 0)
        if (self._messages.commit_lsn != commit_lsn).any():
            self._messages = NOTHING
        of_open = messages[placement.commit_lsn[messages] == commit_lsn]
        if placement.open is not None and len(of_open):
            self._messages = concat([self._messages, _gather(frames, placement, of_open)])


def _select(frames: Frames, messages: Int64s, tables: Collection[int]) -> Iterator[tuple[int, Int64s]]:
    """Table by table, the frames to keep; tables of which there are none are left out."""
    if not tables:
        return
    truncates = _truncates(frames)
    ours = np.isin(frames.oid, np.fromiter(tables, np.uint32, len(tables)))
    present = set(np.unique(frames.oid[ours]).tolist())
    for oid in tables:
        own = np.flatnonzero(frames.oid == oid) if oid in present else _NO_INDEX
        index = np.concatenate([own, messages, np.array(truncates.get(oid, ()), np.int64)])
        if len(index):
            yield oid, np.sort(index)


def _truncates(frames: Frames) -> dict[int, list[int]]:
    """The TRUNCATE frames that name each table."""
    found: dict[int, list[int]] = {}
    for at in np.flatnonzero(frames.tag == TAG_TRUNCATE).tolist():
        message = control(frames, at)
        if isinstance(message, TruncateMessage):
            for oid in set(message.oids):
                found.setdefault(oid, []).append(at)
    return found


def _schema_messages(frames: Frames) -> Int64s:
    """The logical messages under our prefix that belong to a transaction; the others change no schema."""
    data, index = frames.data, np.flatnonzero(frames.tag == TAG_MESSAGE)
    ours = [
        data[start + 1] & 1 and data.startswith(_PREFIX, start + _PREFIX_OFFSET)
        for start in frames.start[index].tolist()
    ]
    return index[np.array(ours, np.bool_)]


def _gather(frames: Frames, placement: Placement, index: Int64s) -> Kept:
    return Kept(
        _chunk(_payloads(frames.data, frames.end).take(pa.array(index))),
        placement.commit_lsn[index],
        placement.timestamp[index],
        placement.xid[index],
        placement.ordinal[index],
    )


def _payload(frames: Frames, at: int) -> bytes:
    return frames.data[int(frames.end[at - 1]) if at else 0 : int(frames.end[at])]


def _payloads(data: bytes, ends: Int64s) -> Any:
    """The payloads as an Arrow array over the same bytes; a chunk stays below 2 GiB, so int32 offsets do."""
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _chunk(payloads: Any) -> Chunk:
    """The other way: the bytes of an Arrow array that begins with its buffers."""
    _, offsets, data = payloads.buffers()
    ends = np.frombuffer(offsets, np.int32, len(payloads) + 1)[1:].astype(np.int64)
    size = int(ends[-1]) if len(ends) else 0
    return Chunk(data.slice(0, size).to_pybytes() if size else b"", ends)

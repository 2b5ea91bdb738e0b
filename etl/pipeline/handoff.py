"""The hand-off from the reader to the apply worker: a queue bounded by bytes that never blocks its producer.

A reader that blocked in `put` during a long write would stop reporting and be dropped by the server after
``wal_sender_timeout``; so it asks `wait_for_room` with a timeout, and keeps reporting while there is none.
"""

from __future__ import annotations

import threading
from collections import deque

import numpy as np

from etl.pgoutput.frames import Chunk

#: Chunks that wait are joined up to this size: the cost of decoding one is mostly per chunk, not per row, so the
#: further the apply worker is behind, the cheaper each row becomes.
_JOIN_BYTES = 1 << 20


class HandOff:
    """One producer, one consumer."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: deque[Chunk] = deque()
        self._bytes = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def nbytes(self) -> int:
        """Bytes waiting."""
        with self._changed:
            return self._bytes

    def wait_for_room(self, timeout_s: float) -> bool:
        """True as soon as another chunk may be put; False when the timeout passes first."""
        with self._changed:
            return self._changed.wait_for(lambda: self._closed or self._bytes < self._max_bytes, timeout_s)

    def put(self, chunk: Chunk) -> None:
        """Append a chunk; a single one may exceed the bound."""
        with self._changed:
            self._chunks.append(chunk)
            self._bytes += len(chunk.data)
            self._changed.notify_all()

    def get(self, timeout_s: float) -> Chunk | None:
        """What waits, joined into one chunk; None when nothing comes in time or the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._chunks), timeout_s)
            taken: list[Chunk] = []
            size = 0
            while self._chunks and (not taken or size + len(self._chunks[0].data) <= _JOIN_BYTES):
                taken.append(self._chunks.popleft())
                size += len(taken[-1].data)
            self._bytes -= size
            self._changed.notify_all()
        return _join(taken)

    def close(self) -> None:
        """Wake both sides; nothing more is put."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


def _join(chunks: list[Chunk]) -> Chunk | None:
    if len(chunks) <= 1:
        return chunks[0] if chunks else None
    offsets = np.cumsum([0, *(len(chunk.data) for chunk in chunks[:-1])])
    ends = np.concatenate([chunk.ends + offset for chunk, offset in zip(chunks, offsets, strict=True)])
    return Chunk(data=b"".join(chunk.data for chunk in chunks), ends=ends)

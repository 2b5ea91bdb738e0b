"""What Postgres may be told, and nothing more.

Theory of operation. The server discards WAL below the flushed position we report, for ever; so the position may only
move over changes that are durable at the destination *and* recorded in the store, in that order: destination, store,
server. A table that cannot be applied does not hold it up: its changes are durable in the backlog. Two inputs move it:

- `durable(end_lsn)`: everything up to the end of a transaction is durable. The caller saves it to the store first.
- `idle(lsn)`: nothing is open, pending or in flight below `lsn`, a position the server named in a keepalive. Without it
  a database whose published tables are quiet would keep WAL for ever.

All values only grow; a report is never above the store's record, so after a crash the stored progress is at or above
what the server knows, and a slot that knows more than the store was moved by somebody else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from etl.lsn import Lsn

#: Idle positions are worth a write to the store only when they free a noticeable amount of WAL: our own store lives in
#: the source by default, and acknowledging its writes with further writes would never end.
IDLE_STEP_BYTES = 64 << 10


class Acknowledger:
    """Thread-safe: the apply worker moves it, the reader reads it."""

    def __init__(self, start: Lsn, save: Callable[[Lsn], None]) -> None:
        self._lock = threading.Lock()
        self._save = save
        self._flushed = start
        self._received = start

    @property
    def flushed(self) -> Lsn:
        """The position to report as flushed."""
        with self._lock:
            return self._flushed

    @property
    def received(self) -> Lsn:
        """The position to report as written; never below `flushed`."""
        with self._lock:
            return max(self._received, self._flushed)

    def receive(self, lsn: Lsn) -> None:
        """The stream was decoded up to here."""
        with self._lock:
            self._received = max(self._received, lsn)

    def durable(self, end_lsn: Lsn) -> None:
        """Every change of every transaction that ends at or below `end_lsn` is durable, here or in a backlog."""
        self._advance(end_lsn)

    def idle(self, lsn: Lsn, *, force: bool = False) -> None:
        """Nothing is outstanding below `lsn`. Small steps wait until they add up, unless `force`."""
        if force or lsn >= self.flushed + IDLE_STEP_BYTES:
            self._advance(lsn)

    def _advance(self, lsn: Lsn) -> None:
        with self._lock:
            if lsn <= self._flushed:
                return
        # Only the apply worker advances, so nothing can pass between the check and the write.
        self._save(lsn)
        with self._lock:
            self._flushed = max(self._flushed, lsn)

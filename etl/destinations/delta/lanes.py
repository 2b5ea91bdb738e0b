"""Several tables written at once: each lane, and each copying thread, is a thread with a Spark session of its own.

What makes a commit idempotent and tells its watermark are properties of a session, so two threads never share one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from etl.destinations.delta.session import Session
from etl.errors import DestinationTableError

Item = TypeVar("Item")
Result = TypeVar("Result")


class OwnSessions:
    """A session for each thread that asks; it goes with the thread."""

    def __init__(self, new_session: Callable[[], Session]) -> None:
        self._new_session = new_session
        self._own = threading.local()

    def get(self) -> Session:
        """The calling thread's session. Raises as `Session` does."""
        session: Session | None = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = self._new_session()
        return session


class Lanes:
    """At most `count` threads; a single item is done in the calling thread, with its session."""

    def __init__(self, session: Session, own: OwnSessions, count: int) -> None:
        self._session = session
        self._own = own
        self._count = count
        self._pool: ThreadPoolExecutor | None = None

    def map(self, work: Callable[[Session, Item], Result], items: Sequence[Item]) -> list[Result]:
        """The results of all items in their order, or an error once every item has ended."""
        if len(items) < 2 or self._count < 2:
            return [work(self._session, item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="delta-writer")
        futures = [self._pool.submit(self._in_lane, work, item) for item in items]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            # the fault of one table is told only when nothing worse happened to another
            raise next((error for error in errors if not isinstance(error, DestinationTableError)), errors[0])
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the threads; what runs is waited for."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _in_lane(self, work: Callable[[Session, Item], Result], item: Item) -> Result:
        return work(self._own.get(), item)

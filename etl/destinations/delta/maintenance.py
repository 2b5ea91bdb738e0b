"""Upkeep of tables that grow by small commits: compaction and the removal of files that no kept version needs.

It runs beside the stream, one table at a time, in a session of its own. Compaction changes no row and never makes a
MERGE fail; when it loses against one itself, the next round does it. Nothing here can fail the pipeline.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from etl.destinations.base import DestinationTable
from etl.destinations.delta.config import Maintenance
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.places import Places
from etl.destinations.delta.session import Session
from etl.destinations.delta.stamp import Stamp
from etl.errors import DestinationError

_log = structlog.get_logger()
_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class _Task:
    """What to do with a table, by its name; `stamp` is what the commit says."""

    name: str
    statement: str
    stamp: Stamp


class Upkeep:
    """Counts commits and hands out work to one thread. The thread starts with the first task."""

    def __init__(
        self,
        settings: Maintenance,
        places: Places,
        housekeeping: Housekeeping,
        new_session: Callable[[], Session],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock` is seconds since 1970: when tables were last vacuumed is kept over restarts."""
        self._settings = settings
        self._places = places
        self._housekeeping = housekeeping
        self._new_session = new_session
        self._clock = clock
        self._commits: Counter[int] = Counter()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._vacuum_due_at: float | None = None

    def committed(self, table: DestinationTable, stamp: Stamp) -> bool:
        """A commit reached a table; True when the table's watermark should be kept as a property too.

        History is not for ever, and compaction is when it grows most.
        """
        self._commits[table.oid] += 1
        limit = self._settings.optimize_commits
        if not limit or self._commits[table.oid] < limit:
            self._vacuum_when_due(stamp)
            return False
        self._commits[table.oid] = 0
        self._put(_Task(table.name, "OPTIMIZE {}", stamp))
        return True

    def close(self) -> None:
        """Take no more work; what runs is left to end by itself."""
        if self._thread is not None:
            self._tasks.put(None)
            self._thread = None

    def wait(self) -> None:
        """Until everything handed out so far is done."""
        thread = self._thread
        self.close()
        if thread is not None:
            thread.join()

    def _vacuum_when_due(self, stamp: Stamp) -> None:
        period = self._settings.vacuum_hours * _HOUR_S
        if not period:
            return
        now = self._clock()
        if self._vacuum_due_at is None:
            last = self._housekeeping.last_vacuum()
            self._vacuum_due_at = now + period if last is None else last + period
            if last is None:
                self._housekeeping.set_last_vacuum(now)
        if now < self._vacuum_due_at:
            return
        self._vacuum_due_at = now + period
        self._housekeeping.set_last_vacuum(now)
        for table in self._housekeeping.tables():
            statement = f"VACUUM {{}} RETAIN {self._settings.retention_hours:d} HOURS"
            self._put(_Task(table.name, statement, stamp))

    def _put(self, task: _Task) -> None:
        self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._work, args=(self._tasks,), name="delta-upkeep", daemon=True
            )
            self._thread.start()

    def _work(self, tasks: queue.SimpleQueue[_Task | None]) -> None:
        session: Session | None = None
        while (task := tasks.get()) is not None:
            started = time.monotonic()
            try:
                session = session or self._new_session()
                session.commit(
                    task.statement.format(self._places.table(task.name).sql), task.stamp, task.name
                )
            except DestinationError as error:
                session = None
                _log.warning(
                    "upkeep_failed", table=task.name, what=task.statement.split()[0], error=error.message
                )
                continue
            _log.info(
                "upkeep_done",
                table=task.name,
                what=task.statement.split()[0].lower(),
                duration_s=round(time.monotonic() - started, 3),
            )

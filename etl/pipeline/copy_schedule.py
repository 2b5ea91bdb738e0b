"""Which part of which table a copying thread takes next. Holds no connection and does no I/O."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from etl.lsn import Lsn
from etl.schema.table import ReplicatedTableSchema
from etl.source.copy_plan import CopyRange
from etl.source.publication import PublishedTable


@dataclass(slots=True)
class TableCopy:
    """A table that is being copied: what is known of it once it is planned, and how far it is.

    `reading`: its tasks that are not accomplished; `busy`: the threads that are at it, also after it has ended.
    """

    table: PublishedTable
    schema: ReplicatedTableSchema | None = None
    waiting: deque[tuple[CopyRange, ...]] = field(default_factory=deque)
    reading: int = 0
    busy: int = 0
    rows: int = 0
    ended: bool = False

    @property
    def is_read(self) -> bool:
        """True when every range is at the destination."""
        return self.schema is not None and not self.waiting and not self.reading


@dataclass(frozen=True, slots=True)
class PlanTable:
    """Describe the table, create it at the destination, and divide it into ranges."""

    copy: TableCopy


@dataclass(frozen=True, slots=True)
class ReadShare:
    """Copy ranges of the table that stand side by side in its plan, as of `schema`."""

    copy: TableCopy
    schema: ReplicatedTableSchema
    parts: tuple[CopyRange, ...]


Task = PlanTable | ReadShare


class CopySchedule:
    """Shared by the threads of one round. Tables begun are finished before others are begun."""

    def __init__(self, tables: list[PublishedTable], *, per_table: int, share: int = 1) -> None:
        """`per_table`: how many threads may be at one table; `share`: of how many ranges each takes at once."""
        self._unplanned = deque(TableCopy(table) for table in tables)
        self._copies = list(self._unplanned)
        self._per_table = per_table
        self._share = share
        self._stopped = False
        self._changed = threading.Condition()

    def take(self) -> Task | None:
        """The next task, waited for while others may still make some; None when nothing more will come."""
        with self._changed:
            while True:
                if self._stopped or all(copy.ended for copy in self._copies):
                    return None
                task = self._next()
                if task is not None:
                    task.copy.busy += 1
                    return task
                self._changed.wait()

    def leave(self, copy: TableCopy) -> None:
        """The thread that took a task of the table touches it no more."""
        with self._changed:
            copy.busy -= 1

    def is_busy(self, oid: int) -> bool:
        """True while a thread is at the table, be it dropped or not."""
        with self._changed:
            return any(copy.busy for copy in self._copies if copy.table.oid == oid)

    def busy(self) -> list[int]:
        """The oids of the tables that a thread is at."""
        with self._changed:
            return [copy.table.oid for copy in self._copies if copy.busy]

    def planned(self, copy: TableCopy, schema: ReplicatedTableSchema, ranges: tuple[CopyRange, ...]) -> int:
        """The table can be read; returns how many shares wait now, in all tables."""
        with self._changed:
            copy.schema, copy.reading = schema, copy.reading - 1
            firsts = range(0, len(ranges), self._share)
            copy.waiting.extend(ranges[first : first + self._share] for first in firsts)
            self._changed.notify_all()
            return sum(len(each.waiting) for each in self._copies)

    def read(self, copy: TableCopy, rows: int) -> bool:
        """A share with `rows` rows is at the destination; True when it was the table's last."""
        with self._changed:
            copy.reading -= 1
            copy.rows += rows
            self._changed.notify_all()
            return copy.is_read and not copy.ended

    def end(self, copy: TableCopy) -> bool:
        """Nothing more is to be done for the table, for better or worse; False when that was known."""
        with self._changed:
            first, copy.ended = not copy.ended, True
            copy.waiting.clear()
            self._changed.notify_all()
            return first

    def unfinished(self) -> list[TableCopy]:
        """The tables that have not ended."""
        with self._changed:
            return [copy for copy in self._copies if not copy.ended]

    def stop(self) -> None:
        """No more tasks."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _next(self) -> Task | None:
        for copy in self._copies:
            if copy.schema is not None and copy.waiting and copy.reading < self._per_table:
                copy.reading += 1
                return ReadShare(copy, copy.schema, copy.waiting.popleft())
        while self._unplanned:
            copy = self._unplanned.popleft()
            if not copy.ended:
                copy.reading += 1
                return PlanTable(copy)
        return None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a round reads under: importable while whoever exported it lives. Transactions below `lsn` are in it."""

    name: str
    lsn: Lsn

"""The commits of one run: each carries its table's watermark, and Delta itself leaves out what a newer run ruled out.

Before the first write of a run to a table the run *claims* it with an empty commit. A commit of an earlier run that is
still under way then fails against it (both write the table's transaction version), so the watermark that is read after
the claim is the last word of all earlier runs.
"""

# ruff: noqa: S608 -- names went through `quote`
from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import TypeVar

from etl.destinations.base import DestinationTable
from etl.destinations.delta.dialect import literal
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.places import Places
from etl.destinations.delta.session import Row, Session
from etl.destinations.delta.stamp import Stamp, read_history
from etl.errors import DestinationUnavailableError
from etl.lsn import Position

Result = TypeVar("Result")

_WATERMARK = "etl.watermark"
#: How much of a table's history is read at first; more only when others made all of it.
_HISTORY = 20


class Commits:
    """Watermarks and commits of the tables of one pipeline. Thread-safe: of one table one commit is made at a time.

    What is known is kept by name: a table and the copy beside it have one oid. A commit whose transaction version is not
    above the last is left out by Delta, hence the versions of a table must come in their order.
    """

    def __init__(
        self, session: Session, housekeeping: Housekeeping, places: Places, pipeline_id: int
    ) -> None:
        self._session = session
        self._housekeeping = housekeeping
        self._places = places
        self._pipeline_id = pipeline_id
        self._known: dict[str, Position | None] = {}
        self._claimed: set[str] = set()
        self._sequence = count(1)
        #: Guards the two above and the one below, never held while Spark works.
        self._lock = threading.Lock()
        self._writing: dict[str, threading.Lock] = {}

    def watermarks(self) -> dict[int, Position]:
        """Table oid → last position applied, of every table with a complete copy."""
        found = {each.oid: self.watermark(each.oid, each.name) for each in self._housekeeping.tables()}
        return {oid: position for oid, position in found.items() if position is not None}

    def watermark(self, oid: int, name: str) -> Position | None:
        """The last position applied of the table of this name, None when it has no complete copy."""
        with self._lock:
            if name in self._known:
                return self._known[name]
        position = self._read(oid, name)
        with self._lock:
            # a commit made meanwhile knows better
            return self._known.setdefault(name, position)

    def stamp(
        self, table: DestinationTable, watermark: Position | None = None, *, created: bool = False
    ) -> Stamp:
        """What a commit to a table says."""
        owner = self._housekeeping.owner
        return Stamp(self._pipeline_id, table.oid, owner.epoch, owner.run, watermark, created)

    def created(self, table: DestinationTable) -> None:
        """A table was created anew: it has no watermark, and earlier claims are as good as ever."""
        with self._lock:
            self._known[table.name] = None

    def forget(self, table: DestinationTable) -> None:
        """A table is gone."""
        with self._lock:
            self._known.pop(table.name, None)
            self._claimed.discard(table.name)

    def write(
        self, session: Session, table: DestinationTable, sql: str, watermark: Position | None
    ) -> list[Row]:
        """Execute a statement that writes rows of a table, with the watermark in the same commit; durable on return.

        `session` is the calling thread's own. Raises `DestinationFencedError` when another run took over, be it while the statement ran.
        """
        return self._write(
            session,
            table,
            watermark,
            lambda version: session.commit(sql, self.stamp(table, watermark), table.name, version=version),
        )

    def replace(
        self, session: Session, table: DestinationTable, source: DestinationTable, watermark: Position
    ) -> None:
        """Put another table's rows and schema in the place of those of `table`, with the watermark, in one commit."""
        place, rows = self._places.table(table.name), self._places.table(source.name)
        stamp = self.stamp(table, watermark, created=True)
        self._write(
            session,
            table,
            watermark,
            lambda version: session.replace(place, rows, stamp, table.name, version=version),
        )

    def _write(
        self,
        session: Session,
        table: DestinationTable,
        watermark: Position | None,
        commit: Callable[[int], Result],
    ) -> Result:
        with self._one_at_a_time(table):
            self._claim(session, table)
            version = self._version(next(self._sequence))
            if watermark is not None:
                with self._lock:
                    self._known.pop(table.name, None)
            result = commit(version)
            self._housekeeping.fence()
            if watermark is not None:
                with self._lock:
                    self._known[table.name] = watermark
        return result

    def _one_at_a_time(self, table: DestinationTable) -> threading.Lock:
        with self._lock:
            return self._writing.setdefault(table.name, threading.Lock())

    def set_watermark(self, session: Session, table: DestinationTable, watermark: Position) -> None:
        """Set a watermark alone. As a property it outlives the history of the table."""
        with self._lock:
            self._known.pop(table.name, None)
        session.commit(
            f"ALTER TABLE {self._places.table(table.name).sql}"
            f" SET TBLPROPERTIES ({literal(_WATERMARK)} = {literal(str(watermark))})",
            self.stamp(table, watermark),
            table.name,
        )
        with self._lock:
            self._known[table.name] = watermark

    def _claim(self, session: Session, table: DestinationTable) -> None:
        with self._lock:
            if table.name in self._claimed:
                return
            was_told = table.name in self._known
            before = self._known.get(table.name)
        place = self._places.table(table.name).sql
        session.commit(
            f"INSERT INTO {place} SELECT * FROM {place} WHERE false",
            self.stamp(table),
            table.name,
            version=self._version(0),
        )
        now = self._read(table.oid, table.name)
        with self._lock:
            self._claimed.add(table.name)
            self._known[table.name] = now
        if was_told and now != before:
            raise DestinationUnavailableError(
                f"a write of an earlier run reached table {table.name} after this one had begun",
                hint="the pipeline goes on from there by itself",
            )

    def _version(self, sequence: int) -> int:
        return self._housekeeping.owner.run << 32 | sequence

    def _read(self, oid: int, name: str) -> Position | None:
        place = self._places.table(name).sql
        if self._session.schema(place) is None:
            return None
        for limit in (_HISTORY, None):
            history = read_history(self._session.user_metadata(place, limit), self._pipeline_id, oid)
            if history.is_complete:
                return history.watermark
        properties: dict[str, str] = dict(self._session.rows(f"SHOW TBLPROPERTIES {place}"))
        stored = properties.get(_WATERMARK)
        return Position.parse(stored) if stored is not None else None

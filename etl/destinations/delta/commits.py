"""The commits of one run: each carries its table's watermark, and Delta itself leaves out what a newer run ruled out.

Before the first write of a run to a table the run *claims* it with an empty commit. A commit of an earlier run that is
still under way then fails against it (both write the table's transaction version), so the watermark that is read after
the claim is the last word of all earlier runs.
"""

# ruff: noqa: S608 -- names went through `quote`
from __future__ import annotations

from itertools import count

from etl.destinations.base import DestinationTable
from etl.destinations.delta.dialect import literal
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.places import Places
from etl.destinations.delta.session import Row, Session
from etl.destinations.delta.stamp import Stamp, read_history
from etl.errors import DestinationUnavailableError
from etl.lsn import Position

_WATERMARK = "etl.watermark"
#: How much of a table's history is read at first; more only when others made all of it.
_HISTORY = 20


class Commits:
    """Watermarks and commits of the tables of one pipeline; threads may share it as long as no two write one table."""

    def __init__(
        self, session: Session, housekeeping: Housekeeping, places: Places, pipeline_id: int
    ) -> None:
        self._session = session
        self._housekeeping = housekeeping
        self._places = places
        self._pipeline_id = pipeline_id
        self._known: dict[int, Position | None] = {}
        self._claimed: set[int] = set()
        self._sequence = count(1)

    def watermarks(self) -> dict[int, Position]:
        """Table oid → last position applied, of every table with a complete copy."""
        for table in self._housekeeping.tables():
            if table.oid not in self._known:
                self._known[table.oid] = self._read(table.oid, table.name)
        return {oid: position for oid, position in self._known.items() if position is not None}

    def stamp(
        self, table: DestinationTable, watermark: Position | None = None, *, created: bool = False
    ) -> Stamp:
        """What a commit to a table says."""
        owner = self._housekeeping.owner
        return Stamp(self._pipeline_id, table.oid, owner.epoch, owner.run, watermark, created)

    def created(self, table: DestinationTable) -> None:
        """A table was created anew: it has no watermark, and earlier claims are as good as ever."""
        self._known[table.oid] = None

    def forget(self, table: DestinationTable) -> None:
        """A table is gone."""
        self._known.pop(table.oid, None)
        self._claimed.discard(table.oid)

    def write(
        self, session: Session, table: DestinationTable, sql: str, watermark: Position | None
    ) -> list[Row]:
        """Execute a statement that writes rows of a table, with the watermark in the same commit; durable on return.

        `session` is the calling thread's own. Raises `DestinationFencedError` when another run took over, be it while the statement ran.
        """
        self._claim(session, table)
        version = self._version(next(self._sequence))
        known = self._known.pop(table.oid, None)
        rows = session.commit(sql, self.stamp(table, watermark), table.name, version=version)
        self._housekeeping.fence()
        self._known[table.oid] = known if watermark is None else watermark
        return rows

    def set_watermark(self, table: DestinationTable, watermark: Position) -> None:
        """Set a watermark alone. As a property it outlives the history of the table."""
        self._known.pop(table.oid, None)
        self._session.commit(
            f"ALTER TABLE {self._places.table(table.name).sql}"
            f" SET TBLPROPERTIES ({literal(_WATERMARK)} = {literal(str(watermark))})",
            self.stamp(table, watermark),
            table.name,
        )
        self._known[table.oid] = watermark

    def _claim(self, session: Session, table: DestinationTable) -> None:
        if table.oid in self._claimed:
            return
        was_told = table.oid in self._known
        before = self._known.get(table.oid)
        place = self._places.table(table.name).sql
        session.commit(
            f"INSERT INTO {place} SELECT * FROM {place} WHERE false",
            self.stamp(table),
            table.name,
            version=self._version(0),
        )
        self._claimed.add(table.oid)
        now = self._known[table.oid] = self._read(table.oid, table.name)
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

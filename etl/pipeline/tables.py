"""The tables of a pipeline and where each stands; every move goes through the transition table and the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from etl.errors import EtlError
from etl.lsn import Lsn
from etl.pipeline.states import LIVE, SYNCING, TableEvent, transition
from etl.store.base import NEVER_RECORDED, Shown, StateStore, TableState, TableStateRecord
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table and its present state."""

    name: str
    record: TableStateRecord


class TableBook:
    """Used by the pipeline's main thread only. `errors` holds why the tables failed that are ERRORED now."""

    def __init__(self, store: StateStore, metrics: Metrics, pulse: Pulse) -> None:
        self._store = store
        self._metrics = metrics
        self._pulse = pulse
        self._entries: dict[int, TableEntry] = {}
        self._leaving: dict[int, Lsn] = {}
        self._live_from: dict[int, Lsn] = {}
        self.errors: dict[int, EtlError] = {}

    # --- who is there -------------------------------------------------------------------------------------------

    def load(self, names: Mapping[int, str]) -> None:
        """Take up what the store knows; `names` are ``schema.name`` by oid."""
        for oid, record in self._store.table_states().items():
            self._enter(oid, names.get(oid, f"oid {oid}"), record)

    def add(self, oid: int, name: str, shown: Shown | None = None) -> None:
        """A table that was published is new here; one that was leaving stays."""
        self._leaving.pop(oid, None)
        if oid not in self._entries:
            self._record(oid, name, TableStateRecord(oid, TableState.INIT, shown=shown))
            _log.info("table_added", table=name)

    def rename(self, oid: int, name: str) -> None:
        """The table has another name at the source now."""
        entry = self._entries[oid]
        if entry.name != name:
            self._metrics.table_gone(entry.name)
            self._enter(oid, name, entry.record)

    def show(self, oid: int, shown: Shown) -> None:
        """Remember what the publication shows of the table."""
        entry = self._entries[oid]
        if entry.record.shown != shown:
            self._keep(oid, entry.name, replace(entry.record, shown=shown))

    def leave(self, oid: int, now: Lsn) -> None:
        """The table left the publication: the stream still has what it changed before `now`.

        It is forgotten once the stream has passed `now`; its destination table stays as it is.
        """
        if self._entries[oid].record.state in LIVE:
            self._leaving.setdefault(oid, now)
        else:
            self.forget(oid)

    def forget(self, oid: int) -> None:
        """The pipeline has nothing to do with the table any more."""
        self._store.forget_table(oid)
        entry = self._entries.pop(oid)
        self._leaving.pop(oid, None)
        self._live_from.pop(oid, None)
        self.errors.pop(oid, None)
        self._metrics.table_gone(entry.name)
        self._pulse.forget(oid)
        self._pulse.tables_changed()
        _log.info("table_left", table=entry.name)

    def __contains__(self, oid: int) -> bool:
        return oid in self._entries

    def oids(self) -> list[int]:
        """Every table."""
        return list(self._entries)

    def name(self, oid: int) -> str:
        """``schema.name``, or the oid of a table that is not known."""
        return self._entries[oid].name if oid in self._entries else f"oid {oid}"

    def record(self, oid: int) -> TableStateRecord:
        """Where the table stands."""
        return self._entries[oid].record

    def state(self, oid: int) -> TableState:
        """The table's present state."""
        return self._entries[oid].record.state

    def in_state(self, *states: TableState) -> list[int]:
        """The tables in one of these states."""
        return [oid for oid, entry in self._entries.items() if entry.record.state in states]

    def is_leaving(self, oid: int) -> bool:
        """True when the table left the publication and the stream has not passed that point."""
        return oid in self._leaving

    def live(self) -> dict[int, Lsn]:
        """Tables that the stream owns: oid → the LSN below which transactions are in the copy."""
        return {
            oid: entry.record.sync_lsn or Lsn(0)
            for oid, entry in self._entries.items()
            if entry.record.state in LIVE
        }

    @property
    def is_syncing(self) -> bool:
        """True while a table is on its way to the stream."""
        return any(entry.record.state in SYNCING for entry in self._entries.values())

    @property
    def is_handing_over(self) -> bool:
        """True while the point where a table went live is not durable."""
        return any(entry.record.state is TableState.SYNC_DONE for entry in self._entries.values())

    # --- moves --------------------------------------------------------------------------------------------------

    def move(
        self, oid: int, event: TableEvent, *, sync_lsn: Lsn | None = None, backlog: str | None = None
    ) -> None:
        """Take a step and record it. `backlog`: the identity of the one that keeps its changes from here on."""
        record = self._entries[oid].record
        state = transition(record.state, event)
        self.errors.pop(oid, None)
        if event is TableEvent.RESET:
            moved = TableStateRecord(oid, state, attempts=record.attempts, shown=record.shown)
        else:
            copy_end = sync_lsn or record.sync_lsn
            keeps_none = state in LIVE or (state is TableState.PAUSED and copy_end is None)
            moved = TableStateRecord(
                oid,
                state,
                sync_lsn=copy_end,
                backlog=None if keeps_none else backlog or record.backlog,
                # not before: what fails as soon as it is live must not be tried again and again without a pause
                attempts=0 if state is TableState.READY else record.attempts,
                shown=record.shown,
            )
        self._record(oid, self._entries[oid].name, moved)

    def fail(
        self, oid: int, error: EtlError, *, backlog: str | None = None, retry_at: datetime | None = None
    ) -> None:
        """Set the table aside with the reason and the way out."""
        entry = self._entries[oid]
        before = entry.record
        self.errors[oid] = error
        self._metrics.error("table", error.kind)
        _log.error(
            "table_failed", table=entry.name, error_kind=error.kind, error=error.message, hint=error.hint
        )
        record = TableStateRecord(
            oid,
            transition(before.state, TableEvent.FAILED),
            sync_lsn=before.sync_lsn,
            reason=error.message,
            solution=error.hint,
            retry=error.retry,
            backlog=backlog or before.backlog,
            retry_at=retry_at,
            attempts=before.attempts + 1,
            shown=before.shown,
        )
        self._record(oid, entry.name, record)

    def lose_copy(self, oid: int, error: EtlError, *, retry_at: datetime | None = None) -> None:
        """Changes of the table are missing: it has failed, and only a new copy helps."""
        entry = self._entries[oid]
        self._entries[oid] = TableEntry(entry.name, replace(entry.record, sync_lsn=None, backlog=None))
        self.fail(oid, error, retry_at=retry_at)

    def without_copy(self, oid: int) -> None:
        """Changes of a paused table were given up: it has to be copied anew when it goes on."""
        entry = self._entries[oid]
        self._record(oid, entry.name, replace(entry.record, sync_lsn=None, backlog=None))

    def goes_live(self, oid: int, position: Lsn) -> None:
        """The stream owns the table from `position` on."""
        self.move(oid, TableEvent.STREAM_OWNS)
        self._live_from[oid] = position

    def passed(self, flushed: Lsn) -> None:
        """The durable position is at `flushed`: tables that went live before are READY, those that left are forgotten."""
        for oid in self.in_state(TableState.SYNC_DONE):
            if flushed >= self._live_from.get(oid, self.record(oid).sync_lsn or Lsn(0)):
                self.move(oid, TableEvent.STREAM_PASSED)
                self._live_from.pop(oid, None)
        for oid in [oid for oid, left_at in self._leaving.items() if flushed >= left_at]:
            self.forget(oid)

    def _enter(self, oid: int, name: str, record: TableStateRecord) -> None:
        self._entries[oid] = TableEntry(name, record)
        self._metrics.table_state(name, record.state)
        self._pulse.tables_changed()

    def _keep(self, oid: int, name: str, record: TableStateRecord) -> None:
        if record.state not in NEVER_RECORDED:
            self._store.set_table_state(record)
        self._enter(oid, name, record)

    def _record(self, oid: int, name: str, record: TableStateRecord) -> None:
        self._keep(oid, name, record)
        _log.info("table_state_changed", table=name, state=record.state.value)

"""The tables of a pipeline and where each stands; every move goes through the transition table and the store."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import structlog

from etl.errors import EtlError
from etl.lsn import Lsn
from etl.pipeline.states import NEEDS_COPY, NOT_STREAMED, TableEvent, transition
from etl.store.base import StateStore, TableState, TableStateRecord
from etl.telemetry.metrics import Metrics

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table and its present state."""

    name: str
    record: TableStateRecord


class TableBook:
    """Used by the pipeline's main thread only."""

    def __init__(self, store: StateStore, metrics: Metrics) -> None:
        self._store = store
        self._metrics = metrics
        self._entries: dict[int, TableEntry] = {}
        self._before_stream: set[int] = set()
        self._leaving: dict[int, Lsn] = {}
        self.errors: dict[int, EtlError] = {}

    def load(self, published: Mapping[int, str]) -> list[int]:
        """Take up the published tables (oid → name); returns the oids that left the publication.

        A table that failed in an earlier run is tried again: from where it stood when its copy was complete, else anew.
        """
        records = self._store.table_states()
        self._entries = {
            oid: TableEntry(name, records.get(oid) or TableStateRecord(oid, TableState.INIT))
            for oid, name in published.items()
        }
        for oid, entry in self._entries.items():
            if oid not in records:
                self._store.set_table_state(entry.record)
            elif entry.record.state is TableState.ERRORED:
                self.move(oid, TableEvent.RESET if entry.record.sync_lsn is None else TableEvent.RETRIED)
            self._metrics.table_state(entry.name, self._entries[oid].record.state)
        return [oid for oid in records if oid not in published]

    def see_off(self, left: Mapping[int, str], now: Lsn, *, keep: Collection[int]) -> None:
        """Tables (oid → name) that left the publication: the stream still has what they changed before.

        They are forgotten once it has passed `now`, those in `keep` never, and their destination tables stay as they are.
        """
        records = self._store.table_states()
        for oid, name in left.items():
            if records[oid].state not in NOT_STREAMED:
                self._entries[oid] = TableEntry(name, records[oid])
                if oid not in keep:
                    self._leaving[oid] = now
            elif oid not in keep:
                self._store.delete_table(oid)

    def names(self) -> Mapping[int, str]:
        """Oid → ``schema.name``."""
        return {oid: entry.name for oid, entry in self._entries.items()}

    def needing_copy(self) -> list[int]:
        """Tables whose copy has not finished."""
        return [oid for oid, entry in self._entries.items() if entry.record.state in NEEDS_COPY]

    def streaming(self) -> dict[int, Lsn]:
        """Tables that the stream owns: oid → the LSN below which transactions are in the copy."""
        return {
            oid: entry.record.sync_lsn or Lsn(0)
            for oid, entry in self._entries.items()
            if entry.record.state not in NOT_STREAMED
        }

    def move(self, oid: int, event: TableEvent, *, sync_lsn: Lsn | None = None) -> None:
        """Take a step and record it."""
        entry = self._entries[oid]
        state = transition(entry.record.state, event)
        lsn = None if event is TableEvent.RESET else sync_lsn or entry.record.sync_lsn
        self._record(oid, entry.name, TableStateRecord(oid, state, sync_lsn=lsn))

    def hand_to_stream(self) -> None:
        """Every copied table is the stream's from here on."""
        for oid, entry in self._entries.items():
            if entry.record.state is TableState.FINISHED_COPY:
                self.move(oid, TableEvent.STREAM_OWNS)
        self._before_stream = {
            oid for oid, entry in self._entries.items() if entry.record.state is TableState.SYNC_DONE
        }

    def passed(self, flushed: Lsn) -> None:
        """The durable position is at `flushed`: tables whose copy it has passed are READY."""
        for oid in sorted(self._before_stream):
            record = self._entries[oid].record
            if record.state is not TableState.SYNC_DONE:
                self._before_stream.discard(oid)
            elif flushed >= (record.sync_lsn or 0):
                self.move(oid, TableEvent.STREAM_PASSED)
                self._before_stream.discard(oid)
        for oid in [oid for oid, left_at in self._leaving.items() if flushed >= left_at]:
            self._store.delete_table(oid)
            self._before_stream.discard(oid)
            del self._leaving[oid]

    def fail(self, oid: int, error: EtlError) -> None:
        """Set the table aside with the reason and the way out."""
        entry = self._entries[oid]
        state = transition(entry.record.state, TableEvent.FAILED)
        self.errors[oid] = error
        self._metrics.error("table", error.kind)
        _log.error(
            "table_failed", table=entry.name, error_kind=error.kind, error=error.message, hint=error.hint
        )
        self._record(
            oid,
            entry.name,
            TableStateRecord(
                oid,
                state,
                sync_lsn=entry.record.sync_lsn,
                reason=error.message,
                solution=error.hint,
                retry=error.retry,
            ),
        )

    def copy_anew(self, error: EtlError) -> None:
        """Changes of every streamed table are missing: the next start copies them from the beginning."""
        for oid in self.streaming():
            entry = self._entries[oid]
            self._entries[oid] = TableEntry(entry.name, replace(entry.record, sync_lsn=None))
            self.fail(oid, error)

    def _record(self, oid: int, name: str, record: TableStateRecord) -> None:
        self._store.set_table_state(record)
        self._entries[oid] = TableEntry(name, record)
        self._metrics.table_state(name, record.state)
        _log.info("table_state_changed", table=name, state=record.state.value)

"""Drive a destination with ordered events: the one place that knows what a replay, a Relation and a failure mean.

- What a replay repeats is dropped: row changes, relations and truncates at or below the table's watermark alike.
- Rows are collected per table and written together; a `Relation` that changes something first flushes the rows of all
  tables, so that no row meets a schema it does not belong to.
- A schema change the last process left unfinished is finished before anything else happens to its table.
- A fault of one table takes that table out, and the others go on. Its later events are dropped: whoever reads the
  report must not acknowledge beyond them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from etl.ddl.operations import SkippedChange
from etl.destinations.base import (
    Destination,
    DestinationMetadata,
    DestinationTable,
    SchemaJournal,
    SchemaStatus,
    TableChanges,
)
from etl.destinations.measuring import Measure, unmeasured
from etl.destinations.schema_applier import SchemaApplier, SchemaChange
from etl.errors import DestinationTableError
from etl.events import Commit, Event, Relation, RowChanges, Truncate
from etl.lsn import Position
from etl.schema.table import ReplicatedTableSchema
from etl.telemetry.metric_names import DestinationCall


class WriteInterruptedError(Exception):
    """A stop was asked for before a schema change: what came before it is durable, the rest is for the next start."""


@dataclass(slots=True)
class WriteReport:
    """What one write did; every mapping is by table oid.

    - `rows`: row changes now durable; `replayed`: row changes dropped because they were so already.
    - `schema_changes`: relations that changed the destination's schema, finished recoveries among them.
    - `refused`: the schema that a table of `failed` failed at, where it was a schema.
    - `failed`: tables that failed in this write, with the cause.
    - `unmatched`: old rows an update or delete meant that were not there.
    - `skipped`: detected source changes that were not applied to the destination.

    `changes` are the schema changes one by one, in order.
    """

    rows: dict[int, int] = field(default_factory=dict)
    replayed: dict[int, int] = field(default_factory=dict)
    schema_changes: dict[int, int] = field(default_factory=dict)
    refused: dict[int, ReplicatedTableSchema] = field(default_factory=dict)
    failed: dict[int, DestinationTableError] = field(default_factory=dict)
    unmatched: dict[int, int] = field(default_factory=dict)
    skipped: dict[int, tuple[SkippedChange, ...]] = field(default_factory=dict)
    changes: list[SchemaChange] = field(default_factory=list)


@dataclass(slots=True)
class _Pending:
    """Changes of one table that wait for the next flush."""

    table: DestinationTable
    changes: list[RowChanges | Truncate] = field(default_factory=list)
    rows: int = 0
    last: Position = Position.ZERO


class EventWriter:
    """Writes events to an open destination. Not thread-safe; make a new one after the destination is opened again."""

    def __init__(
        self,
        destination: Destination,
        journal: SchemaJournal,
        is_stopping: Callable[[], bool] = lambda: False,
        measure: Measure = unmeasured,
    ) -> None:
        """`is_stopping`: whether to leave the rest of a write to the next start (see `write`)."""
        self._destination = destination
        self._journal = journal
        self._is_stopping = is_stopping
        self._measure = measure
        self._applier = SchemaApplier(destination, journal, measure)
        self._watermarks: dict[int, Position] | None = None
        self._tables: dict[int, DestinationMetadata] = {}
        self._failed: dict[int, DestinationTableError] = {}
        self._pending: dict[int, _Pending] = {}
        self._report = WriteReport()

    @property
    def failed(self) -> Mapping[int, DestinationTableError]:
        """The tables whose events are being dropped, with the cause."""
        return self._failed

    def drop(self, oid: int) -> None:
        """Drop the destination table of a source table, if it was ever created, and stop knowing it."""
        recorded = self._journal.get(oid)
        if recorded is not None:
            self._destination.drop_table(recorded.table)
        self._forget(oid)

    # --- the stream ---------------------------------------------------------------------------------------------

    def recover(self, oids: Iterable[int]) -> WriteReport:
        """Finish the schema changes of these tables that the last process left unfinished."""
        self._report = WriteReport()
        for oid in oids:
            recorded = self._journal.get(oid)
            if recorded is not None and recorded.status is SchemaStatus.APPLYING:
                self._ready(oid)
        return self._report

    def retry(self, oid: int) -> None:
        """Take a table's events again: it failed and they are replayed from there, or a copy of it is finished."""
        self._forget(oid)

    def write(self, events: Sequence[Event]) -> WriteReport:
        """Apply `events` in order; on return everything in the report's `rows` is durable.

        Raises `DestinationError` when the destination as a whole is at fault; then nothing is known of this write, and
        the same events may be written again once the destination is open. Raises `WriteInterruptedError` before a schema
        change once a stop is asked for: there can be more of them in one write than a graceful end has time for.
        """
        self._report = WriteReport()
        try:
            for event in events:
                self._take(event)
            self._flush()
        except BaseException:
            self._pending.clear()
            self._watermarks = None
            self._tables.clear()
            raise
        return self._report

    def _take(self, event: Event) -> None:
        match event:
            case RowChanges():
                self._rows(event)
            case Truncate():
                for schema in event.schemas:
                    self._truncate(event, schema)
            case Relation():
                self._under(event.schema, event.position)
            case Commit():
                pass

    def _rows(self, event: RowChanges) -> None:
        oid = event.schema.oid
        if oid in self._failed:
            return
        part = event.after(self._watermark(oid))
        replayed = len(event) - (len(part) if part is not None else 0)
        if replayed:
            self._report.replayed[oid] = self._report.replayed.get(oid, 0) + replayed
        if part is None or not self._under(part.schema, part.first):
            return
        pending = self._pend(oid)
        pending.changes.append(part)
        pending.rows += len(part)
        pending.last = part.last

    def _truncate(self, event: Truncate, schema: ReplicatedTableSchema) -> None:
        if self._under(schema, event.position):
            pending = self._pend(schema.oid)
            pending.changes.append(event)
            pending.last = event.position

    def _under(self, schema: ReplicatedTableSchema, position: Position) -> bool:
        """Make sure the table has `schema` for what stands at `position`; False when that is to be dropped.

        Rows say their schema too, not only Relation: the Relation of a run whose beginning is in the copy already lies
        below the watermark and was dropped with that beginning.
        """
        oid = schema.oid
        if oid in self._failed or position <= self._watermark(oid):
            return False
        recorded = self._ready(oid)
        if recorded is None:
            return False
        if recorded.schema is schema or recorded.schema.version_hash == schema.version_hash:
            return True
        self._flush()
        if oid in self._failed:
            return False
        if self._is_stopping():
            raise WriteInterruptedError
        return self._change_schema(recorded, schema, position.before())

    def _change_schema(
        self, recorded: DestinationMetadata, schema: ReplicatedTableSchema, before: Position
    ) -> bool:
        watermark = max(before, self._watermark(schema.oid))
        try:
            change = self._applier.apply(recorded, schema, watermark)
        except DestinationTableError as error:
            self._report.refused[schema.oid] = schema
            self._fail(schema.oid, error)
            return False
        if self._watermarks is not None:
            self._watermarks[schema.oid] = watermark
        self._changed(change)
        return True

    def _changed(self, change: SchemaChange) -> DestinationMetadata:
        oid = change.metadata.table.oid
        self._tables[oid] = change.metadata
        self._report.changes.append(change)
        self._report.schema_changes[oid] = self._report.schema_changes.get(oid, 0) + 1
        if change.skipped:
            self._report.skipped[oid] = self._report.skipped.get(oid, ()) + change.skipped
        return change.metadata

    def _ready(self, oid: int) -> DestinationMetadata | None:
        """The table's metadata, APPLIED; None when the table failed."""
        known = self._tables.get(oid)
        if known is not None:
            return known
        try:
            recorded = self._copied(oid)
            if recorded.status is SchemaStatus.APPLYING:
                self._report.refused[oid] = recorded.schema
                change = self._applier.recover(recorded)
                del self._report.refused[oid]
                return self._changed(change)
        except DestinationTableError as error:
            self._fail(oid, error)
            return None
        self._tables[oid] = recorded
        return recorded

    def _copied(self, oid: int) -> DestinationMetadata:
        recorded = self._journal.get(oid)
        if recorded is not None and recorded.status is not SchemaStatus.CREATING:
            return recorded
        raise DestinationTableError(
            f"the table with oid {oid} gets changes but was never copied",
            hint="copy it first",
            table=recorded.table.name if recorded else None,
        )

    def _pend(self, oid: int) -> _Pending:
        pending = self._pending.get(oid)
        if pending is None:
            pending = self._pending[oid] = _Pending(self._tables[oid].table)
        return pending

    def _flush(self) -> None:
        """Write what is pending, without the tables that turn out to be at fault."""
        while self._pending:
            try:
                writes = [TableChanges(p.table, tuple(p.changes), p.last) for p in self._pending.values()]
                with self._measure(DestinationCall.WRITE):
                    unmatched = self._destination.write_changes(writes)
            except DestinationTableError as error:
                self._drop_culprit(error)
                continue
            self._written(unmatched)

    def _drop_culprit(self, error: DestinationTableError) -> None:
        culprits = [oid for oid, pending in self._pending.items() if pending.table.name == error.table]
        if not culprits:
            raise error
        self._fail(culprits[0], error)
        # without multi-table transactions, those before it are written already
        self._watermarks = dict(self._destination.watermarks())
        for oid, pending in list(self._pending.items()):
            if self._watermark(oid) >= pending.last:
                self._count(oid, self._pending.pop(oid))

    def _written(self, unmatched: Mapping[int, int]) -> None:
        for oid, pending in self._pending.items():
            self._count(oid, pending)
            if self._watermarks is not None:
                self._watermarks[oid] = pending.last
        for oid, count in unmatched.items():
            self._report.unmatched[oid] = self._report.unmatched.get(oid, 0) + count
        self._pending.clear()

    def _count(self, oid: int, pending: _Pending) -> None:
        self._report.rows[oid] = self._report.rows.get(oid, 0) + pending.rows

    def _fail(self, oid: int, error: DestinationTableError) -> None:
        self._failed[oid] = self._report.failed[oid] = error
        self._pending.pop(oid, None)
        self._tables.pop(oid, None)

    def _forget(self, oid: int) -> None:
        self._failed.pop(oid, None)
        self._tables.pop(oid, None)
        self._watermarks = None

    def _watermark(self, oid: int) -> Position:
        if self._watermarks is None:
            self._watermarks = dict(self._destination.watermarks())
        return self._watermarks.get(oid, Position.ZERO)

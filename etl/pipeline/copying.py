"""The initial copy of tables, beside the stream: several tables at once, each in several ranges, under one snapshot.

Theory of operation. A *round* copies the tables that wait for it. A temporary slot tells a consistent point S and exports
its snapshot: transactions that commit below S are in the snapshot. One connection imports the snapshot and exports it
again, so that the slot can go at once and no copy ever holds back WAL; it must live as long as the round. Before the
round began, the apply worker has started to keep the tables' changes, so what commits at or above S is in their backlogs.

Each table is described *in that snapshot*, so that its schema and its rows are of one moment, and stored as the version
`SnapshotId.COPY`; every range is read as of that version, whatever happens to the table meanwhile. A range is written
only when it was read whole: a connection that breaks costs the ranges in flight and nothing else. One that turns out far
larger than planned is written in parts; when it breaks after that, its table is copied anew. The destination shows the
rows when the last one is there, with S as the watermark. Where the destination has workers of its own, they may read
instead: a thread then has them read many ranges side by side, which are written as one.

A table that cannot be copied ends with its reason; the others go on. Nothing here touches the state of a table: results
wait in a queue for the main thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue

import structlog

from etl.ddl.plan import skipped_defaults
from etl.destinations.base import FinishedRange
from etl.destinations.copy_writer import CopyWriter
from etl.errors import DestinationTableError, EtlError, SchemaError, SourceError, ValueConversionError
from etl.lsn import MAX_ORDINAL, Lsn, Position
from etl.pipeline.context import PipelineContext
from etl.pipeline.copy_reader import SnapshotReader
from etl.pipeline.copy_schedule import CopySchedule, PlanTable, ReadShare, Snapshot, TableCopy, Task
from etl.pipeline.copy_share import ByDaemon, ByExecutors, ShareCopier
from etl.pipeline.reporting import Reporter
from etl.schema.table import ReplicatedTableSchema, TableSchema
from etl.source.catalog import describe_table
from etl.source.connection import Connection, cancel, connect_replication
from etl.source.copy import snapshot_connection
from etl.source.copy_plan import plan_ranges
from etl.source.copy_range import read_leaves
from etl.source.publication import PublishedTable
from etl.source.slots import create_slot, export_snapshot, table_sync_slot_name
from etl.store.base import CopyRecord
from etl.telemetry.failpoints import failpoint

_log = structlog.get_logger()
_PAUSE_TICK_S = 0.5
#: How long a thread has to end by itself before what it waits for is cancelled.
_INTERRUPT_S = 0.5
#: How many ranges each connection of an executor reads for one commit: many, for each costs a job and files.
_RANGES_A_COMMIT = 8
_TABLE_FAULTS = (DestinationTableError, ValueConversionError, SchemaError, SourceError)


@dataclass(frozen=True, slots=True)
class Copied:
    """The table's rows are durable at the destination; its changes from `consistent_point` on are not."""

    oid: int
    consistent_point: Lsn
    rows: int


@dataclass(frozen=True, slots=True)
class CopyFailed:
    """The table could not be copied; what was there before is untouched."""

    oid: int
    error: EtlError


@dataclass(frozen=True, slots=True)
class CopyBroken:
    """Not a table but the destination, the store or the code is at fault: the round is over."""

    error: Exception


CopyResult = Copied | CopyFailed | CopyBroken


class Copier:
    """Runs rounds. The main thread starts them and takes the results."""

    def __init__(self, context: PipelineContext, writer: CopyWriter) -> None:
        self._context = context
        self._writer = writer
        self._results: SimpleQueue[CopyResult] = SimpleQueue()
        self._rounds: list[_Round] = []
        self._may_read = threading.Event()
        self._may_read.set()

    @property
    def is_idle(self) -> bool:
        """True when no round runs and no result waits."""
        return not self.running and self._results.empty()

    @property
    def running(self) -> int:
        """How many rounds run."""
        self._rounds = [each for each in self._rounds if each.is_alive()]
        return len(self._rounds)

    def start(self, tables: list[PublishedTable], notes: Mapping[int, str]) -> None:
        """Copy these tables; their changes are being kept already. `notes`: why a table is copied anew, by oid."""
        started = _Round(self._context, self._writer, self._results, tables, notes, self._may_read)
        self._rounds.append(started)
        started.start()

    def finished_before(self, oid: int) -> Lsn | None:
        """The consistent point of the copy that an earlier process was at, if it is the table at the destination.

        To copy it again would be harmless for a mirror, and would double what is in a changelog.
        """
        copy = self._context.store.copies().get(oid)
        if copy is None or len(copy.finished) < copy.ranges:
            return None
        was_finished = self._writer.was_finished(oid, _below(copy.consistent_point))
        return copy.consistent_point if was_finished else None

    def results(self) -> Iterator[CopyResult]:
        """What has ended since the last call."""
        while True:
            try:
                yield self._results.get_nowait()
            except Empty:
                return

    def drop(self, oid: int) -> None:
        """Stop copying a table that nobody wants any more."""
        for each in self._rounds:
            each.drop(oid)

    def is_busy(self, oid: int) -> bool:
        """True while a thread may still touch the table at the destination, also for a copy that was dropped."""
        return any(each.is_busy(oid) for each in self._rounds if each.is_alive())

    def hold(self, *, held: bool) -> None:
        """Read no further while `held`: the stream has to catch up first."""
        if held:
            self._may_read.clear()
        else:
            self._may_read.set()

    def close(self) -> None:
        """End all rounds; what they copied is left to the next start."""
        for each in self._rounds:
            each.stop()
        for each in self._rounds:
            each.join(_INTERRUPT_S)
            while each.is_alive():
                each.interrupt()
                each.join(_INTERRUPT_S)
        self._rounds = []


class _Round(threading.Thread):
    """One snapshot and the threads that read under it."""

    def __init__(
        self,
        context: PipelineContext,
        writer: CopyWriter,
        results: SimpleQueue[CopyResult],
        tables: list[PublishedTable],
        notes: Mapping[int, str],
        may_read: threading.Event,
    ) -> None:
        super().__init__(name="copy", daemon=True)
        self._context = context
        self._writer = writer
        self._results = results
        self._tables = tables
        self._notes = notes
        self._may_read = may_read
        self._reporter = Reporter(context.metrics, context.pulse, str)
        self._settings = context.config.table_sync
        per_table = self._settings.connections_per_table
        if self._by_executors:
            self._schedule = CopySchedule(tables, per_table=1, share=per_table * _RANGES_A_COMMIT)
        else:
            self._schedule = CopySchedule(tables, per_table=per_table)
        self._workers: list[threading.Thread] = []
        self._stopped = threading.Event()
        self._starting = threading.Lock()
        self._has_begun = threading.Event()
        self.connections: set[Connection] = set()

    @property
    def _by_executors(self) -> bool:
        return self._settings.read_by == "executors"

    def stop(self) -> None:
        self._stopped.set()
        self._schedule.stop()

    def interrupt(self) -> None:
        """Have every thread return that waits for the server. It may wait again: repeat that until all have ended."""
        for connection in self.connections.copy():
            cancel(connection)
        if self._by_executors:
            for oid in self._schedule.busy():
                self._writer.interrupt_ranges(oid)

    def drop(self, oid: int) -> None:
        for copy in self._schedule.unfinished():
            if copy.table.oid == oid:
                self._schedule.end(copy)
                if not self._schedule.unfinished():
                    self.interrupt()

    def is_busy(self, oid: int) -> bool:
        """Before it has begun it has the slot that is named after its first table."""
        begins = not self._has_begun.is_set() and any(table.oid == oid for table in self._tables)
        return begins or self._schedule.is_busy(oid)

    def run(self) -> None:
        try:
            with self._snapshot() as snapshot:
                failpoint("copy.after_snapshot")
                self._has_begun.set()
                self._start_workers(snapshot, len(self._tables))
                # the list grows while the workers find more to do
                for worker in self._workers:
                    worker.join()
        except SourceError as error:
            for copy in self._schedule.unfinished():
                self._fail(copy, error)
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self._results.put(CopyBroken(error))

    @contextmanager
    def _snapshot(self) -> Iterator[Snapshot]:
        parameters, role = self._context.parameters, f"table_sync:{self._context.pipeline_id}"
        name = table_sync_slot_name(self._context.pipeline_id, self._tables[0].oid)
        with ExitStack() as held:
            with (
                connect_replication(parameters, f"replication:{role}") as replication,
                self._waits(replication),
            ):
                slot = create_slot(replication, parameters, name, temporary=True)
                holder = held.enter_context(snapshot_connection(parameters, slot.snapshot, role))
                exported = export_snapshot(holder, parameters)
            yield Snapshot(exported, slot.consistent_point)

    @contextmanager
    def _waits(self, connection: Connection) -> Iterator[None]:
        self.connections.add(connection)
        try:
            yield
        finally:
            self.connections.discard(connection)

    # --- threads ------------------------------------------------------------------------------------------------

    def _start_workers(self, snapshot: Snapshot, wanted: int) -> None:
        with self._starting:
            # a thread's executors have as many connections as a table may
            each = self._settings.connections_per_table if self._by_executors else 1
            limit = min(max(self._settings.connections // each, 1), wanted)
            while len(self._workers) < limit and not self._stopped.is_set():
                worker = threading.Thread(
                    target=self._work, args=(snapshot,), name=f"copy-{len(self._workers)}", daemon=True
                )
                worker.start()
                self._workers.append(worker)

    def _work(self, snapshot: Snapshot) -> None:
        reader = SnapshotReader(self._context, snapshot, self.connections)
        copier: ShareCopier = (
            ByExecutors(self._context, self._writer, snapshot)
            if self._by_executors
            else ByDaemon(self._context, self._writer, reader)
        )
        try:
            while (task := self._schedule.take()) is not None:
                try:
                    self._do(reader, copier, task)
                except _TABLE_FAULTS as error:
                    if isinstance(error, SourceError):
                        # its connection is lost, or its transaction, and the next table needs one
                        reader.close()
                    self._fail(task.copy, error)
                finally:
                    self._schedule.leave(task.copy)
        except Exception as error:  # noqa: BLE001 -- the main thread raises it
            self.stop()
            self._results.put(CopyBroken(error))
        finally:
            reader.close()

    def _do(self, reader: SnapshotReader, copier: ShareCopier, task: Task) -> None:
        match task:
            case PlanTable(copy):
                self._plan(reader, copy)
            case ReadShare(copy, schema):
                # between ranges, where no lock is held
                while not self._may_read.wait(_PAUSE_TICK_S) and not self._stopped.is_set():
                    pass
                finished = copier.copy(task, lambda: self._is_over(copy))
                if finished is None:
                    return
                self._record(copy, finished)
                if self._schedule.read(copy, sum(each.rows for each in finished)):
                    self._finish(copy, schema, reader.snapshot)

    def _plan(self, reader: SnapshotReader, copy: TableCopy) -> None:
        context, table = self._context, copy.table
        schema = published_schema(describe_table(reader.connection(), context.parameters, table.oid), table)
        leaves = read_leaves(reader.connection(), context.parameters, table)
        ranges = plan_ranges(leaves, self._settings.range_bytes)
        if self._is_over(copy):
            return
        context.store.prepare_for_copy(table.oid)
        context.store.save_schema(schema.schema)
        self._writer.create(schema)
        note = self._notes.get(table.oid, "")
        context.store.begin_copy(
            CopyRecord(table.oid, reader.snapshot.name, reader.snapshot.lsn, len(ranges), note=note)
        )
        context.pulse.copy_planned(table.oid, table.estimated_rows)
        if context.progress is not None:
            context.progress.start(table.qualified_name, table.estimated_rows)
        waiting = self._schedule.planned(copy, schema, ranges)
        if ranges:
            self._start_workers(reader.snapshot, waiting)
        else:
            # a partitioned table without partitions
            self._finish(copy, schema, reader.snapshot)

    def _is_over(self, copy: TableCopy) -> bool:
        return self._stopped.is_set() or copy.ended

    def _record(self, copy: TableCopy, finished: Sequence[FinishedRange]) -> None:
        context, name = self._context, copy.table.qualified_name
        failpoint("copy.before_range_recorded")
        for each in finished:
            context.store.finish_range(copy.table.oid, each.number, each.rows)
            context.metrics.copied(name, each.rows)
            if context.progress is not None:
                context.progress.advance(name, each.rows, each.nbytes)

    def _finish(self, copy: TableCopy, schema: ReplicatedTableSchema, snapshot: Snapshot) -> None:
        self._writer.finish(schema, _below(snapshot.lsn), copy.rows)
        if self._schedule.end(copy):
            self._results.put(Copied(copy.table.oid, snapshot.lsn, copy.rows))
            skipped = skipped_defaults(schema, self._context.destination.render_default)
            self._reporter.copied(schema.schema, skipped)
            if self._context.progress is not None:
                self._context.progress.finish(copy.table.qualified_name)
            _log.info("table_copied", table=copy.table.qualified_name, rows=copy.rows, lsn=str(snapshot.lsn))

    def _fail(self, copy: TableCopy, error: EtlError) -> None:
        if self._schedule.end(copy) and not self._stopped.is_set():
            self._results.put(CopyFailed(copy.table.oid, error))


def _below(consistent_point: Lsn) -> Position:
    """The watermark of a copy: no transaction that commits below the point comes after it."""
    return Position(Lsn(max(consistent_point - 1, 0)), MAX_ORDINAL)


def published_schema(schema: TableSchema, table: PublishedTable) -> ReplicatedTableSchema:
    """The schema with the masks that the publication's column list gives it."""
    everything = ReplicatedTableSchema.all_columns(schema)
    listed = table.column_attnums
    if listed is None:
        return everything
    mask = tuple(column.attnum in listed for column in schema.columns)
    identity = tuple(a and b for a, b in zip(everything.identity_mask, mask, strict=True))
    return ReplicatedTableSchema(schema, mask, identity)

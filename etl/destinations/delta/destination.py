"""The Delta destination: one Delta table per source table; rows and their watermark in one commit each."""

# ruff: noqa: S608 -- the table's name went through `quote`
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from etl.ddl.operations import ActualTable, SchemaOperation
from etl.destinations.base import (
    Capabilities,
    CopyBatch,
    DestinationTable,
    DistributedCopy,
    DistributedDestination,
    FinishedRange,
    TableChanges,
    TableMode,
)
from etl.destinations.delta import append, dialect, keyless, mirror
from etl.destinations.delta.catalog import Catalog
from etl.destinations.delta.commits import Commits
from etl.destinations.delta.config import DeltaSettings
from etl.destinations.delta.conform import not_held
from etl.destinations.delta.copies import Copies
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.lanes import Lanes, OwnSessions
from etl.destinations.delta.maintenance import Upkeep
from etl.destinations.delta.places import Places
from etl.destinations.delta.session import Session
from etl.destinations.delta.storage import Folder, Staging
from etl.destinations.delta.writes import Write
from etl.destinations.naming import printable_name
from etl.destinations.runs import JoinedRun, split_at_truncates
from etl.errors import DestinationUnavailableError
from etl.events import Truncate
from etl.lsn import Position
from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.spark.session import check_spark
from etl.telemetry.failpoints import failpoint


@dataclass(frozen=True, slots=True)
class _Open:
    session: Session
    housekeeping: Housekeeping
    catalog: Catalog
    commits: Commits
    upkeep: Upkeep
    lanes: Lanes
    copies: Copies


class DeltaDestination(DistributedDestination):
    """Keeps tables in Delta Lake through Spark; every method's contract is that of `Destination`."""

    name = "delta"
    capabilities = Capabilities(
        transactional_ddl=False,
        multi_table_transactions=False,
        exact_old_rows=True,
        case_insensitive_names=True,
    )

    def __init__(self, settings: DeltaSettings) -> None:
        self._settings = settings.with_own_warehouse()
        self._places = Places(settings)
        self._opened: _Open | None = None

    def check(self) -> str:
        """Look for Java, the jars and a place that can be written to; Spark is not started."""
        found = check_spark(self._settings.spark)
        self._staging_folder().probe()
        return f"{self._settings.place} can be written; {found}"

    def open(self, pipeline_id: int, epoch: int) -> None:
        """Start Spark where it does not run yet, and take ownership."""
        self.close()
        staging = Staging(self._staging_folder(), pipeline_id, epoch)
        staging.clean()

        def new_session() -> Session:
            return Session(self._settings.spark, staging, self._settings.place)

        session = new_session()
        # with a session of its own: what a commit says is a property of the session, and copying threads commit here too
        housekeeping = Housekeeping(new_session(), self._places, pipeline_id, self._settings.place)
        housekeeping.take_ownership(epoch)
        catalog = Catalog(session, housekeeping, self._places, self._settings)
        commits = Commits(session, housekeeping, self._places, pipeline_id)
        own = OwnSessions(new_session)
        copies = Copies(session, own, housekeeping, catalog, commits, self._places, pipeline_id)
        copies.clean()
        self._opened = _Open(
            session,
            housekeeping,
            catalog,
            commits,
            Upkeep(self._settings.maintenance, self._places, housekeeping, new_session),
            Lanes(session, own, self._settings.parallel_tables),
            copies,
        )

    def close(self) -> None:
        """Let go of the session; Spark stays up until the process ends. Idempotent."""
        if self._opened is not None:
            self._opened.upkeep.close()
            self._opened.lanes.close()
            self._opened = None

    # --- names and schemas --------------------------------------------------------------------------------------

    def destination_table(self, schema: ReplicatedTableSchema, mode: TableMode) -> DestinationTable:
        """``schema.table`` as at the source, quoted where needed."""
        return DestinationTable(schema.oid, printable_name(schema.schema.schema, schema.schema.name), mode)

    def check_schema(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse reserved and case-colliding names."""
        self._open.catalog.check_schema(table, schema)

    def check_existing_rows(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse a key for which existing rows have no value."""
        self._open.catalog.check_existing_rows(table, schema)

    def describe(self, table: DestinationTable) -> ActualTable | None:
        """The columns with their identity tags and defaults, as Delta has them now."""
        return self._open.catalog.describe(table)

    def render_default(self, column: ColumnSchema, literal: DefaultLiteral) -> str | None:
        """The default as a literal of Spark's SQL, which Delta keeps as it is."""
        return dialect.render_default(column, literal, self._settings.types)

    # --- creating, copying, dropping ----------------------------------------------------------------------------

    def create_table(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Begin a copy: in the table itself as long as it never was complete, otherwise in one beside it."""
        self._fenced().copies.begin(table, schema)

    def drop_table(self, table: DestinationTable) -> None:
        """Drop the table with its files and versions."""
        self._fenced().copies.drop(table)

    def write_table_rows(
        self, table: DestinationTable, schema: ReplicatedTableSchema, batch: CopyBatch
    ) -> None:
        """Append copied rows in a commit of their own."""
        self._fenced().copies.append(table, schema, batch)

    def write_table_ranges(
        self, table: DestinationTable, schema: ReplicatedTableSchema, copy: DistributedCopy
    ) -> Sequence[FinishedRange]:
        """Append what Spark's executors read in a commit of its own."""
        return self._fenced().copies.append_ranges(table, schema, copy)

    def interrupt_ranges(self, oid: int) -> None:
        """Have Spark cancel the jobs."""
        self._open.copies.interrupt_ranges(oid)

    def finish_copy(self, table: DestinationTable, watermark: Position, rows: int) -> None:
        """Put the copy in the place of the old table in one commit with its watermark, or set the watermark alone."""
        self._fenced().copies.finish(table, watermark, rows)

    def abandon_copy(self, table: DestinationTable) -> None:
        """Drop the copy."""
        self._fenced().copies.abandon(table)

    # --- the stream ---------------------------------------------------------------------------------------------

    def watermarks(self) -> Mapping[int, Position]:
        """Table oid → the last position applied, as the tables' histories have it."""
        return self._open.commits.watermarks()

    def write_changes(self, writes: Sequence[TableChanges]) -> Mapping[int, int]:
        """Apply the changes of one table after the other, each with its watermark in one commit."""
        failpoint("dest.before_write")
        opened = self._open
        counts = opened.lanes.map(self._apply, writes)
        for changes in writes:
            if opened.upkeep.committed(changes.table, opened.commits.stamp(changes.table)):
                self.set_watermark(changes.table, changes.watermark)
        failpoint("dest.after_commit")
        return {
            changes.table.oid: unmatched
            for changes, unmatched in zip(writes, counts, strict=True)
            if unmatched
        }

    def execute(self, table: DestinationTable, operation: SchemaOperation) -> None:
        """Execute one schema operation in a commit of its own; no data file is touched."""
        opened = self._fenced()
        opened.catalog.execute(table, operation, opened.commits.stamp(table))

    def set_watermark(self, table: DestinationTable, watermark: Position) -> None:
        """Set the watermark in a commit of its own."""
        opened = self._fenced()
        opened.commits.set_watermark(opened.session, table, watermark)

    # --- details ------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> _Open:
        if self._opened is None:
            raise DestinationUnavailableError(f"{self._settings.place} is not open", hint="open it first")
        return self._opened

    def _fenced(self) -> _Open:
        self._open.housekeeping.fence()
        return self._open

    def _write(self, session: Session, table: DestinationTable, watermark: Position | None) -> Write:
        opened = self._fenced()
        return Write(session, opened.commits, opened.catalog.shape(table), watermark)

    def _apply(self, session: Session, changes: TableChanges) -> int:
        failpoint("dest.before_commit")
        unmatched = self._apply_parts(self._write(session, changes.table, changes.watermark), changes)
        failpoint("dest.mid_write")
        return unmatched

    def _apply_parts(self, write: Write, changes: TableChanges) -> int:
        parts = split_at_truncates(changes.changes)
        runs = [part for part in parts if isinstance(part, JoinedRun)]
        self._keep_exact(runs)
        if changes.table.mode is TableMode.CHANGELOG:
            append.append_changes(write, parts)
            return 0
        last = parts[-1]
        truncated = any(isinstance(part, Truncate) for part in parts)
        if isinstance(last, Truncate):
            # whatever came before it in this write is gone with the rest
            write.commit(f"DELETE FROM {write.sql}")
            return 0
        if truncated:
            return mirror.overwrite_run(write, last)
        if last.schema.key_columns:
            return mirror.merge_run(write, last)
        return keyless.merge_by_full_row(write, last)

    def _keep_exact(self, runs: Iterable[JoinedRun]) -> None:
        """Before the rows: what is stored once more by a replay is harmless, what is never stored is lost."""
        for run in runs:
            texts = [(value.row, value.attnum, value.text) for value in run.unrepresentable]
            texts += not_held(run.schema.columns, run.new)
            self._open.housekeeping.keep_exact(
                run.schema.oid,
                [
                    (attnum, int(run.commit_lsn[row]), int(run.ordinal[row]), text)
                    for row, attnum, text in texts
                ],
            )

    def _staging_folder(self) -> Folder:
        given = self._settings.staging or f"{self._settings.path}/_etl/staging"
        return Folder.at(given)

"""The DuckDB destination: one file; rows, schema changes and watermarks in one transaction each."""

# ruff: noqa: S608 -- the table's name went through `quote`
from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from etl.ddl.operations import ActualTable, SchemaOperation
from etl.destinations.base import (
    Capabilities,
    CopyBatch,
    Destination,
    DestinationTable,
    TableChanges,
    TableMode,
)
from etl.destinations.duckdb import changelog, dialect, mirror
from etl.destinations.duckdb.catalog import Catalog
from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.copies import Copies
from etl.destinations.duckdb.housekeeping import Housekeeping
from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import TableShape
from etl.destinations.naming import printable_name
from etl.destinations.runs import JoinedRun, split_at_truncates
from etl.errors import DestinationError, DestinationUnavailableError
from etl.events import Truncate
from etl.lsn import Position
from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.telemetry.failpoints import failpoint


@dataclass(frozen=True, slots=True)
class _Open:
    session: Session
    housekeeping: Housekeeping
    catalog: Catalog
    copies: Copies


class DuckDBDestination(Destination):
    """Keeps tables in a DuckDB file; every method's contract is that of `Destination`."""

    name = "duckdb"
    capabilities = Capabilities(
        transactional_ddl=True,
        multi_table_transactions=True,
        exact_old_rows=True,
        case_insensitive_names=True,
    )

    def __init__(self, settings: DuckDBSettings) -> None:
        self._settings = settings
        self._opened: _Open | None = None
        #: Tables come and go one at a time: two transactions that create a schema would conflict.
        self._shaping = threading.Lock()

    def check(self) -> str:
        """Open the file and close it again; one that does not exist yet must be creatable."""
        path = self._settings.path
        if path.exists():
            session = Session(self._settings)
            try:
                Housekeeping(session, pipeline_id=0, epoch=0).check_versions()
            finally:
                session.close()
            return f"{path} can be opened"
        folder = next(parent for parent in path.absolute().parents if parent.exists())
        if not os.access(folder, os.W_OK):
            raise DestinationError(
                f"{path} cannot be created: {folder} is not writable", hint="choose another path"
            )
        return f"{path} will be created"

    def open(self, pipeline_id: int, epoch: int) -> None:
        """Open the file and take ownership; also after an error that made it unusable."""
        self.close()
        session = Session(self._settings)
        try:
            housekeeping = Housekeeping(session, pipeline_id, epoch)
            housekeeping.take_ownership()
        except BaseException:
            session.close()
            raise
        catalog = Catalog(session, housekeeping, self._settings.types)
        copies = Copies(session, housekeeping, catalog, pipeline_id)
        self._opened = _Open(session, housekeeping, catalog, copies)

    def close(self) -> None:
        """Close the file; idempotent. DuckDB writes a checkpoint when the last connection closes."""
        if self._opened is not None:
            self._opened.session.close()
            self._opened = None

    # --- names and schemas --------------------------------------------------------------------------------------

    def destination_table(self, schema: ReplicatedTableSchema, mode: TableMode) -> DestinationTable:
        """``schema.table`` as at the source, quoted where needed."""
        name = printable_name(schema.schema.schema, schema.schema.name)
        return DestinationTable(schema.oid, name, mode)

    def check_schema(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse reserved and case-colliding names."""
        self._open.catalog.check_schema(table, schema)

    def check_existing_rows(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse a key for which existing rows have no value."""
        self._open.catalog.check_existing_rows(table, schema)

    def describe(self, table: DestinationTable) -> ActualTable | None:
        """The columns with their identity tags, as DuckDB's catalog has them."""
        return self._open.catalog.describe(table)

    def render_default(self, column: ColumnSchema, literal: DefaultLiteral) -> str | None:
        """A plain number or a string literal, which DuckDB stores as it is."""
        return dialect.render_default(column, literal, self._settings.types)

    # --- creating, copying, dropping ----------------------------------------------------------------------------

    def create_table(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Begin a copy in a table of its own. A table that is not ours where it will stand is refused."""
        with self._shaping, self.transaction():
            self._open.copies.begin(table, schema)

    def drop_table(self, table: DestinationTable) -> None:
        """Drop the table, its watermark and its exact texts, and a copy under way."""
        with self._shaping, self.transaction():
            self._open.copies.abandon(table)
            self._open.catalog.drop(table)

    def write_table_rows(
        self, table: DestinationTable, schema: ReplicatedTableSchema, batch: CopyBatch
    ) -> None:
        """Append copied rows in a transaction of their own."""
        with self.transaction():
            self._open.copies.append(table, schema, batch)

    def finish_copy(self, table: DestinationTable, watermark: Position, rows: int) -> None:
        """Put the copy in the place of the old table, with its watermark, in one transaction."""
        with self._shaping, self.transaction():
            self._open.copies.finish(table, watermark, rows)

    def abandon_copy(self, table: DestinationTable) -> None:
        """Drop the table of the copy."""
        with self._shaping, self.transaction():
            self._open.copies.abandon(table)

    # --- the stream ---------------------------------------------------------------------------------------------

    def watermarks(self) -> Mapping[int, Position]:
        """Table oid → the last position applied, as committed."""
        return self._open.housekeeping.watermarks()

    def write_changes(self, writes: Sequence[TableChanges]) -> Mapping[int, int]:
        """Apply all tables' changes and their watermarks in one transaction."""
        failpoint("dest.before_write")
        unmatched: dict[int, int] = {}
        with self.transaction():
            for write in writes:
                count = self._apply(write)
                if count:
                    unmatched[write.table.oid] = count
                failpoint("dest.mid_write")
            self._open.housekeeping.set_watermarks({write.table.oid: write.watermark for write in writes})
            failpoint("dest.before_commit")
        failpoint("dest.after_commit")
        return unmatched

    def execute(self, table: DestinationTable, operation: SchemaOperation) -> None:
        """Execute one schema operation, in the surrounding transaction or one of its own."""
        with self.transaction():
            self._open.catalog.execute(table, operation)

    def set_watermark(self, table: DestinationTable, watermark: Position) -> None:
        """Set the watermark, in the surrounding transaction or one of its own."""
        with self.transaction():
            self._open.housekeeping.set_watermarks({table.oid: watermark})

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One DuckDB transaction of this thread, fenced by the epoch; inside another one it is part of it.

        Rows and schema of one table never change in the same transaction: DuckDB 1.5 refuses that at COMMIT.
        """
        opened = self._open
        if opened.session.in_transaction:
            yield
            return
        try:
            with opened.session.transaction(opened.housekeeping.committing):
                opened.housekeeping.fence()
                yield
        except BaseException:
            opened.catalog.forget_shapes()
            raise

    # --- details ------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> _Open:
        if self._opened is None:
            raise DestinationUnavailableError(f"{self._settings.path} is not open", hint="open it first")
        return self._opened

    def _apply(self, write: TableChanges) -> int:
        shape = self._open.catalog.shape(write.table)
        parts = split_at_truncates(write.changes)
        if write.table.mode is TableMode.CHANGELOG:
            for part in parts:
                self._append(shape, part)
            return 0
        last_truncate = max((i for i, part in enumerate(parts) if isinstance(part, Truncate)), default=-1)
        if last_truncate >= 0:
            # whatever came before it in this write is gone with the rest
            self._open.session.run(f"DELETE FROM {shape.sql}", table=write.table.name)
        unmatched = 0
        for part in parts[last_truncate + 1 :]:
            if isinstance(part, JoinedRun):
                unmatched += mirror.apply_run(self._open.session, shape, part)
                self._keep_exact(part)
        return unmatched

    def _append(self, shape: TableShape, part: JoinedRun | Truncate) -> None:
        if isinstance(part, Truncate):
            changelog.append_truncate(self._open.session, shape, part)
        else:
            changelog.append_run(self._open.session, shape, part)
            self._keep_exact(part)

    def _keep_exact(self, run: JoinedRun) -> None:
        lsns, ordinals = run.commit_lsn, run.ordinal
        exact = (
            (value.attnum, int(lsns[value.row]), int(ordinals[value.row]), value.text)
            for value in run.unrepresentable
        )
        self._open.housekeeping.keep_exact(run.schema.oid, exact)

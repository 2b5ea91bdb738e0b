"""The initial copy of tables, one after the other, under the snapshot of a slot.

Theory of operation. The slot that exports the snapshot tells a consistent point S: transactions that commit below S are
in the snapshot, the others are streamed. Each table is described *in that snapshot*, so that its schema and its rows are
of one moment, and stored as the version `SnapshotId.COPY`. The destination table is created anew, which throws away
what a crash left half copied, and gets S as its watermark when the last row is durable; only then is FINISHED_COPY
recorded. The stream ignores a table below S altogether.

A snapshot shows the catalog as it was, but names in a statement are looked up in the catalog of the moment. So while a
table is described and read it is locked against changes, and a table that was altered since S is put off: the attempt
ends with `SnapshotOutdatedError` once the others are copied, and the next one has a new snapshot.

A table that cannot be copied is set aside with its reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import structlog

from etl.destinations.base import CopyBatch
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.writer import EventWriter
from etl.errors import (
    DestinationTableError,
    RetryPolicy,
    SchemaError,
    SnapshotOutdatedError,
    SourceError,
    ValueConversionError,
)
from etl.events import Unrepresentable
from etl.lsn import MAX_ORDINAL, Lsn, Position
from etl.pgoutput.values import convert
from etl.pipeline.context import PipelineContext
from etl.pipeline.journal import StoreJournal
from etl.pipeline.states import TableEvent
from etl.pipeline.tables import TableBook
from etl.schema.table import ReplicatedTableSchema, TableSchema
from etl.source.catalog import describe_table
from etl.source.connection import Connection, connect_query
from etl.source.copy import TextBatch, copy_table, outdated, snapshot_connection, table_held
from etl.source.publication import PublishedTable
from etl.source.slots import CreatedSlot
from etl.telemetry.failpoints import failpoint

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Views:
    """Two looks at the source: under the snapshot, and as it is at present."""

    snapshot: Connection
    present: Connection


class TableSync:
    """Copies tables; used by the pipeline's main thread before the stream starts."""

    def __init__(
        self,
        context: PipelineContext,
        tables: TableBook,
        writer: EventWriter,
        copies: CopyWriter,
        journal: StoreJournal,
    ) -> None:
        self._context = context
        self._tables = tables
        self._writer = writer
        self._copies = copies
        self._journal = journal

    def run(self, published: Sequence[PublishedTable], slot: CreatedSlot) -> None:
        """Copy `published` under the slot's snapshot; stops between batches when the pipeline is asked to."""
        parameters, role = self._context.parameters, f"table_sync:{self._context.pipeline_id}"
        put_off: SnapshotOutdatedError | None = None
        with (
            snapshot_connection(parameters, slot.snapshot, role) as snapshot,
            connect_query(parameters, role) as present,
        ):
            failpoint("copy.after_snapshot")
            for table in published:
                if self._context.stop.is_set():
                    return
                try:
                    with table_held(snapshot, parameters, table):
                        self._copy(_Views(snapshot, present), table, slot.consistent_point)
                except SnapshotOutdatedError as error:
                    put_off = error
                except (DestinationTableError, ValueConversionError, SchemaError) as error:
                    self._tables.fail(table.oid, error)
                except SourceError as error:
                    if error.retry is RetryPolicy.TIMED:
                        raise
                    self._tables.fail(table.oid, error)
        if put_off is not None:
            raise put_off

    def _copy(self, views: _Views, table: PublishedTable, consistent_point: Lsn) -> None:
        schema = self._describe(views, table)
        self._tables.move(table.oid, TableEvent.COPY_STARTED)
        self._context.store.prepare_for_copy(table.oid)
        self._journal.forget(table.oid)
        self._context.store.save_schema(schema.schema)
        self._copies.create(schema)
        rows = self._copy_rows(views.snapshot, table, schema)
        if self._context.stop.is_set():
            return
        self._copies.finish(schema, Position(Lsn(max(consistent_point - 1, 0)), MAX_ORDINAL), rows)
        self._writer.retry(table.oid)
        self._tables.move(table.oid, TableEvent.COPY_FINISHED, sync_lsn=consistent_point)
        if self._context.progress is not None:
            self._context.progress.finish(table.qualified_name)
        _log.info("table_copied", table=table.qualified_name, rows=rows, lsn=str(consistent_point))

    def _copy_rows(self, connection: Connection, table: PublishedTable, schema: ReplicatedTableSchema) -> int:
        progress, total = self._context.progress, 0
        if progress is not None:
            progress.start(table.qualified_name, table.estimated_rows)
        names = [column.name for column in schema.columns]
        # closed also when a block is refused: the connection is needed for the next table
        with closing(copy_table(connection, self._context.parameters, table, names)) as blocks:
            for block in blocks:
                self._copies.copy_rows(schema, self._typed(block, schema))
                total += block.rows
                self._context.metrics.copied(table.qualified_name, block.rows)
                if progress is not None:
                    progress.advance(table.qualified_name, block.rows, block.nbytes)
                if self._context.stop.is_set():
                    break
        return total

    def _describe(self, views: _Views, table: PublishedTable) -> ReplicatedTableSchema:
        """The table in the snapshot, if it is the same at present. Raises `SnapshotOutdatedError`."""
        schema, present = (
            describe_table(view, self._context.parameters, table.oid)
            for view in (views.snapshot, views.present)
        )
        if present.columns != schema.columns:
            raise outdated(table)
        return published_schema(schema, table)

    def _typed(self, block: TextBatch, schema: ReplicatedTableSchema) -> CopyBatch:
        arrays: list[pa.Array] = []
        unrepresentable: list[Unrepresentable] = []
        for text, column in zip(block.columns, schema.columns, strict=True):
            converted = convert(text, column.type_oid, column.typmod, self._context.type_options)
            arrays.append(converted.array)
            unrepresentable += [
                Unrepresentable(row, column.attnum, exact) for row, exact in converted.unrepresentable
            ]
        names = [column.name for column in schema.columns]
        return CopyBatch(pa.RecordBatch.from_arrays(arrays, names=names), tuple(unrepresentable))


def published_schema(schema: TableSchema, table: PublishedTable) -> ReplicatedTableSchema:
    """The schema with the masks that the publication's column list gives it."""
    everything = ReplicatedTableSchema.all_columns(schema)
    if table.column_names is None:
        return everything
    listed = set(table.column_names)
    mask = tuple(column.name in listed for column in schema.columns)
    identity = tuple(a and b for a, b in zip(everything.identity_mask, mask, strict=True))
    return ReplicatedTableSchema(schema, mask, identity)

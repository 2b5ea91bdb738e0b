"""Initial copies of tables, beside the stream: the one place that records in the journal what a copy does.

`create` records CREATING, `finish` APPLIED. A table with a copy under way is nobody's to stream into: once it is finished,
whoever streams calls `EventWriter.retry`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from etl.destinations.base import (
    CopyBatch,
    Destination,
    DestinationMetadata,
    DestinationTable,
    DistributedCopy,
    DistributedDestination,
    FinishedRange,
    SchemaJournal,
    SchemaStatus,
    TableMode,
)
from etl.destinations.measuring import Measure, unmeasured
from etl.errors import DestinationTableError
from etl.lsn import Position
from etl.schema.table import ReplicatedTableSchema
from etl.telemetry.failpoints import failpoint
from etl.telemetry.metric_names import DestinationCall


class CopyWriter:
    """Copies tables into an open destination. Thread-safe: also several threads may copy rows of one table.

    `create`, `finish` and `abandon` of a table are called by one thread, while no other copies rows of it.
    """

    def __init__(
        self,
        destination: Destination,
        journal: SchemaJournal,
        modes: Callable[[ReplicatedTableSchema], TableMode],
        measure: Measure = unmeasured,
    ) -> None:
        self._destination = destination
        self._journal = journal
        self._modes = modes
        self._measure = measure

    def create(self, schema: ReplicatedTableSchema) -> DestinationTable:
        """Begin a copy from nothing: what an earlier, unfinished one left is replaced, a complete table stays.

        Raises `DestinationTableError` when the destination cannot hold the schema.
        """
        table = self._table(schema)
        self._destination.check_schema(table, schema)
        self._journal.put(DestinationMetadata(table, SchemaStatus.CREATING, schema))
        self._destination.create_table(table, schema)
        return table

    def copy_rows(self, schema: ReplicatedTableSchema, batch: CopyBatch) -> None:
        """Append copied rows; durable on return. Raises `DestinationTableError`."""
        with self._measure(DestinationCall.COPY):
            self._destination.write_table_rows(self._creating(schema), schema, batch)
        failpoint("copy.mid")

    def copy_ranges(self, schema: ReplicatedTableSchema, copy: DistributedCopy) -> Sequence[FinishedRange]:
        """Have the destination's own workers read and append ranges, all or none; see `DistributedDestination`."""
        with self._measure(DestinationCall.COPY):
            finished = self._distributed.write_table_ranges(self._creating(schema), schema, copy)
        failpoint("copy.mid")
        return finished

    def interrupt_ranges(self, oid: int) -> None:
        """End every `copy_ranges` of this table that is under way, by an error."""
        self._distributed.interrupt_ranges(oid)

    def finish(self, schema: ReplicatedTableSchema, watermark: Position, rows: int) -> None:
        """End a copy of `rows` rows: the stream's changes at or below `watermark` are in it.

        Raises `DestinationTableError` when the copy holds another number; then the table is what it was before.
        """
        table = self._creating(schema)
        failpoint("copy.before_finish")
        with self._measure(DestinationCall.FINISH_COPY):
            self._destination.finish_copy(table, watermark, rows)
        failpoint("copy.after_finish")
        self._journal.put(DestinationMetadata(table, SchemaStatus.APPLIED, schema))

    def was_finished(self, oid: int, watermark: Position) -> bool:
        """Whether the copy that a process began with this watermark was the table when it was killed.

        Then it is recorded as APPLIED, which that process may not have come to.
        """
        recorded = self._journal.get(oid)
        if recorded is None or self._destination.watermarks().get(oid) != watermark:
            return False
        self._journal.put(replace(recorded, status=SchemaStatus.APPLIED))
        return True

    def abandon(self, schema: ReplicatedTableSchema) -> None:
        """Drop what was copied; harmless when nothing was.

        A complete table stays as it was. It is still recorded as CREATING: the stream went on without it, so that it
        has to be copied before it can be written to.
        """
        self._destination.abandon_copy(self._table(schema))

    @property
    def _distributed(self) -> DistributedDestination:
        if not isinstance(self._destination, DistributedDestination):
            raise TypeError(f"{self._destination.name} has no workers that could read")
        return self._destination

    def _table(self, schema: ReplicatedTableSchema) -> DestinationTable:
        return self._destination.destination_table(schema, self._modes(schema))

    def _creating(self, schema: ReplicatedTableSchema) -> DestinationTable:
        recorded = self._journal.get(schema.oid)
        if recorded is None or recorded.status is not SchemaStatus.CREATING:
            raise DestinationTableError(
                "rows are copied into a table for which no copy has begun",
                hint="begin the copy with `create`",
                table=schema.qualified_name,
            )
        return recorded.table

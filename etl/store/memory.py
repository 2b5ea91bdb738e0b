"""The state store in memory: for tests, and for library users who need no restart."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from etl.lsn import Lsn, SnapshotId
from etl.schema.table import TableSchema
from etl.store.base import DestinationRecord, PipelineOwner, StateStore, TableStateRecord
from etl.store.rules import active_error, checked_schema, closed, destroyed, not_acquired, storable


@dataclass(slots=True)
class _Pipeline:
    """What one pipeline remembers. `history` ends with the present state."""

    epoch: int = 0
    history: dict[int, list[TableStateRecord]] = field(default_factory=dict)
    schemas: dict[tuple[int, SnapshotId], TableSchema] = field(default_factory=dict)
    destinations: dict[int, DestinationRecord] = field(default_factory=dict)
    progress: Lsn | None = None

    def forget_destination(self, oid: int) -> None:
        self.destinations.pop(oid, None)
        for key in [key for key in self.schemas if key[0] == oid]:
            del self.schemas[key]


class MemoryDatabase:
    """Where `MemoryStore`s keep their state: what survives when a store is closed and another one opened."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.last_epoch = 0
        self.pipelines: dict[int, _Pipeline] = {}
        self.holders: dict[int, MemoryStore] = {}


class MemoryStore(StateStore):
    """One pipeline's state in a `MemoryDatabase`, its own unless one is given; several threads may share it."""

    def __init__(self, pipeline_id: int = 1, database: MemoryDatabase | None = None) -> None:
        self._pipeline_id = pipeline_id
        self._database = database or MemoryDatabase()
        self._epoch: int | None = None
        self._closed = False
        self._since = ""

    def acquire(self) -> int:
        """Take the pipeline for this store and return the new epoch."""
        with self._database.lock:
            holder = self._database.holders.setdefault(self._pipeline_id, self)
            if holder is not self:
                raise active_error(self._pipeline_id, holder.describe())
            pipeline = self._database.pipelines.setdefault(self._pipeline_id, _Pipeline())
            pipeline.epoch = max(self._database.last_epoch + 1, time.time_ns() // 1000)
            self._database.last_epoch = self._epoch = pipeline.epoch
            self._closed = False
            self._since = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            return self._epoch

    def describe(self) -> str:
        """This store as the holder of a pipeline, for people."""
        return f"process {os.getpid()} on {socket.gethostname()}, since {self._since}"

    def owner(self) -> PipelineOwner | None:
        """The last owner, None when the pipeline never ran."""
        with self._reading() as pipeline:
            holder = self._database.holders.get(self._pipeline_id)
            described = None if holder is None else holder.describe()
            return PipelineOwner(pipeline.epoch, described) if pipeline.epoch else None

    def close(self) -> None:
        """Release the pipeline; idempotent."""
        with self._database.lock:
            self._epoch, self._closed = None, True
            if self._database.holders.get(self._pipeline_id) is self:
                del self._database.holders[self._pipeline_id]

    # --- table states and progress ----------------------------------------------------------------------------

    def table_states(self) -> Mapping[int, TableStateRecord]:
        """Present state per table oid."""
        with self._reading() as pipeline:
            return {oid: history[-1] for oid, history in pipeline.history.items()}

    def set_table_state(self, record: TableStateRecord) -> None:
        """Record a state; the earlier one stays in the history."""
        record = storable(record)
        with self._writing() as pipeline:
            history = pipeline.history.setdefault(record.oid, [])
            if history and replace(history[-1], updated_at=None) == record:
                history.pop()
            history.append(replace(record, updated_at=datetime.now(UTC)))

    def table_state_history(self, oid: int) -> list[TableStateRecord]:
        """All states of a table, oldest first."""
        with self._reading() as pipeline:
            return list(pipeline.history.get(oid, ()))

    def progress(self) -> Lsn | None:
        """The durable flush LSN of the stream."""
        with self._reading() as pipeline:
            return pipeline.progress

    def save_progress(self, lsn: Lsn) -> None:
        """Advance the durable flush LSN; never lowers it."""
        with self._writing() as pipeline:
            pipeline.progress = lsn if pipeline.progress is None else max(pipeline.progress, lsn)

    def reset_progress(self) -> None:
        """Forget the stream's progress."""
        with self._writing() as pipeline:
            pipeline.progress = None

    # --- schema versions and destination metadata -------------------------------------------------------------

    def schemas(self, oid: int | None = None) -> list[TableSchema]:
        """Stored schema versions, by oid and ascending snapshot id."""
        with self._reading() as pipeline:
            return [pipeline.schemas[key] for key in sorted(pipeline.schemas) if oid is None or key[0] == oid]

    def save_schema(self, schema: TableSchema) -> None:
        """Store a version; storing the same (oid, snapshot id) again replaces it."""
        schema = checked_schema(schema)
        with self._writing() as pipeline:
            pipeline.schemas[schema.oid, schema.snapshot_id] = schema

    def prune_schemas(self, oid: int, below: SnapshotId) -> int:
        """Drop versions that nothing can need any more; how many."""
        with self._writing() as pipeline:
            replayed = [
                snapshot for table, snapshot in pipeline.schemas if table == oid and snapshot <= below
            ]
            record = pipeline.destinations.get(oid)
            needed = {record.snapshot_id, record.previous_snapshot_id} if record else set()
            dropped = set(replayed) - {max(replayed, default=None)} - needed
            for snapshot in dropped:
                del pipeline.schemas[oid, snapshot]
            return len(dropped)

    def destination_records(self) -> Mapping[int, DestinationRecord]:
        """Destination metadata per table oid."""
        with self._reading() as pipeline:
            return dict(pipeline.destinations)

    def save_destination_record(self, record: DestinationRecord) -> None:
        """Upsert a table's destination metadata."""
        with self._writing() as pipeline:
            pipeline.destinations[record.oid] = record

    # --- life cycle of a table and of the pipeline ------------------------------------------------------------

    def prepare_for_copy(self, oid: int) -> None:
        """Atomically delete a table's destination metadata and schema versions."""
        with self._writing() as pipeline:
            pipeline.forget_destination(oid)

    def delete_table(self, oid: int) -> None:
        """Forget a table that left the publication."""
        with self._writing() as pipeline:
            pipeline.forget_destination(oid)
            pipeline.history.pop(oid, None)

    def destroy(self) -> None:
        """Delete all state of this pipeline."""
        with self._writing():
            del self._database.pipelines[self._pipeline_id]

    # --- how all of them run ----------------------------------------------------------------------------------

    @contextmanager
    def _reading(self) -> Iterator[_Pipeline]:
        with self._database.lock:
            if self._closed:
                raise closed(self._pipeline_id)
            yield self._database.pipelines.get(self._pipeline_id) or _Pipeline()

    @contextmanager
    def _writing(self) -> Iterator[_Pipeline]:
        with self._database.lock:
            if self._closed:
                raise closed(self._pipeline_id)
            if self._epoch is None:
                raise not_acquired(self._pipeline_id)
            if self._pipeline_id not in self._database.pipelines:
                raise destroyed(self._pipeline_id)
            yield self._database.pipelines[self._pipeline_id]

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
from etl.store.base import (
    KEPT_REQUESTS,
    CopyRecord,
    DestinationRecord,
    PipelineOwner,
    StateStore,
    TableRequest,
    TableStateRecord,
    TableVerb,
)
from etl.store.rules import (
    active_error,
    checked_schema,
    closed,
    destroyed,
    never_ran,
    not_acquired,
    storable,
    storable_copy,
    storable_text,
)


@dataclass(slots=True)
class _Pipeline:
    """What one pipeline remembers. `history` ends with the present state, `settled` with the last request."""

    epoch: int = 0
    history: dict[int, list[TableStateRecord]] = field(default_factory=dict)
    schemas: dict[tuple[int, SnapshotId], TableSchema] = field(default_factory=dict)
    destinations: dict[int, DestinationRecord] = field(default_factory=dict)
    copies: dict[int, CopyRecord] = field(default_factory=dict)
    requests: dict[int, TableRequest] = field(default_factory=dict)
    settled: dict[int, str] = field(default_factory=dict)
    progress: Lsn | None = None

    def forget_copied(self, oid: int) -> None:
        self.copies.pop(oid, None)
        for key in [key for key in self.schemas if key[0] == oid]:
            del self.schemas[key]


class MemoryDatabase:
    """Where `MemoryStore`s keep their state: what survives when a store is closed and another one opened."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.last_epoch = 0
        self.last_request = 0
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

    # --- copies and requests ----------------------------------------------------------------------------------

    def copies(self) -> Mapping[int, CopyRecord]:
        """The ledger of every open copy per table oid."""
        with self._reading() as pipeline:
            return dict(pipeline.copies)

    def begin_copy(self, record: CopyRecord) -> None:
        """Open the ledger of a copy in place of the table's last one."""
        record = storable_copy(record)
        with self._writing() as pipeline:
            pipeline.copies[record.oid] = replace(record, started_at=datetime.now(UTC))

    def finish_range(self, oid: int, number: int, rows: int) -> None:
        """Note that a range of `rows` rows is durable."""
        with self._writing() as pipeline:
            copy = pipeline.copies.get(oid)
            if copy is not None and number not in copy.finished:
                pipeline.copies[oid] = replace(copy, finished=copy.finished | {number}, rows=copy.rows + rows)

    def end_copy(self, oid: int) -> None:
        """Close the ledger of a copy; idempotent."""
        with self._writing() as pipeline:
            pipeline.copies.pop(oid, None)

    def request(self, oid: int, verb: TableVerb) -> int:
        """Ask the pipeline to do something with a table; the request's id."""
        with self._reading() as pipeline:
            if not pipeline.epoch:
                raise never_ran(self._pipeline_id)
            last = [request for request in pipeline.requests.values() if request.oid == oid][-1:]
            if last and last[0].verb is verb:
                return last[0].id
            self._database.last_request += 1
            request = TableRequest(self._database.last_request, oid, verb, datetime.now(UTC))
            pipeline.requests[request.id] = request
            return request.id

    def requests(self) -> list[TableRequest]:
        """The requests that wait, oldest first."""
        with self._reading() as pipeline:
            return list(pipeline.requests.values())

    def request_outcome(self, request_id: int) -> str | None:
        """What became of a request; None while it waits."""
        with self._reading() as pipeline:
            return pipeline.settled.get(request_id)

    def settle_request(self, request_id: int, outcome: str) -> None:
        """Say what became of a request, and forget old ones."""
        with self._writing() as pipeline:
            if pipeline.requests.pop(request_id, None) is not None:
                pipeline.settled[request_id] = storable_text(outcome)
            for old in list(pipeline.settled)[:-KEPT_REQUESTS]:
                del pipeline.settled[old]

    # --- life cycle of a table and of the pipeline ------------------------------------------------------------

    def prepare_for_copy(self, oid: int) -> None:
        """Atomically delete a table's destination metadata, schema versions and copy."""
        with self._writing() as pipeline:
            pipeline.forget_copied(oid)
            pipeline.destinations.pop(oid, None)

    def forget_table(self, oid: int) -> None:
        """Forget a table that left the publication, but for its destination metadata."""
        with self._writing() as pipeline:
            pipeline.forget_copied(oid)
            pipeline.history.pop(oid, None)

    def delete_table(self, oid: int) -> None:
        """Forget a table altogether."""
        with self._writing() as pipeline:
            pipeline.forget_copied(oid)
            pipeline.history.pop(oid, None)
            pipeline.destinations.pop(oid, None)

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

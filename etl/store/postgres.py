"""The state store in a Postgres database, schema ``etl``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

from etl.errors import PipelineActiveError
from etl.lsn import Lsn, SnapshotId
from etl.schema.table import TableSchema
from etl.store import (
    copy_rows,
    destination_rows,
    migrations,
    ownership,
    request_rows,
    schema_rows,
    state_rows,
)
from etl.store.base import (
    CopyRecord,
    DestinationRecord,
    PipelineOwner,
    StateStore,
    TableRequest,
    TableStateRecord,
    TableVerb,
)
from etl.store.connection import Connection, Conninfo, StoreSession
from etl.store.rules import checked_schema, closed, not_acquired, storable, storable_copy
from etl.telemetry.pulse import Awaited, waiting

T = TypeVar("T")

_APPLICATION_NAME = "supabase_etl_replicator_store:{}"
_DELETE_PIPELINE = "DELETE FROM etl.pipelines WHERE pipeline_id = %s"

#: What begins anew with a copy.
_COPIED = (schema_rows.delete_schemas, copy_rows.delete_copy)


class PostgresStore(StateStore):
    """One pipeline's state in Postgres 14 or newer; several threads may share it.

    Connections are opened when first needed, and again when they break: every operation can be repeated safely.
    `conninfo` is a libpq connection string or its parameters, TLS among them. It must lead to one session and not
    through a pooler that shares sessions, for the lock of the pipeline is the session's.
    """

    def __init__(self, conninfo: Conninfo, pipeline_id: int) -> None:
        """Connects to nothing yet. Raises `StoreError` for a malformed `conninfo`."""
        self._pipeline_id = pipeline_id
        name = _APPLICATION_NAME.format(pipeline_id)
        self._session = StoreSession(conninfo, name, greet=migrations.refuse_newer)
        self._lock = ownership.PipelineLock(conninfo, pipeline_id, f"{name}:lock")
        self._guard = threading.RLock()
        self._epoch: int | None = None
        self._closed = False

    def acquire(self) -> int:
        """Take the pipeline, create or upgrade the store, and return the new epoch."""
        with waiting(Awaited.STORE), self._guard:
            self._closed = False
            self._take_lock()
            try:
                self._session.run(migrations.migrate)
                self._epoch = self._session.run(
                    lambda connection: ownership.take_epoch(connection, self._pipeline_id)
                )
            except BaseException:
                self._lock.release()
                raise
            return self._epoch

    def close(self) -> None:
        """Release the pipeline and the connections; idempotent."""
        with self._guard:
            self._closed = True
            self._epoch = None
            self._lock.release()
            self._session.close()

    def owner(self) -> PipelineOwner | None:
        """The last owner, None when the pipeline never ran."""
        return self._read(ownership.load_owner)

    # --- table states and progress ----------------------------------------------------------------------------

    def table_states(self) -> Mapping[int, TableStateRecord]:
        """Present state per table oid."""
        return self._read(state_rows.load_states)

    def set_table_state(self, record: TableStateRecord) -> None:
        """Record a state; the earlier one stays in the history."""
        record = storable(record)
        self._write(lambda connection, pipeline: state_rows.save_state(connection, pipeline, record))

    def table_state_history(self, oid: int) -> list[TableStateRecord]:
        """All states of a table, oldest first."""
        return self._read(lambda connection, pipeline: state_rows.load_history(connection, pipeline, oid))

    def progress(self) -> Lsn | None:
        """The durable flush LSN of the stream."""
        return self._read(state_rows.load_progress)

    def save_progress(self, lsn: Lsn) -> None:
        """Advance the durable flush LSN; never lowers it."""
        self._write(lambda connection, pipeline: state_rows.save_progress(connection, pipeline, lsn))

    def reset_progress(self) -> None:
        """Forget the stream's progress."""
        self._write(state_rows.delete_progress)

    # --- schema versions and destination metadata -------------------------------------------------------------

    def schemas(self, oid: int | None = None) -> list[TableSchema]:
        """Stored schema versions, by oid and ascending snapshot id."""
        return self._read(lambda connection, pipeline: schema_rows.load_schemas(connection, pipeline, oid))

    def save_schema(self, schema: TableSchema) -> None:
        """Store a version; storing the same (oid, snapshot id) again replaces it."""
        schema = checked_schema(schema)
        self._write(lambda connection, pipeline: schema_rows.save_schema(connection, pipeline, schema))

    def prune_schemas(self, oid: int, below: SnapshotId) -> int:
        """Drop versions that nothing can need any more; how many."""
        return self._write(
            lambda connection, pipeline: schema_rows.prune_schemas(connection, pipeline, oid, below)
        )

    def destination_records(self) -> Mapping[int, DestinationRecord]:
        """Destination metadata per table oid."""
        return self._read(destination_rows.load_records)

    def save_destination_record(self, record: DestinationRecord) -> None:
        """Upsert a table's destination metadata."""
        self._write(lambda connection, pipeline: destination_rows.save_record(connection, pipeline, record))

    # --- copies and requests ----------------------------------------------------------------------------------

    def copies(self) -> Mapping[int, CopyRecord]:
        """The ledger of every open copy per table oid."""
        return self._read(copy_rows.load_copies)

    def begin_copy(self, record: CopyRecord) -> None:
        """Open the ledger of a copy in place of the table's last one."""
        record = storable_copy(record)
        self._write(lambda connection, pipeline: copy_rows.begin_copy(connection, pipeline, record))

    def finish_range(self, oid: int, number: int, rows: int) -> None:
        """Note that a range of `rows` rows is durable."""
        self._write(
            lambda connection, pipeline: copy_rows.finish_range(connection, pipeline, oid, number, rows)
        )

    def end_copy(self, oid: int) -> None:
        """Close the ledger of a copy; idempotent."""
        self._write(lambda connection, pipeline: copy_rows.delete_copy(connection, pipeline, oid))

    def request(self, oid: int, verb: TableVerb) -> int:
        """Ask the pipeline to do something with a table; the request's id."""
        return self._read(
            lambda connection, pipeline: request_rows.add_request(connection, pipeline, oid, verb)
        )

    def requests(self) -> list[TableRequest]:
        """The requests that wait, oldest first."""
        return self._read(request_rows.load_requests)

    def request_outcome(self, request_id: int) -> str | None:
        """What became of a request; None while it waits."""
        return self._read(
            lambda connection, pipeline: request_rows.load_outcome(connection, pipeline, request_id)
        )

    def settle_request(self, request_id: int, outcome: str) -> None:
        """Say what became of a request, and forget old ones."""
        self._write(
            lambda connection, pipeline: request_rows.settle_request(
                connection, pipeline, request_id, outcome
            )
        )

    # --- life cycle of a table and of the pipeline ------------------------------------------------------------

    def prepare_for_copy(self, oid: int) -> None:
        """Atomically delete a table's destination metadata, schema versions and copy."""
        self._delete(oid, destination_rows.delete_record, *_COPIED)

    def forget_table(self, oid: int) -> None:
        """Forget a table that left the publication, but for its destination metadata."""
        self._delete(oid, state_rows.delete_states, *_COPIED)

    def delete_table(self, oid: int) -> None:
        """Forget a table altogether."""
        self._delete(oid, state_rows.delete_states, destination_rows.delete_record, *_COPIED)

    def destroy(self) -> None:
        """Delete all state of this pipeline."""
        self._write(lambda connection, pipeline: connection.execute(_DELETE_PIPELINE, (pipeline,)))

    # --- how all of them run ----------------------------------------------------------------------------------

    def _read(self, work: Callable[[Connection, int], T]) -> T:
        """Run `work` in a transaction; it is one that anybody may do."""
        with waiting(Awaited.STORE), self._guard:
            if self._closed:
                raise closed(self._pipeline_id)
            return self._session.run(lambda connection: work(connection, self._pipeline_id))

    def _write(self, work: Callable[[Connection, int], T]) -> T:
        """Run `work` in a transaction that commits only while the pipeline is ours."""
        with waiting(Awaited.STORE), self._guard:
            epoch = self._epoch
            if self._closed:
                raise closed(self._pipeline_id)
            if epoch is None:
                raise not_acquired(self._pipeline_id)
            self._take_lock()

            def fenced(connection: Connection) -> T:
                ownership.fence(connection, self._pipeline_id, epoch)
                return work(connection, self._pipeline_id)

            return self._session.run(fenced)

    def _delete(self, oid: int, *deletions: Callable[[Connection, int, int], None]) -> None:
        """Run all `deletions` of a table in one transaction."""

        def delete(connection: Connection, pipeline: int) -> None:
            for deletion in deletions:
                deletion(connection, pipeline, oid)

        self._write(delete)

    def _take_lock(self) -> None:
        """Take the lock, unless it is held already; it is lost when its connection breaks."""
        if not self._lock.take():
            raise self._active()

    def _active(self) -> PipelineActiveError:
        return self._session.run(lambda connection: ownership.pipeline_active(connection, self._pipeline_id))

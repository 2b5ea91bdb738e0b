"""Applying and Applied, recorded in the state store with both endpoints of the change."""

from __future__ import annotations

import threading

from etl.destinations.base import (
    DestinationMetadata,
    DestinationTable,
    SchemaJournal,
    SchemaStatus,
    TableMode,
)
from etl.errors import StoreError
from etl.lsn import SnapshotId
from etl.schema.table import ReplicatedTableSchema, TableSchema
from etl.store.base import DestinationRecord, StateStore


class StoreJournal(SchemaJournal):
    """A `SchemaJournal` over a `StateStore`. Reads come from memory once known: one process owns a pipeline.

    Thread-safe: copying threads record the tables they create.
    """

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._lock = threading.RLock()
        self._known: dict[int, DestinationMetadata | None] = {}
        self._records = dict(store.destination_records())

    def get(self, oid: int) -> DestinationMetadata | None:
        """The recorded state of a table, or None when it was never created."""
        with self._lock:
            if oid not in self._known:
                record = self._records.get(oid)
                self._known[oid] = None if record is None else self._load(record)
            return self._known[oid]

    def put(self, metadata: DestinationMetadata) -> None:
        """Record durably before returning. The schema versions it names are stored already."""
        schema, previous = metadata.schema, metadata.previous
        self._store.save_destination_record(
            DestinationRecord(
                oid=metadata.table.oid,
                destination_table=metadata.table.name,
                mode=metadata.table.mode.value,
                status=metadata.status.value,
                snapshot_id=schema.schema.snapshot_id,
                replication_mask=schema.replication_mask,
                identity_mask=schema.identity_mask,
                previous_snapshot_id=None if previous is None else previous.schema.snapshot_id,
                previous_replication_mask=None if previous is None else previous.replication_mask,
                previous_identity_mask=None if previous is None else previous.identity_mask,
            )
        )
        with self._lock:
            self._known[metadata.table.oid] = metadata

    def forget(self, oid: int) -> None:
        """The table is copied anew, or left the publication."""
        with self._lock:
            self._known.pop(oid, None)
            self._records.pop(oid, None)

    def _load(self, record: DestinationRecord) -> DestinationMetadata:
        versions = {schema.snapshot_id: schema for schema in self._store.schemas(record.oid)}
        previous = None
        if record.previous_snapshot_id is not None:
            previous = _replicated(
                versions,
                record.oid,
                record.previous_snapshot_id,
                record.previous_replication_mask or (),
                record.previous_identity_mask or (),
            )
        return DestinationMetadata(
            table=DestinationTable(record.oid, record.destination_table, TableMode(record.mode)),
            status=SchemaStatus(record.status),
            schema=_replicated(
                versions, record.oid, record.snapshot_id, record.replication_mask, record.identity_mask
            ),
            previous=previous,
        )


def _replicated(
    versions: dict[SnapshotId, TableSchema],
    oid: int,
    snapshot_id: SnapshotId,
    replication_mask: tuple[bool, ...],
    identity_mask: tuple[bool, ...],
) -> ReplicatedTableSchema:
    schema = versions.get(snapshot_id)
    if schema is None or len(schema.columns) != len(replication_mask):
        raise StoreError(
            f"the schema version {snapshot_id} of the table with oid {oid}, which the destination metadata names,"
            " is missing or has another width",
            hint="the state store was changed by hand or restored in part: restore it whole",
        )
    return ReplicatedTableSchema(schema, replication_mask, identity_mask)

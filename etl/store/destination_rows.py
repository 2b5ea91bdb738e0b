"""Destination metadata as rows (`sql/store/0004_destination_tables_metadata.sql`)."""

from __future__ import annotations

from typing import Any

from etl.lsn import Lsn, SnapshotId
from etl.store.base import DestinationRecord
from etl.store.connection import Connection

_LOAD = """
SELECT table_id, destination_table_id, mode, schema_status,
       snapshot_commit_lsn, snapshot_message_lsn, replication_mask, identity_mask,
       previous_snapshot_commit_lsn, previous_snapshot_message_lsn, previous_replication_mask, previous_identity_mask
FROM etl.destination_tables_metadata WHERE pipeline_id = %s
"""
_UPSERT = """
INSERT INTO etl.destination_tables_metadata (
    pipeline_id, table_id, destination_table_id, mode, schema_status,
    snapshot_commit_lsn, snapshot_message_lsn, replication_mask, identity_mask,
    previous_snapshot_commit_lsn, previous_snapshot_message_lsn, previous_replication_mask, previous_identity_mask)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline_id, table_id) DO UPDATE SET
    destination_table_id = excluded.destination_table_id, mode = excluded.mode,
    schema_status = excluded.schema_status,
    snapshot_commit_lsn = excluded.snapshot_commit_lsn, snapshot_message_lsn = excluded.snapshot_message_lsn,
    replication_mask = excluded.replication_mask, identity_mask = excluded.identity_mask,
    previous_snapshot_commit_lsn = excluded.previous_snapshot_commit_lsn,
    previous_snapshot_message_lsn = excluded.previous_snapshot_message_lsn,
    previous_replication_mask = excluded.previous_replication_mask,
    previous_identity_mask = excluded.previous_identity_mask,
    updated_at = now()
"""
_DELETE = "DELETE FROM etl.destination_tables_metadata WHERE pipeline_id = %s AND table_id = %s"


def load_records(connection: Connection, pipeline_id: int) -> dict[int, DestinationRecord]:
    """Destination metadata per table oid."""
    rows = connection.execute(_LOAD, (pipeline_id,)).fetchall()
    return {row[0]: _record(row) for row in rows}


def save_record(connection: Connection, pipeline_id: int, record: DestinationRecord) -> None:
    """Upsert a table's destination metadata."""
    endpoint = (
        *_lsns(record.snapshot_id),
        _bytes(record.replication_mask),
        _bytes(record.identity_mask),
    )
    previous = (
        *_lsns(record.previous_snapshot_id),
        _bytes(record.previous_replication_mask),
        _bytes(record.previous_identity_mask),
    )
    values = (record.oid, record.destination_table, record.mode, record.status, *endpoint, *previous)
    connection.execute(_UPSERT, (pipeline_id, *values))


def delete_record(connection: Connection, pipeline_id: int, oid: int) -> None:
    """Forget a table's destination metadata."""
    connection.execute(_DELETE, (pipeline_id, oid))


def _record(row: tuple[Any, ...]) -> DestinationRecord:
    oid, table, mode, status, commit, message, replication, identity, *previous = row
    previous_commit, previous_message, previous_replication, previous_identity = previous
    return DestinationRecord(
        oid,
        table,
        mode,
        status,
        SnapshotId(Lsn.parse(commit), Lsn.parse(message)),
        _mask(replication),
        _mask(identity),
        None
        if previous_commit is None
        else SnapshotId(Lsn.parse(previous_commit), Lsn.parse(previous_message)),
        None if previous_replication is None else _mask(previous_replication),
        None if previous_identity is None else _mask(previous_identity),
    )


def _lsns(snapshot_id: SnapshotId | None) -> tuple[str | None, str | None]:
    if snapshot_id is None:
        return None, None
    return str(snapshot_id.commit_lsn), str(snapshot_id.message_lsn)


def _bytes(mask: tuple[bool, ...] | None) -> bytes | None:
    return None if mask is None else bytes(mask)


def _mask(stored: bytes) -> tuple[bool, ...]:
    return tuple(byte != 0 for byte in stored)

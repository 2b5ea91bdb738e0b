"""What a pipeline tells about itself: the status of its slot and tables, and a table's schema history."""

from __future__ import annotations

from dataclasses import dataclass

from etl.lsn import Lsn, SnapshotId


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """A replication slot as ``pg_replication_slots`` shows it.

    `retained_bytes` is the WAL the slot holds back; `lag_bytes` what the server wrote after the confirmed position.
    Everything but the name is empty when it does not exist.
    """

    name: str
    exists: bool
    active: bool = False
    restart_lsn: Lsn | None = None
    confirmed_flush_lsn: Lsn | None = None
    wal_status: str | None = None
    retained_bytes: int | None = None
    lag_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table: its state, its place at the destination, and for an errored one the reason and the way out."""

    oid: int
    name: str
    state: str
    mode: str
    destination_table: str | None = None
    schema_status: str | None = None
    snapshot_id: SnapshotId | None = None
    rows: int | None = None
    reason: str | None = None
    solution: str | None = None


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline at one moment. `holder` describes the process that runs it, None when none does."""

    pipeline_id: int
    name: str
    slot: SlotStatus
    progress_lsn: Lsn | None
    epoch: int | None
    holder: str | None
    tables: tuple[TableStatus, ...]


@dataclass(frozen=True, slots=True)
class SchemaLogEntry:
    """One version of a table's schema: when it began, its columns as text, and what changed since the one before.

    `status` is where the destination stands with it (creating, applying, applied), empty for versions it passed.
    """

    snapshot_id: SnapshotId
    commit_lsn: Lsn
    table: str
    columns: tuple[str, ...]
    changes: tuple[str, ...]
    status: str = ""

"""What a pipeline tells about itself: the status of its slot and tables, a table's schema history, what became of requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from etl.lsn import Lsn, SnapshotId


class TablePhase(StrEnum):
    """Where a table stands, in the words that people read."""

    QUEUED = "queued"
    COPYING = "copying"
    CATCHING_UP = "catching up"
    STREAMING = "streaming"
    PAUSED = "paused"
    ERROR = "error"
    LEFT = "left"


#: The words for the states of the state store (`etl.store.base.TableState`). A table that left has no state.
PHASES: Mapping[str | None, TablePhase] = {
    "init": TablePhase.QUEUED,
    "data_sync": TablePhase.COPYING,
    "finished_copy": TablePhase.CATCHING_UP,
    "sync_wait": TablePhase.CATCHING_UP,
    "catchup": TablePhase.CATCHING_UP,
    "sync_done": TablePhase.STREAMING,
    "ready": TablePhase.STREAMING,
    "paused": TablePhase.PAUSED,
    "errored": TablePhase.ERROR,
    None: TablePhase.LEFT,
}


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
class CopyStatus:
    """A copy under way: how many of its ranges and rows are durable, and in `note` why it started over."""

    ranges: int
    finished: int
    rows: int
    started_at: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table: its state, its place at the destination, and for an errored one the reason and the way out.

    `state` is the store's, None for a table that left the publication and is still at the destination; `phase` is the
    same for people, `since` when the state was recorded. `requested` are the verbs that were asked and wait.
    """

    oid: int
    name: str
    state: str | None
    phase: TablePhase
    mode: str
    destination_table: str | None = None
    schema_status: str | None = None
    snapshot_id: SnapshotId | None = None
    rows: int | None = None
    reason: str | None = None
    solution: str | None = None
    since: datetime | None = None
    copy: CopyStatus | None = None
    retry_at: datetime | None = None
    attempts: int = 0
    requested: tuple[str, ...] = ()


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


class RequestState(StrEnum):
    """What is known of a request when the verb that made it ends."""

    DONE = "done"
    REFUSED = "refused"
    #: nobody waited for it
    ASKED = "asked"
    #: the process that runs the pipeline has not answered in time
    LATE = "late"
    #: no process runs the pipeline: the next one does it
    RECORDED = "recorded"


@dataclass(frozen=True, slots=True)
class RequestReport:
    """One request: of which table, and what became of it. `outcome` is the daemon's answer."""

    id: int
    table: str
    verb: str
    state: RequestState
    outcome: str | None = None

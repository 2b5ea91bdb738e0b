"""The state store's contract: what a pipeline must remember to continue after any crash.

Names and meaning follow the field's: table states with history, schema versions per table, destination metadata,
replication progress. Writes go to the database before anything depends on them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from etl.errors import RetryPolicy
from etl.lsn import Lsn, SnapshotId
from etl.schema.table import TableSchema


class TableState(StrEnum):
    """The life of a table in a pipeline (see `etl.pipeline.states` for the legal moves)."""

    INIT = "init"
    DATA_SYNC = "data_sync"
    FINISHED_COPY = "finished_copy"
    SYNC_WAIT = "sync_wait"
    CATCHUP = "catchup"
    SYNC_DONE = "sync_done"
    READY = "ready"
    PAUSED = "paused"
    ERRORED = "errored"


#: The store refuses to record them: a restart finds the state before.
NEVER_RECORDED = frozenset({TableState.SYNC_WAIT, TableState.CATCHUP})

#: How the outcome of a request begins that was not carried out; the reason follows.
REFUSED = "refused: "

#: So many settled requests are kept, for those who ask late.
KEPT_REQUESTS = 100


class TableVerb(StrEnum):
    """What a person may ask for a table (see `docs/how-to/life-of-a-table.md`)."""

    PAUSE = "pause"
    RESUME = "resume"
    RESYNC = "resync"
    RETRY = "retry"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Shown:
    """What the publication showed of a table when it was last looked at.

    The oids of its `entries` there, the text of its row filter, the attnums of its column list (None: no list), and the
    partitions that were attached to it (see `etl.source.publication.PublishedTable`).
    """

    entries: frozenset[int] = frozenset()
    row_filter: str | None = None
    columns: frozenset[int] | None = None
    attached: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TableStateRecord:
    """A table's present state.

    `sync_lsn` is the consistent point of its copy's snapshot: transactions that commit
    below it are in the copy. `backlog` names the backlog on local disk that keeps the table's
    later changes. `reason`, `solution` and `retry` are set for ERRORED, and for an error that is
    retried by itself `retry_at`, with its time zone, and the `attempts` so far. `shown` is None for a
    table that was recorded before etl remembered it.
    """

    oid: int
    state: TableState
    sync_lsn: Lsn | None = None
    reason: str | None = None
    solution: str | None = None
    retry: RetryPolicy | None = None
    backlog: str | None = None
    retry_at: datetime | None = None
    attempts: int = 0
    shown: Shown | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CopyRecord:
    """The ledger of a table's copy: which of its ranges, numbered 0 … `ranges` - 1, are durable at the destination.

    All of them are read under `snapshot`, as of `consistent_point`. `note` tells people why a copy started over.
    """

    oid: int
    snapshot: str
    consistent_point: Lsn
    ranges: int
    finished: frozenset[int] = frozenset()
    rows: int = 0
    started_at: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """What somebody asked for a table. `outcome` says for people what became of it, None while it waits."""

    id: int
    oid: int
    verb: TableVerb
    requested_at: datetime
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class DestinationRecord:
    """A row of destination metadata: status and both endpoints of the change, masks as one bool per column."""

    oid: int
    destination_table: str
    mode: str
    status: str
    snapshot_id: SnapshotId
    replication_mask: tuple[bool, ...]
    identity_mask: tuple[bool, ...]
    previous_snapshot_id: SnapshotId | None = None
    previous_replication_mask: tuple[bool, ...] | None = None
    previous_identity_mask: tuple[bool, ...] | None = None


@dataclass(frozen=True, slots=True)
class PipelineOwner:
    """Who has run the pipeline last: its epoch, and a description of the process while it still holds the pipeline."""

    epoch: int
    holder: str | None


class StateStore(ABC):
    """One pipeline's state. Raises `StoreUnavailableError`, `StoreError`, `PipelineActiveError` only.

    Several threads may share a store. Anyone may read, and `request`; only who has acquired the pipeline writes, and a
    write of somebody whose pipeline was acquired by another since raises `PipelineActiveError` and changes nothing. What
    a write returns from is durable.
    """

    @abstractmethod
    def acquire(self) -> int:
        """Take the pipeline exclusively for this store and return the new epoch.

        It is greater than any before (64 bits; also after the state was lost or restored from a backup). A store that
        has the pipeline, or was closed, may acquire again. Raises `PipelineActiveError`, naming the holder, when another
        store has it.
        """

    @abstractmethod
    def owner(self) -> PipelineOwner | None:
        """The last owner, None when the pipeline never ran. Needs no `acquire`."""

    @abstractmethod
    def close(self) -> None:
        """Release the pipeline and the connections; idempotent."""

    @abstractmethod
    def table_states(self) -> Mapping[int, TableStateRecord]:
        """Present state per table oid."""

    @abstractmethod
    def set_table_state(self, record: TableStateRecord) -> None:
        """Record a state; the earlier one stays in the history.

        The present state once more only renews its time. `updated_at` is the store's to say, whatever `record` holds.
        Raises `StoreError` for a state of `NEVER_RECORDED`.
        """

    @abstractmethod
    def table_state_history(self, oid: int) -> list[TableStateRecord]:
        """All states of a table, oldest first."""

    @abstractmethod
    def schemas(self, oid: int | None = None) -> list[TableSchema]:
        """Stored schema versions of one table or all, by oid and ascending snapshot id."""

    @abstractmethod
    def save_schema(self, schema: TableSchema) -> None:
        """Store a version, exactly; storing the same (oid, snapshot id) again replaces it."""

    @abstractmethod
    def prune_schemas(self, oid: int, below: SnapshotId) -> int:
        """Drop versions that neither a replay from `below` nor an unfinished destination change can need.

        Keeps the newest version <= `below`, everything after it, and both endpoints in destination metadata.
        Returns how many were dropped.
        """

    @abstractmethod
    def destination_records(self) -> Mapping[int, DestinationRecord]:
        """Destination metadata per table oid."""

    @abstractmethod
    def save_destination_record(self, record: DestinationRecord) -> None:
        """Upsert a table's destination metadata."""

    @abstractmethod
    def copies(self) -> Mapping[int, CopyRecord]:
        """The ledger of every copy that began and has not ended, per table oid."""

    @abstractmethod
    def begin_copy(self, record: CopyRecord) -> None:
        """Open the ledger of a copy in place of the table's last one. `started_at` is the store's to say."""

    @abstractmethod
    def finish_range(self, oid: int, number: int, rows: int) -> None:
        """Note that a range of `rows` rows is durable. One that was noted before, or of no open copy, changes nothing."""

    @abstractmethod
    def end_copy(self, oid: int) -> None:
        """Close the ledger of a copy; idempotent."""

    @abstractmethod
    def request(self, oid: int, verb: TableVerb) -> int:
        """Ask the pipeline to do something with a table; the request's id. Needs no `acquire`.

        What was last asked for the table, and waits still, is not asked twice. Raises `StoreError` when the pipeline
        never ran.
        """

    @abstractmethod
    def requests(self) -> list[TableRequest]:
        """The requests that wait, oldest first."""

    @abstractmethod
    def request_outcome(self, request_id: int) -> str | None:
        """What became of a request; None while it waits, or when it is forgotten."""

    @abstractmethod
    def settle_request(self, request_id: int, outcome: str) -> None:
        """Say what became of a request, `REFUSED` and the reason when nothing did; the first outcome stays.

        Of the settled requests the last `KEPT_REQUESTS` are kept.
        """

    @abstractmethod
    def progress(self) -> Lsn | None:
        """The durable flush LSN of the stream, None before the first."""

    @abstractmethod
    def save_progress(self, lsn: Lsn) -> None:
        """Advance the durable flush LSN; never lowers it."""

    @abstractmethod
    def prepare_for_copy(self, oid: int) -> None:
        """Atomically delete a table's destination metadata, schema versions and copy; its state stays."""

    @abstractmethod
    def reset_progress(self) -> None:
        """Forget the stream's progress (before a new slot is created, so that it cannot skip data)."""

    @abstractmethod
    def forget_table(self, oid: int) -> None:
        """Forget a table that left the publication: state, schema versions and copy.

        Its destination metadata stays, for the destination keeps the table.
        """

    @abstractmethod
    def delete_table(self, oid: int) -> None:
        """Forget a table altogether, but for requests; destination data is not touched."""

    @abstractmethod
    def destroy(self) -> None:
        """Delete all state of this pipeline; it stays taken until `close`, and to write again it must be acquired anew."""

"""All metrics of etl: their names, what they mean, and the values their labels take.

Names follow the Prometheus practice: one prefix, base units, ``_total`` on counters. Every metric is labelled with the
pipeline. The page docs/reference/metrics.md is made from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

#: Beyond this many tables, the rest share the label `OTHER_TABLES`.
TABLE_LABEL_LIMIT: Final = 200
OTHER_TABLES: Final = "(other)"

_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_BYTES = tuple(4**power * 1024 for power in range(11))
_SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class LagStage(StrEnum):
    """How far the stream has come: decoded here, or durable (and so visible) at the destination."""

    RECEIVED = "received"
    DURABLE = "durable"


class BatchStep(StrEnum):
    """The parts of a batch's time."""

    DECODE = "decode"
    WRITE = "write"
    RECORD = "record"


class DestinationCall(StrEnum):
    """What the destination is given to do; each call ends when it is committed."""

    WRITE = "write"
    SCHEMA = "schema"
    COPY = "copy"
    FINISH_COPY = "finish_copy"


class WalStatus(StrEnum):
    """The words of ``pg_replication_slots.wal_status``, and one for a slot that is not there."""

    RESERVED = "reserved"
    EXTENDED = "extended"
    UNRESERVED = "unreserved"
    LOST = "lost"
    MISSING = "missing"


class ChangeOutcome(StrEnum):
    """What became of a change at the destination."""

    APPLIED = "applied"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as dashboards and alerts know it. `name` is the exposed name; `labels` follow ``pipeline``."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> str:
        """``counter``, ``gauge`` or ``histogram``."""
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


REPLICATION_LAG_BYTES = Metric(
    "etl_replication_lag_bytes",
    "WAL the server has written after the last position of this stage.",
    ("stage",),
)
REPLICATION_LAG_SECONDS = Metric(
    "etl_replication_lag_seconds",
    "Age of the oldest WAL that this stage has not reached; 0 where it has reached all.",
    ("stage",),
)
LAST_COMMIT_TIMESTAMP_SECONDS = Metric(
    "etl_last_commit_timestamp_seconds",
    "When the last transaction that is durable at the destination committed at the source.",
)
SLOT_RETAINED_WAL_BYTES = Metric("etl_slot_retained_wal_bytes", "WAL the server keeps because of our slot.")
SLOT_WAL_STATUS = Metric(
    "etl_slot_wal_status",
    "1 for what the server says of the WAL our slot needs, 0 for what it does not say.",
    ("status",),
)
EVENTS = Metric("etl_events_total", "Row and schema events decoded from the stream.", ("op",))
TRANSACTIONS = Metric("etl_transactions_total", "Committed transactions decoded from the stream.")
RECEIVED_BYTES = Metric("etl_received_bytes_total", "Bytes received from the replication stream.")
TABLE_ROWS = Metric("etl_table_rows_total", "Row changes of the stream that are durable.", ("table",))
BATCH_ROWS = Metric("etl_batch_rows", "Rows in one batch given to the destination.", buckets=_ROWS)
BATCH_BYTES = Metric("etl_batch_bytes", "Bytes in one batch given to the destination.", buckets=_BYTES)
BATCH_DURATION_SECONDS = Metric(
    "etl_batch_duration_seconds", "Time one step of a batch took.", ("step",), buckets=_SECONDS
)
DESTINATION_DURATION_SECONDS = Metric(
    "etl_destination_duration_seconds",
    "Time the destination took for one call, its commit included.",
    ("call",),
    buckets=_SECONDS,
)
TABLES = Metric("etl_tables", "Tables in each state.", ("state",))
TABLE_STATE = Metric("etl_table_state", "1 for the state each table is in.", ("table", "state"))
TABLE_COPY_ROWS = Metric("etl_table_copy_rows_total", "Rows copied by initial copies.", ("table",))
TABLE_COPY_ESTIMATED_ROWS = Metric(
    "etl_table_copy_estimated_rows",
    "Rows that a copy under way will have, as the source's planner guesses.",
    ("table",),
)
TABLE_COPY_RANGES = Metric(
    "etl_table_copy_ranges", "Ranges of a copy under way: those that are durable, and all.", ("table", "of")
)
BACKLOG_BYTES = Metric(
    "etl_backlog_bytes", "Changes on local disk that wait for a table that is not applied now.", ("table",)
)
DDL_CHANGES = Metric(
    "etl_ddl_changes_total", "Column changes by kind and what became of them.", ("kind", "outcome")
)
DDL_SKIPPED_DEFAULTS = Metric(
    "etl_ddl_skipped_defaults_total",
    "Defaults that were not given to the destination, by reason.",
    ("reason",),
)
DDL_FORGED = Metric(
    "etl_ddl_forged_total", "Schema-change messages ignored for a missing or wrong signature."
)
ERRORS = Metric("etl_errors_total", "Errors by the worker that met them and their kind.", ("worker", "kind"))
RETRIES = Metric("etl_retries_total", "Attempts made again after an error.", ("worker",))
HANDOFF_QUEUE_BYTES = Metric("etl_handoff_queue_bytes", "Bytes read from the stream and not yet taken up.")
BACKPRESSURE_SECONDS = Metric(
    "etl_backpressure_seconds_total", "Time the reader did not read because the hand-off queue was full."
)
STATUS_UPDATES = Metric("etl_status_updates_total", "Status updates sent to the server.", ("reason",))
PROCESS_MEMORY_BYTES = Metric(
    "etl_process_resident_memory_bytes", "Memory of this process that is in RAM; a JVM is another process."
)
START_TIMESTAMP_SECONDS = Metric(
    "etl_start_timestamp_seconds", "When this process began to run the pipeline."
)
BUILD_INFO = Metric("etl_build_info", "1, labelled with what runs.", ("version", "python"))

ALL_METRICS: Final = (
    REPLICATION_LAG_BYTES,
    REPLICATION_LAG_SECONDS,
    LAST_COMMIT_TIMESTAMP_SECONDS,
    SLOT_RETAINED_WAL_BYTES,
    SLOT_WAL_STATUS,
    EVENTS,
    TRANSACTIONS,
    RECEIVED_BYTES,
    TABLE_ROWS,
    BATCH_ROWS,
    BATCH_BYTES,
    BATCH_DURATION_SECONDS,
    DESTINATION_DURATION_SECONDS,
    TABLES,
    TABLE_STATE,
    TABLE_COPY_ROWS,
    TABLE_COPY_ESTIMATED_ROWS,
    TABLE_COPY_RANGES,
    BACKLOG_BYTES,
    DDL_CHANGES,
    DDL_SKIPPED_DEFAULTS,
    DDL_FORGED,
    ERRORS,
    RETRIES,
    HANDOFF_QUEUE_BYTES,
    BACKPRESSURE_SECONDS,
    STATUS_UPDATES,
    PROCESS_MEMORY_BYTES,
    START_TIMESTAMP_SECONDS,
    BUILD_INFO,
)

#: Label values that are known beforehand: each is exposed from the start, so that a rate over it sees its first event.
KNOWN_LABELS: Final = {
    EVENTS: ("insert", "update", "delete", "truncate", "relation"),
    RETRIES: ("apply", "table", "table_sync"),
    STATUS_UPDATES: ("keep_alive", "flushed", "periodic", "probe", "shutdown"),
}

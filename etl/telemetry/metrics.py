"""All metrics of etl, and the only way to move them.

Names follow the Prometheus practice: one prefix, base units, ``_total`` on counters. Every metric is labelled with
the pipeline; labels are small closed sets, and tables beyond a limit share one label value.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

import etl

#: Beyond this many tables, the rest share the label `OTHER_TABLES`.
TABLE_LABEL_LIMIT: Final = 200
OTHER_TABLES: Final = "(other)"

_ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
_SECONDS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


class LagStage(StrEnum):
    """How far the stream has come: read from the server, or durable at the destination."""

    RECEIVED = "received"
    DURABLE = "durable"


class BatchStep(StrEnum):
    """The parts of a batch's time."""

    DECODE = "decode"
    WRITE = "write"
    SCHEMA = "schema"
    RECORD = "record"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric as dashboards and alerts know it. `name` is the exposed name; `labels` follow ``pipeline``."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


REPLICATION_LAG_BYTES = Metric(
    "etl_replication_lag_bytes",
    "WAL the server has written after the last position of this stage.",
    ("stage",),
)
SLOT_RETAINED_WAL_BYTES = Metric("etl_slot_retained_wal_bytes", "WAL the server keeps because of our slot.")
EVENTS = Metric("etl_events_total", "Row and schema events decoded from the stream.", ("op",))
TRANSACTIONS = Metric("etl_transactions_total", "Committed transactions decoded from the stream.")
RECEIVED_BYTES = Metric("etl_received_bytes_total", "Bytes received from the replication stream.")
BATCH_ROWS = Metric("etl_batch_rows", "Rows in one batch given to the destination.", buckets=_ROWS)
BATCH_DURATION_SECONDS = Metric(
    "etl_batch_duration_seconds", "Time one step of a batch took.", ("step",), buckets=_SECONDS
)
TABLE_STATE = Metric("etl_table_state", "1 for the state each table is in.", ("table", "state"))
TABLE_COPY_ROWS = Metric("etl_table_copy_rows_total", "Rows copied by initial copies.", ("table",))
DDL_CHANGES = Metric(
    "etl_ddl_changes_total", "Column changes by kind and what became of them.", ("kind", "outcome")
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
BUILD_INFO = Metric("etl_build_info", "1, labelled with what runs.", ("version", "python"))

ALL_METRICS: Final = (
    REPLICATION_LAG_BYTES,
    SLOT_RETAINED_WAL_BYTES,
    EVENTS,
    TRANSACTIONS,
    RECEIVED_BYTES,
    BATCH_ROWS,
    BATCH_DURATION_SECONDS,
    TABLE_STATE,
    TABLE_COPY_ROWS,
    DDL_CHANGES,
    DDL_FORGED,
    ERRORS,
    RETRIES,
    HANDOFF_QUEUE_BYTES,
    BACKPRESSURE_SECONDS,
    STATUS_UPDATES,
    BUILD_INFO,
)


class Metrics:
    """The metrics of one process, in a registry of its own. Safe to use from any thread."""

    def __init__(self, pipeline: str, registry: CollectorRegistry | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it untyped
        self.registry = CollectorRegistry() if registry is None else registry
        self._pipeline = pipeline
        self._tables: set[str] = set()
        self._states: dict[str, str] = {}
        self._lag = self._gauge(REPLICATION_LAG_BYTES)
        self._retained = self._gauge(SLOT_RETAINED_WAL_BYTES)
        self._events = self._counter(EVENTS)
        self._transactions = self._counter(TRANSACTIONS)
        self._received = self._counter(RECEIVED_BYTES)
        self._batch_rows = self._histogram(BATCH_ROWS)
        self._batch_duration = self._histogram(BATCH_DURATION_SECONDS)
        self._table_state = self._gauge(TABLE_STATE)
        self._copy_rows = self._counter(TABLE_COPY_ROWS)
        self._ddl = self._counter(DDL_CHANGES)
        self._forged = self._counter(DDL_FORGED)
        self._errors = self._counter(ERRORS)
        self._retries = self._counter(RETRIES)
        self._handoff = self._gauge(HANDOFF_QUEUE_BYTES)
        self._backpressure = self._counter(BACKPRESSURE_SECONDS)
        self._status_updates = self._counter(STATUS_UPDATES)
        self._gauge(BUILD_INFO).labels(pipeline, etl.__version__, platform.python_version()).set(1)

    def lag(self, stage: LagStage, lag_bytes: int) -> None:
        """How many bytes of WAL the stage is behind the server."""
        self._lag.labels(self._pipeline, stage).set(lag_bytes)

    def slot_retained_wal(self, retained_bytes: int) -> None:
        """How many bytes of WAL the slot holds back."""
        self._retained.labels(self._pipeline).set(retained_bytes)

    def events(self, op: str, count: int = 1) -> None:
        """`count` events of one kind were decoded (``insert update delete truncate relation``)."""
        self._events.labels(self._pipeline, op).inc(count)

    def transactions(self, count: int = 1) -> None:
        """`count` transactions were decoded to their commit."""
        self._transactions.labels(self._pipeline).inc(count)

    def received(self, received_bytes: int) -> None:
        """Bytes came in."""
        self._received.labels(self._pipeline).inc(received_bytes)

    def batch(self, rows: int) -> None:
        """A batch of `rows` rows was written."""
        self._batch_rows.labels(self._pipeline).observe(rows)

    @contextmanager
    def batch_step(self, step: BatchStep) -> Iterator[None]:
        """Measure one step of a batch; a step that fails counts too."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._batch_duration.labels(self._pipeline, step).observe(time.perf_counter() - start)

    def table_state(self, table: str, state: str) -> None:
        """`table` is now in `state`. Tables beyond the label limit are not shown."""
        label = self._table_label(table)
        if label == OTHER_TABLES:
            return
        before = self._states.get(label)
        if before is not None and before != state:
            self._table_state.remove(self._pipeline, label, before)
        self._states[label] = state
        self._table_state.labels(self._pipeline, label, state).set(1)

    def table_gone(self, table: str) -> None:
        """`table` left the pipeline; its state is no longer shown."""
        state = self._states.pop(table, None)
        if state is not None:
            self._table_state.remove(self._pipeline, table, state)

    def copied(self, table: str, rows: int) -> None:
        """`rows` rows of an initial copy are durable."""
        self._copy_rows.labels(self._pipeline, self._table_label(table)).inc(rows)

    def ddl_change(self, kind: str, outcome: str) -> None:
        """A column change was applied, skipped or failed."""
        self._ddl.labels(self._pipeline, kind, outcome).inc()

    def ddl_forged(self) -> None:
        """A schema-change message was ignored because its signature is missing or wrong."""
        self._forged.labels(self._pipeline).inc()

    def error(self, worker: str, kind: str) -> None:
        """A worker met an error (`EtlError.kind`)."""
        self._errors.labels(self._pipeline, worker, kind).inc()

    def retry(self, worker: str) -> None:
        """A worker tries again."""
        self._retries.labels(self._pipeline, worker).inc()

    def handoff_queue(self, queued_bytes: int) -> None:
        """How many bytes wait in the hand-off queue."""
        self._handoff.labels(self._pipeline).set(queued_bytes)

    def backpressure(self, seconds: float) -> None:
        """The reader stood still for `seconds` because the queue was full."""
        self._backpressure.labels(self._pipeline).inc(seconds)

    def status_update(self, reason: str) -> None:
        """A status update was sent (``timer``, ``requested``, ``progress``)."""
        self._status_updates.labels(self._pipeline, reason).inc()

    def _table_label(self, table: str) -> str:
        if table not in self._tables:
            if len(self._tables) >= TABLE_LABEL_LIMIT:
                return OTHER_TABLES
            self._tables.add(table)
        return table

    def _counter(self, metric: Metric) -> Counter:
        return Counter(metric.name, metric.help, ("pipeline", *metric.labels), registry=self.registry)

    def _gauge(self, metric: Metric) -> Gauge:
        return Gauge(metric.name, metric.help, ("pipeline", *metric.labels), registry=self.registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(
            metric.name,
            metric.help,
            ("pipeline", *metric.labels),
            buckets=metric.buckets,
            registry=self.registry,
        )

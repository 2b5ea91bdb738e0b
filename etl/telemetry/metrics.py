"""The only way to move the metrics of `etl.telemetry.metric_names`.

Labels are small closed sets, and tables beyond a limit share one label value: counters and sizes of theirs are added up.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter as Counting
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

import etl
from etl.ddl.operations import SkipReason
from etl.telemetry import metric_names as names
from etl.telemetry.metric_names import (
    OTHER_TABLES,
    TABLE_LABEL_LIMIT,
    BatchStep,
    ChangeOutcome,
    DestinationCall,
    LagStage,
    Metric,
    WalStatus,
)

_MEMORY = Path("/proc/self/statm")


class Metrics:
    """The metrics of one process, in a registry of its own. Safe to use from any thread."""

    def __init__(self, pipeline: str, registry: CollectorRegistry | None = None) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it untyped
        self.registry = CollectorRegistry() if registry is None else registry
        self._pipeline = pipeline
        self._labelled: set[str] = set()
        self._states: dict[str, str] = {}
        self._in_state: Counting[str] = Counting()
        self._lag_bytes = self._gauge(names.REPLICATION_LAG_BYTES)
        self._lag_seconds = self._gauge(names.REPLICATION_LAG_SECONDS)
        self._last_commit = self._gauge(names.LAST_COMMIT_TIMESTAMP_SECONDS)
        self._retained = self._gauge(names.SLOT_RETAINED_WAL_BYTES)
        self._wal_status = self._gauge(names.SLOT_WAL_STATUS)
        self._events = self._counter(names.EVENTS)
        self._transactions = self._counter(names.TRANSACTIONS)
        self._received = self._counter(names.RECEIVED_BYTES)
        self._table_rows = self._counter(names.TABLE_ROWS)
        self._batch_rows = self._histogram(names.BATCH_ROWS)
        self._batch_bytes = self._histogram(names.BATCH_BYTES)
        self._batch_duration = self._histogram(names.BATCH_DURATION_SECONDS)
        self._destination_duration = self._histogram(names.DESTINATION_DURATION_SECONDS)
        self._tables = self._gauge(names.TABLES)
        self._table_state = self._gauge(names.TABLE_STATE)
        self._copy_rows = self._counter(names.TABLE_COPY_ROWS)
        self._copy_estimates = self._gauge(names.TABLE_COPY_ESTIMATED_ROWS)
        self._copy_ranges = self._gauge(names.TABLE_COPY_RANGES)
        self._backlogs = self._gauge(names.BACKLOG_BYTES)
        self._ddl = self._counter(names.DDL_CHANGES)
        self._skipped_defaults = self._counter(names.DDL_SKIPPED_DEFAULTS)
        self._forged = self._counter(names.DDL_FORGED)
        self._errors = self._counter(names.ERRORS)
        self._retries = self._counter(names.RETRIES)
        self._handoff = self._gauge(names.HANDOFF_QUEUE_BYTES)
        self._backpressure = self._counter(names.BACKPRESSURE_SECONDS)
        self._status_updates = self._counter(names.STATUS_UPDATES)
        self._begin()

    def _begin(self) -> None:
        """What is known from the start."""
        for metric, counter in (
            (names.EVENTS, self._events),
            (names.RETRIES, self._retries),
            (names.STATUS_UPDATES, self._status_updates),
        ):
            for value in names.KNOWN_LABELS[metric]:
                counter.labels(self._pipeline, value)
        for reason in SkipReason:
            if reason.is_of_default:
                self._skipped_defaults.labels(self._pipeline, reason.name.lower())
        for unlabelled in (self._transactions, self._received, self._forged, self._backpressure):
            unlabelled.labels(self._pipeline)
        memory = self._gauge(names.PROCESS_MEMORY_BYTES)
        memory.labels(self._pipeline).set_function(resident_memory)
        self._gauge(names.START_TIMESTAMP_SECONDS).labels(self._pipeline).set(time.time())
        build = self._gauge(names.BUILD_INFO)
        build.labels(self._pipeline, etl.__version__, platform.python_version()).set(1)

    # --- the stream ---------------------------------------------------------------------------------------------

    def lag(self, stage: LagStage, lag_bytes: int, lag_seconds: float) -> None:
        """How much WAL the stage is behind the server, and how old the oldest of it is."""
        self._lag_bytes.labels(self._pipeline, stage).set(lag_bytes)
        self._lag_seconds.labels(self._pipeline, stage).set(lag_seconds)

    def last_commit(self, timestamp_s: float) -> None:
        """When the last durable transaction committed at the source."""
        self._last_commit.labels(self._pipeline).set(timestamp_s)

    def slot(self, wal_status: str | None, retained_bytes: int) -> None:
        """What the server says of our slot; None when it has none."""
        self._retained.labels(self._pipeline).set(retained_bytes)
        told = wal_status or WalStatus.MISSING
        for status in WalStatus:
            self._wal_status.labels(self._pipeline, status).set(status == told)

    def events(self, op: str, count: int = 1) -> None:
        """`count` events of one kind were decoded (``insert update delete truncate relation``)."""
        self._events.labels(self._pipeline, op).inc(count)

    def transactions(self, count: int = 1) -> None:
        """`count` transactions were decoded to their commit."""
        self._transactions.labels(self._pipeline).inc(count)

    def received(self, received_bytes: int) -> None:
        """Bytes came in."""
        self._received.labels(self._pipeline).inc(received_bytes)

    def handoff_queue(self, queued_bytes: int) -> None:
        """How many bytes wait in the hand-off queue."""
        self._handoff.labels(self._pipeline).set(queued_bytes)

    def backpressure(self, seconds: float) -> None:
        """The reader stood still for `seconds` because the queue was full."""
        self._backpressure.labels(self._pipeline).inc(seconds)

    def status_update(self, reason: str) -> None:
        """A status update was sent (``keep_alive flushed periodic probe shutdown``)."""
        self._status_updates.labels(self._pipeline, reason).inc()

    # --- batches and the destination ----------------------------------------------------------------------------

    def batch(self, rows: int, nbytes: int) -> None:
        """A batch of `rows` rows was written."""
        self._batch_rows.labels(self._pipeline).observe(rows)
        self._batch_bytes.labels(self._pipeline).observe(nbytes)

    def table_rows(self, table: str, rows: int) -> None:
        """`rows` row changes of the stream are durable."""
        self._table_rows.labels(self._pipeline, self._table_label(table)).inc(rows)

    def batch_step(self, step: BatchStep) -> AbstractContextManager[None]:
        """Measure one step of a batch; a step that fails counts too."""
        return _timed(self._batch_duration.labels(self._pipeline, step))

    def destination_call(self, call: DestinationCall) -> AbstractContextManager[None]:
        """Measure one call of the destination; one that fails counts too."""
        return _timed(self._destination_duration.labels(self._pipeline, call))

    # --- tables -------------------------------------------------------------------------------------------------

    def table_state(self, table: str, state: str) -> None:
        """`table` is now in `state`. Of tables beyond the label limit only the number in each state is shown."""
        before = self._states.get(table)
        self._states[table] = state
        self._count_states(before, state)
        label = self._table_label(table)
        if label == OTHER_TABLES:
            return
        if before is not None and before != state:
            self._table_state.remove(self._pipeline, label, before)
        self._table_state.labels(self._pipeline, label, state).set(1)

    def table_gone(self, table: str) -> None:
        """`table` left the pipeline; its state is no longer shown."""
        state = self._states.pop(table, None)
        if state is None:
            return
        self._count_states(state, None)
        if table in self._labelled:
            self._table_state.remove(self._pipeline, table, state)

    def copied(self, table: str, rows: int) -> None:
        """`rows` rows of an initial copy are durable."""
        self._copy_rows.labels(self._pipeline, self._table_label(table)).inc(rows)

    def copies(self, ranges: Mapping[str, tuple[int, int]], estimates: Mapping[str, int]) -> None:
        """All copies under way: by table the ranges that are durable and all, and the rows expected where known."""
        self._copy_ranges.clear()
        for of, place in (("finished", 0), ("all", 1)):
            for label, value in self._summed({table: each[place] for table, each in ranges.items()}).items():
                self._copy_ranges.labels(self._pipeline, label, of).set(value)
        self._copy_estimates.clear()
        for label, value in self._summed(estimates).items():
            self._copy_estimates.labels(self._pipeline, label).set(value)

    def backlogs(self, sizes: Mapping[str, int]) -> None:
        """All backlogs: bytes by table."""
        self._backlogs.clear()
        for label, value in self._summed(sizes).items():
            self._backlogs.labels(self._pipeline, label).set(value)

    # --- schema changes -----------------------------------------------------------------------------------------

    def ddl_change(self, kind: str, outcome: ChangeOutcome) -> None:
        """A column change was applied, skipped or failed."""
        self._ddl.labels(self._pipeline, kind, outcome).inc()

    def skipped_default(self, reason: SkipReason) -> None:
        """A default was not given to the destination."""
        self._skipped_defaults.labels(self._pipeline, reason.name.lower()).inc()

    def ddl_forged(self) -> None:
        """A schema-change message was ignored because its signature is missing or wrong."""
        self._forged.labels(self._pipeline).inc()

    # --- errors -------------------------------------------------------------------------------------------------

    def error(self, worker: str, kind: str) -> None:
        """A worker met an error (`EtlError.kind`)."""
        self._errors.labels(self._pipeline, worker, kind).inc()

    def retry(self, worker: str) -> None:
        """A worker tries again (``apply table table_sync``)."""
        self._retries.labels(self._pipeline, worker).inc()

    # --- details ------------------------------------------------------------------------------------------------

    def _count_states(self, before: str | None, after: str | None) -> None:
        for state, more in ((before, -1), (after, 1)):
            if state is not None:
                self._in_state[state] += more
                self._tables.labels(self._pipeline, state).set(self._in_state[state])

    def _summed(self, values: Mapping[str, int]) -> Counting[str]:
        """By label: the values of tables that share one are added up."""
        summed: Counting[str] = Counting()
        for table, value in values.items():
            summed[self._table_label(table)] += value
        return summed

    def _table_label(self, table: str) -> str:
        if table not in self._labelled:
            if len(self._labelled) >= TABLE_LABEL_LIMIT:
                return OTHER_TABLES
            self._labelled.add(table)
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


@contextmanager
def _timed(histogram: Histogram) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - start)


def resident_memory() -> float:
    """Bytes of this process that are in RAM; 0 where the system does not tell."""
    try:
        pages = int(_MEMORY.read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return float(pages * os.sysconf("SC_PAGE_SIZE"))

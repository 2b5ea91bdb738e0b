"""Watches a running pipeline from a thread and connections of its own, so that it sees most when the pipeline waits.

The gauges that depend on the source (lag, slot) are set here too: a destination that takes ten minutes for a write holds up
the apply worker, and that is when people look at them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from etl.config.reports import PipelineStatus, SlotStatus, TableStatus
from etl.errors import EtlError
from etl.lsn import SnapshotId
from etl.pipeline.context import PipelineContext
from etl.pipeline.lag import LagClock
from etl.pipeline.observation import RATE_STEP_S, RATE_STEPS, Lag, Observation, SchemaStep
from etl.pipeline.reports import pipeline_status, slot_status, tables
from etl.pipeline.schema_history import describe_changes
from etl.schema.table import TableSchema
from etl.source.connection import Connection, connect_query
from etl.source.slots import current_lsn
from etl.store.base import StateStore
from etl.telemetry.metric_names import LagStage
from etl.telemetry.pulse import PulseState, RunPhase, SchemaOutcome
from etl.telemetry.redaction import redact

_log = structlog.get_logger()
#: What other processes may have changed (requests, above all) is seen after so many steps.
_STEPS_BETWEEN_READS = 5
_KEPT_VERSIONS = 50


class Observer(threading.Thread):
    """One per process. `look` may be called from any thread, also before `start`."""

    def __init__(self, context: PipelineContext, store: StateStore) -> None:
        """`store` is this thread's own; it only reads, and closes it."""
        super().__init__(name="observer", daemon=True)
        self._context = context
        self._store = store
        self._ended = threading.Event()
        self._connection: Connection | None = None
        self._clock = LagClock()
        self._rates = Rates()
        self._versions = SchemaVersions()
        self._history: Mapping[int, tuple[SchemaStep, ...]] = {}
        self._slot: SlotStatus | None = None
        self._read_generation = (-1, -1)
        self._steps = 0
        self._observation = Observation(0, context.pulse.state())

    def look(self) -> Observation:
        """What is known now: the pulse at this moment, the rest as of the last step."""
        state = self._context.pulse.state()
        if self._context.stop.is_set():
            state = replace(state, phase=RunPhase.STOPPING)
        return replace(self._observation, pulse=state)

    def run(self) -> None:
        """Step until closed."""
        try:
            while not self._ended.wait(RATE_STEP_S):
                self.step()
        except Exception as error:  # noqa: BLE001 -- it is not the pipeline: whoever looks sees that nothing is read any more
            _log.error("observer_failed", exc_info=error)
        finally:
            self._disconnect()
            self._store.close()

    def close(self) -> None:
        """End the thread; idempotent."""
        self._ended.set()

    def step(self) -> None:
        """Read what there is to read, and let it be seen."""
        before = self._observation
        report, trouble = before.report, ""
        try:
            report = self._read()
        except EtlError as error:
            trouble = redact(error.message)
            self._read_generation = (-1, -1)
            self._disconnect()
        pulse, now = self._context.pulse.state(), time.monotonic()
        self._rates.note(pulse.rows, now)
        after = replace(
            before,
            pulse=pulse,
            report=report,
            read_at=before.read_at if trouble else datetime.now(UTC),
            trouble=trouble,
            lag=self._lag(pulse, now),
            rates=self._rates.by_table(),
            total_rates=self._rates.total(),
            history=self._history,
        )
        self._measure(after)
        changed = _visible(after) != _visible(before)
        self._observation = replace(after, number=before.number + changed)

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self) -> PipelineStatus:
        context, parameters = self._context, self._context.parameters
        if self._connection is None:
            self._connection = connect_query(parameters, f"observer:{context.pipeline_id}")
        self._slot = slot_status(context.config, self._connection)
        self._clock.note(current_lsn(self._connection, parameters), time.monotonic())
        return pipeline_status(context.config, self._store, self._slot, self._read_tables())

    def _read_tables(self) -> tuple[TableStatus, ...]:
        """The tables; not read again while nothing can have changed."""
        pulse = self._context.pulse.state()
        generation = (pulse.generation, pulse.schemas)
        known = self._observation.report
        self._steps += 1
        idle = generation == self._read_generation and self._steps % _STEPS_BETWEEN_READS
        if known is not None and idle and not any(table.copy for table in known.tables):
            return known.tables
        if generation != self._read_generation:
            self._versions.update(self._store.schemas())
        found = tables(self._context.config, self._store, self._versions.newest())
        if generation != self._read_generation or known is None or found != known.tables:
            self._history = self._versions.steps(found, pulse.outcomes)
        self._read_generation = generation
        return found

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- figures ------------------------------------------------------------------------------------------------

    def _lag(self, pulse: PulseState, now: float) -> Lag | None:
        if not self._clock.end:
            return None
        positions = pulse.positions
        if not positions.applied:
            return None
        self._clock.reached(min(positions.received, positions.applied))
        return Lag(
            received_bytes=self._clock.behind(positions.received),
            durable_bytes=self._clock.behind(positions.applied),
            received_s=self._clock.seconds(positions.received, now),
            durable_s=self._clock.seconds(positions.applied, now),
        )

    def _measure(self, seen: Observation) -> None:
        metrics, pulse = self._context.metrics, seen.pulse
        if seen.lag is not None:
            metrics.lag(LagStage.RECEIVED, seen.lag.received_bytes, seen.lag.received_s)
            metrics.lag(LagStage.DURABLE, seen.lag.durable_bytes, seen.lag.durable_s)
        if self._slot is not None:
            metrics.slot(self._slot.wal_status, self._slot.retained_bytes or 0)
        names = {table.oid: table.name for table in seen.tables}
        metrics.backlogs({names.get(oid, f"oid {oid}"): size for oid, size in pulse.backlogs.items()})
        copies = {table.oid: table.copy for table in seen.tables if table.copy is not None}
        metrics.copies(
            {names[oid]: (copy.finished, copy.ranges) for oid, copy in copies.items()},
            {names[oid]: pulse.estimates[oid] for oid in copies if oid in pulse.estimates},
        )


def _visible(seen: Observation) -> tuple[object, ...]:
    """What a new look is worth for; ages are not."""
    pulse = seen.pulse
    return (
        seen.report,
        seen.trouble,
        seen.total_rates,
        pulse.phase,
        pulse.fault,
        pulse.backlogs,
        len(pulse.outcomes),
        None if seen.lag is None else (seen.lag.durable_bytes, round(seen.lag.durable_s)),
    )


class Rates:
    """Row changes per second over the last steps, from counters that only grow."""

    def __init__(self) -> None:
        self._before: Mapping[int, int] = {}
        self._at: float | None = None
        self._steps: deque[Mapping[int, float]] = deque(maxlen=RATE_STEPS)

    def note(self, rows: Mapping[int, int], now: float) -> None:
        """The counters stand here now."""
        if self._at is not None and now > self._at:
            grown = {oid: count - self._before.get(oid, 0) for oid, count in rows.items()}
            self._steps.append({oid: more / (now - self._at) for oid, more in grown.items() if more > 0})
        self._before, self._at = rows, now

    def by_table(self) -> Mapping[int, tuple[float, ...]]:
        """Of the tables that had any."""
        busy = sorted({oid for step in self._steps for oid in step})
        return {oid: tuple(step.get(oid, 0.0) for step in self._steps) for oid in busy}

    def total(self) -> tuple[float, ...]:
        """Of all together."""
        return tuple(sum(step.values()) for step in self._steps)


class SchemaVersions:
    """The schema versions seen in this process: the store forgets those that no replay can need any more."""

    def __init__(self) -> None:
        self._versions: dict[int, dict[SnapshotId, TableSchema]] = {}

    def update(self, stored: Iterable[TableSchema]) -> None:
        """The store has these now."""
        for schema in stored:
            versions = self._versions.setdefault(schema.oid, {})
            if schema.snapshot_id == SnapshotId.COPY and versions.get(SnapshotId.COPY, schema) != schema:
                # the table was copied anew: what came after the last copy is in this one
                versions.clear()
            versions[schema.snapshot_id] = schema
            while len(versions) > _KEPT_VERSIONS:
                del versions[min(versions)]

    def newest(self) -> list[TableSchema]:
        """The newest version of each table."""
        return [versions[max(versions)] for versions in self._versions.values()]

    def steps(
        self, known: Iterable[TableStatus], outcomes: Iterable[SchemaOutcome]
    ) -> Mapping[int, tuple[SchemaStep, ...]]:
        """The versions of the tables that there are."""
        told = {(outcome.oid, outcome.snapshot_id): outcome for outcome in outcomes}
        return {table.oid: tuple(self._of(table, told)) for table in known if table.oid in self._versions}

    def _of(
        self, table: TableStatus, told: Mapping[tuple[int, SnapshotId], SchemaOutcome]
    ) -> Iterable[SchemaStep]:
        versions = [schema for _, schema in sorted(self._versions[table.oid].items())]
        for previous, version in zip([None, *versions], versions, strict=False):
            yield SchemaStep(
                version.snapshot_id,
                tuple(f"{column.name} {column.type_name}" for column in version.columns),
                tuple(describe_changes(previous, version)),
                _status(table, version.snapshot_id),
                told.get((table.oid, version.snapshot_id)),
            )


def _status(table: TableStatus, version: SnapshotId) -> str:
    current = table.snapshot_id
    if current is None or version > current:
        return "pending"
    return (table.schema_status or "") if version == current else "passed"

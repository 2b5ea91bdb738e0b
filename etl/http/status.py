"""``/status``: what `etl status --json` tells, under the same keys, and what only the running process knows."""

from __future__ import annotations

from dataclasses import replace

from etl.config.figures import to_plain
from etl.config.reports import TableStatus
from etl.http.health import is_alive, is_ready, readiness
from etl.pipeline.observation import Observation, SchemaStep
from etl.telemetry.pulse import Fault, SchemaOutcome
from etl.telemetry.redaction import redact


def status_document(seen: Observation) -> dict[str, object]:
    """The whole document. Keys of `PipelineStatus` are left out before the slot and the store were read."""
    pulse, checks = seen.pulse, readiness(seen)
    document: dict[str, object] = {}
    if seen.report is not None:
        tables = tuple(map(masked, seen.tables))
        document = dict(_object(replace(seen.report, tables=tables)))
    document |= {
        "alive": is_alive(pulse),
        "ready": is_ready(checks),
        "phase": pulse.phase,
        "started_at": pulse.started_at,
        "read_at": seen.read_at,
        "last_commit_at": pulse.last_commit_at,
        "positions": pulse.positions,
        "lag": seen.lag,
        "rows_per_second": round(seen.total_rates[-1], 1) if seen.total_rates else 0.0,
        "fault": pulse.fault and _masked_fault(pulse.fault),
        "loops": pulse.loops,
        "checks": checks,
        "activity": {
            str(table.oid): {
                "rows": pulse.rows.get(table.oid, 0),
                "changed_at": pulse.changed_at.get(table.oid),
                "backlog_bytes": pulse.backlogs.get(table.oid, 0),
            }
            for table in seen.tables
        },
    }
    return document


def masked(table: TableStatus) -> TableStatus:
    """The table without secrets in what was said of it."""
    return replace(
        table,
        reason=None if table.reason is None else redact(table.reason),
        solution=None if table.solution is None else redact(table.solution),
    )


def table_document(seen: Observation, table: TableStatus) -> dict[str, object]:
    """One table, and the versions of its schema, newest first."""
    return {**_object(masked(table)), "schema": [_step(step) for step in seen.history_of(table.oid)[::-1]]}


def _step(step: SchemaStep) -> dict[str, object]:
    return {
        "snapshot_id": step.snapshot_id,
        "status": step.status,
        "columns": step.columns,
        "changes": [change.public for change in step.changes],
        "outcome": step.outcome and _masked(step.outcome),
    }


def _masked(outcome: SchemaOutcome) -> SchemaOutcome:
    return replace(outcome, error=redact(outcome.error), hint=redact(outcome.hint))


def _masked_fault(fault: Fault) -> Fault:
    return replace(fault, message=redact(fault.message), hint=redact(fault.hint))


def _object(value: object) -> dict[str, object]:
    plain = to_plain(value)
    if not isinstance(plain, dict):
        raise TypeError(f"{type(value).__name__} is no object")
    return plain

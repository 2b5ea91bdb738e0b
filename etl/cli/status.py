"""``etl status``: where a pipeline and its tables stand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl.cli.options import (
    CONNECTING,
    Json,
    LogFormatOption,
    LogLevelOption,
    NoColor,
    PipelineFile,
    epilog,
)
from etl.cli.output import emit, emit_json, emit_table, plain_table
from etl.cli.session import Terminal, application, open_pipeline
from etl.config.figures import human_bytes, printable
from etl.config.phases import phase_of, reason_of

if TYPE_CHECKING:
    from etl.config.reports import PipelineStatus, SlotStatus, TableStatus

EPILOG = epilog(
    "etl status -p pipeline.yaml",
    "etl status -p pipeline.yaml --json | jq .slot.lag_bytes",
    codes=CONNECTING,
)


def status(
    pipeline: PipelineFile,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Show the slot, the durable position, and the state of every table. Works while the pipeline runs."""
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    report = application().load_status(config)
    if as_json:
        emit_json(report)
    else:
        _show(report, no_color=no_color)


def _show(report: PipelineStatus, *, no_color: bool) -> None:
    emit(printable(f"pipeline  {report.name} (id {report.pipeline_id})"))
    emit(printable(f"runs      {report.holder or 'nowhere'}"))
    emit(f"durable   {'nothing yet' if report.progress_lsn is None else report.progress_lsn}")
    emit(printable(f"slot      {_slot(report.slot)}"))
    emit("")
    if not report.tables:
        emit("no tables yet")
        return
    table = plain_table("table", "state", "mode", "destination", "schema", "version", "rows")
    for row in report.tables:
        table.add_row(*map(printable, _cells(row)))
    emit_table(table, no_color=no_color)
    for row in report.tables:
        if reason := reason_of(row):
            emit("")
            emit(printable(f"{row.name}: {reason}", keep="\n"))
            if row.solution:
                emit(printable(f"  hint: {row.solution}", keep="\n"))


def _slot(slot: SlotStatus) -> str:
    if not slot.exists:
        return f"{slot.name} does not exist"
    parts = ["active" if slot.active else "not active"]
    if slot.confirmed_flush_lsn is not None:
        parts.append(f"confirmed {slot.confirmed_flush_lsn}")
    if slot.lag_bytes is not None:
        parts.append(f"lag {human_bytes(slot.lag_bytes)}")
    if slot.retained_bytes is not None:
        parts.append(f"retains {human_bytes(slot.retained_bytes)}")
    if slot.wal_status:
        parts.append(f"wal {slot.wal_status}")
    return f"{slot.name}: {', '.join(parts)}"


def _cells(row: TableStatus) -> tuple[str, ...]:
    return (
        row.name,
        phase_of(row),
        row.mode,
        row.destination_table or "",
        row.schema_status or "",
        "" if row.snapshot_id is None else str(row.snapshot_id),
        "" if row.rows is None else f"{row.rows:,}",
    )

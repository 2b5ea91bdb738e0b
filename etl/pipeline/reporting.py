"""What the log, the metrics and the pulse say about schema changes and writes; never a row value, never a payload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import structlog

from etl.ddl.operations import SkippedChange, kind_of, words_of
from etl.destinations.schema_applier import SchemaChange
from etl.destinations.writer import WriteReport
from etl.pgoutput.ddl_messages import DdlNotice, DdlOutcome
from etl.schema.table import TableSchema
from etl.telemetry.metric_names import ChangeOutcome
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse, SchemaOutcome

_log = structlog.get_logger()
_BELIEVED = frozenset({DdlOutcome.STORED, DdlOutcome.DROPPED_TABLE})
#: A schema that was refused is refused as a whole: nobody knows at which of its changes.
_ANY_CHANGE = "any"


class Reporter:
    """Names tables by oid for people."""

    def __init__(self, metrics: Metrics, pulse: Pulse, name_of: Callable[[int], str]) -> None:
        self._metrics = metrics
        self._pulse = pulse
        self._name_of = name_of

    def ddl_notice(self, notice: DdlNotice) -> None:
        """A message with our prefix came by."""
        table = notice.table or (self._name_of(notice.oid) if notice.oid is not None else None)
        if notice.outcome in _BELIEVED:
            _log.info(
                "schema_message_received",
                table=table,
                command_tag=notice.command_tag,
                outcome=notice.outcome.value,
            )
        elif notice.outcome is DdlOutcome.UNDESCRIBED:
            _log.warning("schema_message_undescribed", table=table, command_tag=notice.command_tag)
        else:
            self._metrics.ddl_forged()
            _log.warning("schema_message_ignored", outcome=notice.outcome.value, detail=notice.detail)

    def write_report(self, report: WriteReport) -> None:
        """A write is durable; tell of everything in it."""
        self._pulse.wrote(report.rows)
        for oid, rows in report.rows.items():
            self._metrics.table_rows(self._name_of(oid), rows)
        for change in report.changes:
            self._changed(change)
        for oid, count in report.schema_changes.items():
            _log.info("schema_change_applied", table=self._name_of(oid), changes=count)
        for oid, skipped in report.skipped.items():
            for each in skipped:
                self._skipped(oid, each)
        for oid, schema in report.refused.items():
            error = report.failed[oid]
            self._metrics.ddl_change(_ANY_CHANGE, ChangeOutcome.FAILED)
            self._pulse.schema_outcome(
                SchemaOutcome(
                    oid, schema.schema.snapshot_id, datetime.now(UTC), error=error.message, hint=error.hint
                )
            )
        for oid, count in report.unmatched.items():
            _log.warning("old_rows_not_found", table=self._name_of(oid), rows=count)

    def copied(self, schema: TableSchema, skipped: Sequence[SkippedChange]) -> None:
        """A table was created and copied under this version, but for these defaults."""
        self._pulse.schema_outcome(
            SchemaOutcome(schema.oid, schema.snapshot_id, datetime.now(UTC), skipped=tuple(skipped))
        )
        for each in skipped:
            self._metrics.skipped_default(each.reason)
            _log.warning(
                "default_not_copied",
                table=schema.qualified_name,
                column=each.column,
                reason=each.reason.value,
            )

    def _changed(self, change: SchemaChange) -> None:
        for operation in change.operations:
            self._metrics.ddl_change(kind_of(operation), ChangeOutcome.APPLIED)
        schema = change.metadata.schema.schema
        self._pulse.schema_outcome(
            SchemaOutcome(
                schema.oid,
                schema.snapshot_id,
                datetime.now(UTC),
                done=tuple(map(words_of, change.operations)),
                skipped=change.skipped,
            )
        )

    def _skipped(self, oid: int, skipped: SkippedChange) -> None:
        self._metrics.ddl_change(skipped.change, ChangeOutcome.SKIPPED)
        if skipped.reason.is_of_default:
            self._metrics.skipped_default(skipped.reason)
        _log.warning(
            "schema_change_skipped",
            table=self._name_of(oid),
            column=skipped.column,
            change=skipped.change,
            reason=skipped.reason.value,
        )

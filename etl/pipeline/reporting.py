"""What the log and the metrics say about schema changes and writes; never a row value, never a payload."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from etl.destinations.writer import WriteReport
from etl.pgoutput.ddl_messages import DdlNotice, DdlOutcome
from etl.telemetry.metrics import Metrics

_log = structlog.get_logger()
_BELIEVED = frozenset({DdlOutcome.STORED, DdlOutcome.DROPPED_TABLE})


class Reporter:
    """Names tables by oid for people."""

    def __init__(self, metrics: Metrics, name_of: Callable[[int], str]) -> None:
        self._metrics = metrics
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
        """A write is durable; tell of everything in it that was not plain rows."""
        for oid, count in report.schema_changes.items():
            self._metrics.ddl_change("relation", "applied")
            _log.info("schema_change_applied", table=self._name_of(oid), changes=count)
        for oid, skipped in report.skipped.items():
            for change in skipped:
                self._metrics.ddl_change(change.change, "skipped")
                _log.warning(
                    "schema_change_skipped",
                    table=self._name_of(oid),
                    column=change.column,
                    change=change.change,
                    reason=change.reason,
                )
        for oid, count in report.unmatched.items():
            _log.warning("old_rows_not_found", table=self._name_of(oid), rows=count)

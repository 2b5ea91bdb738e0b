"""The words for where a table stands."""

from __future__ import annotations

from etl.config.figures import human_count, human_time
from etl.config.reports import TablePhase, TableStatus


def phase_of(row: TableStatus) -> str:
    """``copying 12/80 ranges, 3.1M rows``; with what was asked and waits behind it."""
    text = row.phase.value
    if row.phase is TablePhase.COPYING and row.copy is not None:
        text += f" {row.copy.finished}/{row.copy.ranges} ranges, {human_count(row.copy.rows)} rows"
    return f"{text} ({', '.join(row.requested)} asked)" if row.requested else text


def reason_of(row: TableStatus) -> str:
    """Why it stands there, and what happens without anybody's help; empty when there is nothing to explain."""
    parts = [row.reason] if row.reason else []
    if row.retry_at is not None:
        parts.append(f"attempt {row.attempts + 1} at {human_time(row.retry_at)}")
    if row.copy is not None and row.copy.note:
        parts.append(row.copy.note)
    return "; ".join(parts)

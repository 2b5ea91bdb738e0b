"""Table states and stream progress as rows (`sql/store/0002_replication_state.sql`, `0005_replication_progress.sql`)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from etl.errors import RetryPolicy
from etl.lsn import Lsn
from etl.store.base import Shown, TableState, TableStateRecord
from etl.store.connection import Connection

_CURRENT = """
SELECT table_id, state, metadata, updated_at FROM etl.replication_state
WHERE pipeline_id = %s AND is_current
"""
_HISTORY = """
SELECT table_id, state, metadata, updated_at FROM etl.replication_state
WHERE pipeline_id = %s AND table_id = %s ORDER BY id
"""
#: The present state once more is not news: after a commit of unknown outcome it is written again.
_CONFIRM = """
UPDATE etl.replication_state SET updated_at = now()
WHERE pipeline_id = %s AND table_id = %s AND is_current AND state = %s::etl.table_state AND metadata = %s
"""
_RETIRE = """
UPDATE etl.replication_state SET is_current = false
WHERE pipeline_id = %s AND table_id = %s AND is_current RETURNING id
"""
_ADD = """
INSERT INTO etl.replication_state (pipeline_id, table_id, state, metadata, prev) VALUES (%s, %s, %s, %s, %s)
"""
_DELETE = "DELETE FROM etl.replication_state WHERE pipeline_id = %s AND table_id = %s"

_PROGRESS = "SELECT flush_lsn FROM etl.replication_progress WHERE pipeline_id = %s AND worker_type = 'apply'"
_ADVANCE = """
INSERT INTO etl.replication_progress AS p (pipeline_id, worker_type, flush_lsn) VALUES (%s, 'apply', %s)
ON CONFLICT (pipeline_id) WHERE worker_type = 'apply' DO UPDATE
SET flush_lsn = excluded.flush_lsn, updated_at = now() WHERE p.flush_lsn < excluded.flush_lsn
"""
_FORGET_PROGRESS = "DELETE FROM etl.replication_progress WHERE pipeline_id = %s"


def load_states(connection: Connection, pipeline_id: int) -> dict[int, TableStateRecord]:
    """Present state per table oid."""
    rows = connection.execute(_CURRENT, (pipeline_id,)).fetchall()
    return {row[0]: _record(*row) for row in rows}


def load_history(connection: Connection, pipeline_id: int, oid: int) -> list[TableStateRecord]:
    """All states of a table, oldest first."""
    return [_record(*row) for row in connection.execute(_HISTORY, (pipeline_id, oid)).fetchall()]


def save_state(connection: Connection, pipeline_id: int, record: TableStateRecord) -> None:
    """Make `record` the present state, the one before its predecessor."""
    table = (pipeline_id, record.oid)
    content = (record.state.value, Jsonb(_metadata(record)))
    if connection.execute(_CONFIRM, (*table, *content)).rowcount:
        return
    previous = connection.execute(_RETIRE, table).fetchone()
    connection.execute(_ADD, (*table, *content, previous and previous[0]))


def delete_states(connection: Connection, pipeline_id: int, oid: int) -> None:
    """Forget a table's state and its history."""
    connection.execute(_DELETE, (pipeline_id, oid))


def load_progress(connection: Connection, pipeline_id: int) -> Lsn | None:
    """The durable flush LSN."""
    row = connection.execute(_PROGRESS, (pipeline_id,)).fetchone()
    return None if row is None else Lsn.parse(row[0])


def save_progress(connection: Connection, pipeline_id: int, lsn: Lsn) -> None:
    """Raise the flush LSN to `lsn`; a lower one changes nothing."""
    connection.execute(_ADVANCE, (pipeline_id, str(lsn)))


def delete_progress(connection: Connection, pipeline_id: int) -> None:
    """Forget the stream's progress."""
    connection.execute(_FORGET_PROGRESS, (pipeline_id,))


def _metadata(record: TableStateRecord) -> dict[str, object]:
    given = {
        "type": record.state.value,
        "lsn": None if record.sync_lsn is None else str(record.sync_lsn),
        "reason": record.reason,
        "solution": record.solution,
        "retry_policy": None if record.retry is None else {"type": record.retry.value},
        "backlog": record.backlog,
        "retry_at": None if record.retry_at is None else record.retry_at.isoformat(),
        "attempts": record.attempts or None,
        "shown": None if record.shown is None else _shown_metadata(record.shown),
    }
    return {key: value for key, value in given.items() if value is not None}


def _record(oid: int, state: str, metadata: Mapping[str, Any], updated_at: datetime) -> TableStateRecord:
    lsn, policy, retry_at = (metadata.get(key) for key in ("lsn", "retry_policy", "retry_at"))
    return TableStateRecord(
        oid,
        TableState(state),
        sync_lsn=None if lsn is None else Lsn.parse(lsn),
        reason=metadata.get("reason"),
        solution=metadata.get("solution"),
        retry=None if policy is None else RetryPolicy(policy["type"]),
        backlog=metadata.get("backlog"),
        retry_at=None if retry_at is None else datetime.fromisoformat(retry_at),
        attempts=metadata.get("attempts", 0),
        shown=_shown(metadata.get("shown")),
        updated_at=updated_at,
    )


def _shown_metadata(shown: Shown) -> dict[str, object]:
    return {
        "entries": sorted(shown.entries),
        "row_filter": shown.row_filter,
        "columns": None if shown.columns is None else sorted(shown.columns),
        "attached": sorted(shown.attached),
    }


def _shown(metadata: Mapping[str, Any] | None) -> Shown | None:
    if metadata is None:
        return None
    columns = metadata["columns"]
    return Shown(
        frozenset(metadata["entries"]),
        metadata["row_filter"],
        None if columns is None else frozenset(columns),
        frozenset(metadata["attached"]),
    )

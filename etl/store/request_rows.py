"""Requests of people as rows (`sql/store/0008_table_requests.sql`)."""

from __future__ import annotations

from etl.store.base import KEPT_REQUESTS, TableRequest, TableVerb
from etl.store.connection import Connection
from etl.store.rules import never_ran, storable_text

_LAST = """
SELECT id, verb FROM etl.table_requests
WHERE pipeline_id = %s AND table_id = %s AND outcome IS NULL ORDER BY id DESC LIMIT 1
"""
#: No row comes back when the pipeline never ran.
_ADD = """
INSERT INTO etl.table_requests (pipeline_id, table_id, verb)
SELECT pipeline_id, %s, %s::etl.table_verb FROM etl.pipelines WHERE pipeline_id = %s RETURNING id
"""
_WAITING = """
SELECT id, table_id, verb, requested_at FROM etl.table_requests
WHERE pipeline_id = %s AND outcome IS NULL ORDER BY id
"""
_OUTCOME = "SELECT outcome FROM etl.table_requests WHERE pipeline_id = %s AND id = %s"
_SETTLE = """
UPDATE etl.table_requests SET outcome = %s, settled_at = now()
WHERE pipeline_id = %s AND id = %s AND outcome IS NULL
"""
_PRUNE = """
DELETE FROM etl.table_requests WHERE id IN (
    SELECT id FROM etl.table_requests WHERE pipeline_id = %s AND outcome IS NOT NULL
    ORDER BY settled_at DESC, id DESC OFFSET %s)
"""


def add_request(connection: Connection, pipeline_id: int, oid: int, verb: TableVerb) -> int:
    """The id of a request that waits, a new one unless it is the last of the table. Raises `StoreError`."""
    last = connection.execute(_LAST, (pipeline_id, oid)).fetchone()
    if last is not None and last[1] == verb.value:
        return int(last[0])
    added = connection.execute(_ADD, (oid, verb.value, pipeline_id)).fetchone()
    if added is None:
        raise never_ran(pipeline_id)
    return int(added[0])


def load_requests(connection: Connection, pipeline_id: int) -> list[TableRequest]:
    """The requests that wait, oldest first."""
    rows = connection.execute(_WAITING, (pipeline_id,)).fetchall()
    return [TableRequest(number, oid, TableVerb(verb), asked) for number, oid, verb, asked in rows]


def load_outcome(connection: Connection, pipeline_id: int, request_id: int) -> str | None:
    """What became of a request."""
    row = connection.execute(_OUTCOME, (pipeline_id, request_id)).fetchone()
    return None if row is None else row[0]


def settle_request(connection: Connection, pipeline_id: int, request_id: int, outcome: str) -> None:
    """Say what became of a request, and forget old ones."""
    connection.execute(_SETTLE, (storable_text(outcome), pipeline_id, request_id))
    connection.execute(_PRUNE, (pipeline_id, KEPT_REQUESTS))

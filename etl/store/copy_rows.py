"""Ledgers of copies as rows (`sql/store/0007_table_copies.sql`)."""

from __future__ import annotations

from typing import Any

from etl.lsn import Lsn
from etl.store.base import CopyRecord
from etl.store.connection import Connection

_LOAD = """
SELECT table_id, snapshot, consistent_point, range_count, finished_ranges, row_count, started_at, note
FROM etl.table_copies WHERE pipeline_id = %s
"""
_BEGIN = """
INSERT INTO etl.table_copies (
    pipeline_id, table_id, snapshot, consistent_point, range_count, finished_ranges, row_count, note)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline_id, table_id) DO UPDATE SET
    snapshot = excluded.snapshot, consistent_point = excluded.consistent_point, range_count = excluded.range_count,
    finished_ranges = excluded.finished_ranges, row_count = excluded.row_count, note = excluded.note,
    started_at = now(), updated_at = now()
"""
_FINISH = """
UPDATE etl.table_copies
SET finished_ranges = finished_ranges || %(number)s::integer, row_count = row_count + %(rows)s, updated_at = now()
WHERE pipeline_id = %(pipeline)s AND table_id = %(oid)s AND NOT %(number)s = ANY (finished_ranges)
"""
_DELETE = "DELETE FROM etl.table_copies WHERE pipeline_id = %s AND table_id = %s"


def load_copies(connection: Connection, pipeline_id: int) -> dict[int, CopyRecord]:
    """The ledger of every open copy per table oid."""
    rows = connection.execute(_LOAD, (pipeline_id,)).fetchall()
    return {row[0]: _record(*row) for row in rows}


def begin_copy(connection: Connection, pipeline_id: int, record: CopyRecord) -> None:
    """Open the ledger of a copy in place of the table's last one."""
    values = (
        record.snapshot,
        str(record.consistent_point),
        record.ranges,
        sorted(record.finished),
        record.rows,
        record.note,
    )
    connection.execute(_BEGIN, (pipeline_id, record.oid, *values))


def finish_range(connection: Connection, pipeline_id: int, oid: int, number: int, rows: int) -> None:
    """Note that a range is durable, once."""
    connection.execute(_FINISH, {"pipeline": pipeline_id, "oid": oid, "number": number, "rows": rows})


def delete_copy(connection: Connection, pipeline_id: int, oid: int) -> None:
    """Close the ledger of a copy."""
    connection.execute(_DELETE, (pipeline_id, oid))


def _record(oid: int, snapshot: str, point: str, ranges: int, finished: list[int], *rest: Any) -> CopyRecord:
    return CopyRecord(oid, snapshot, Lsn.parse(point), ranges, frozenset(finished), *rest)

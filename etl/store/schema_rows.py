"""Schema versions as rows (`sql/store/0003_table_schemas.sql`)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from etl.lsn import Lsn, SnapshotId
from etl.schema.table import ColumnSchema, ReplicaIdentity, TableSchema
from etl.store.connection import Connection

#: One row per column, and one with an empty column for a version without any.
_LOAD = """
SELECT s.id, s.table_id, s.schema_name, s.table_name, s.snapshot_commit_lsn, s.snapshot_message_lsn,
       s.replica_identity, s.identity_attnums, s.max_attnum,
       c.column_name, c.ordinal_position, c.type_oid, c.type_modifier, c.nullable, c.default_expression,
       c.primary_key_ordinal_position, c.type_name, c.missing_value
FROM etl.table_schemas s LEFT JOIN etl.table_columns c ON c.table_schema_id = s.id
WHERE s.pipeline_id = %s AND (%s::oid IS NULL OR s.table_id = %s::oid)
ORDER BY s.table_id, s.snapshot_commit_lsn, s.snapshot_message_lsn, c.ordinal_position
"""
_HEADER_WIDTH = 9

_UPSERT = """
INSERT INTO etl.table_schemas (
    pipeline_id, table_id, snapshot_commit_lsn, snapshot_message_lsn,
    schema_name, table_name, replica_identity, identity_attnums, max_attnum)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (pipeline_id, table_id, snapshot_commit_lsn, snapshot_message_lsn) DO UPDATE SET
    schema_name = excluded.schema_name, table_name = excluded.table_name,
    replica_identity = excluded.replica_identity, identity_attnums = excluded.identity_attnums,
    max_attnum = excluded.max_attnum, updated_at = now()
RETURNING id
"""
_CLEAR_COLUMNS = "DELETE FROM etl.table_columns WHERE table_schema_id = %s"
_ADD_COLUMNS = """
INSERT INTO etl.table_columns (
    table_schema_id, column_name, ordinal_position, type_oid, type_modifier, nullable, default_expression,
    primary_key_ordinal_position, type_name, missing_value)
SELECT %s, * FROM unnest(
    %s::text[], %s::smallint[], %s::oid[], %s::integer[], %s::boolean[], %s::text[], %s::smallint[], %s::text[],
    %s::text[])
"""

_PRUNE = """
DELETE FROM etl.table_schemas s
WHERE s.pipeline_id = %(pipeline)s AND s.table_id = %(oid)s
  AND (s.snapshot_commit_lsn, s.snapshot_message_lsn) < (
      SELECT k.snapshot_commit_lsn, k.snapshot_message_lsn FROM etl.table_schemas k
      WHERE k.pipeline_id = %(pipeline)s AND k.table_id = %(oid)s
        AND (k.snapshot_commit_lsn, k.snapshot_message_lsn) <= (%(commit)s::pg_lsn, %(message)s::pg_lsn)
      ORDER BY k.snapshot_commit_lsn DESC, k.snapshot_message_lsn DESC LIMIT 1)
  AND NOT EXISTS (
      SELECT FROM etl.destination_tables_metadata d
      WHERE d.pipeline_id = %(pipeline)s AND d.table_id = %(oid)s
        AND (s.snapshot_commit_lsn, s.snapshot_message_lsn) IN (
            (d.snapshot_commit_lsn, d.snapshot_message_lsn),
            (d.previous_snapshot_commit_lsn, d.previous_snapshot_message_lsn)))
"""
_DELETE = "DELETE FROM etl.table_schemas WHERE pipeline_id = %s AND table_id = %s"


def load_schemas(connection: Connection, pipeline_id: int, oid: int | None) -> list[TableSchema]:
    """Versions of one table or all, by oid and ascending snapshot id."""
    rows = connection.execute(_LOAD, (pipeline_id, oid, oid)).fetchall()
    return [_schema(list(version)) for _, version in groupby(rows, key=lambda row: row[0])]


def save_schema(connection: Connection, pipeline_id: int, schema: TableSchema) -> None:
    """Store a version in place of the one with its key."""
    row = connection.execute(
        _UPSERT,
        (
            pipeline_id,
            schema.oid,
            str(schema.snapshot_id.commit_lsn),
            str(schema.snapshot_id.message_lsn),
            schema.schema,
            schema.name,
            schema.identity.value,
            list(schema.identity_attnums),
            schema.max_attnum,
        ),
    ).fetchone()
    key = row and row[0]
    connection.execute(_CLEAR_COLUMNS, (key,))
    if schema.columns:
        connection.execute(_ADD_COLUMNS, (key, *(list(field) for field in _transposed(schema))))


def prune_schemas(connection: Connection, pipeline_id: int, oid: int, below: SnapshotId) -> int:
    """Drop what neither a replay from `below` nor an unfinished destination change can need; how many."""
    return connection.execute(
        _PRUNE,
        {
            "pipeline": pipeline_id,
            "oid": oid,
            "commit": str(below.commit_lsn),
            "message": str(below.message_lsn),
        },
    ).rowcount


def delete_schemas(connection: Connection, pipeline_id: int, oid: int) -> None:
    """Forget all versions of a table."""
    connection.execute(_DELETE, (pipeline_id, oid))


def _transposed(schema: TableSchema) -> zip[tuple[Any, ...]]:
    return zip(
        *(
            (
                column.name,
                column.attnum,
                column.type_oid,
                column.typmod,
                column.nullable,
                column.default_expression,
                column.primary_key_ordinal,
                column.type_name,
                column.missing_value,
            )
            for column in schema.columns
        ),
        strict=True,
    )


def _schema(rows: list[tuple[Any, ...]]) -> TableSchema:
    _, oid, schema, name, commit, message, identity, identity_attnums, max_attnum = rows[0][:_HEADER_WIDTH]
    return TableSchema(
        oid,
        schema,
        name,
        columns=tuple(ColumnSchema(*row[_HEADER_WIDTH:]) for row in rows if row[_HEADER_WIDTH] is not None),
        snapshot_id=SnapshotId(Lsn.parse(commit), Lsn.parse(message)),
        identity=ReplicaIdentity(identity),
        identity_attnums=tuple(identity_attnums),
        max_attnum=max_attnum,
    )

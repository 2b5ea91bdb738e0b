"""What tables look like in the source's catalog: at the snapshot of a copy, and today when drift must be explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.rows import dict_row

from etl.errors import TableSourceError
from etl.schema.drift import CatalogColumn
from etl.schema.message import table_schema_from_rows
from etl.schema.table import TableSchema
from etl.source.connection import Connection, translated

#: Without an encoding (SQL_ASCII) a comment may hold bytes that are no text.
_COLUMNS = """
SELECT d.*, CASE WHEN current_setting('server_encoding') <> 'SQL_ASCII' THEN col_description(t.oid, d.attnum) END AS comment
  FROM (SELECT %s::oid AS oid) t, LATERAL etl.describe_table_schema(t.oid) d ORDER BY d.attnum"""


def describe_table(connection: Connection, parameters: Mapping[str, str], oid: int) -> TableSchema:
    """The table as the connection's snapshot sees it, through the functions the trigger uses.

    Raises `TableSourceError` when the table does not exist there.
    """
    with translated(parameters):
        named = connection.execute(
            "SELECT n.nspname, c.relname, c.relnatts, etl.describe_table_identity(c.oid)"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s",
            (oid,),
        ).fetchone()
        if named is None:
            raise TableSourceError(
                f"the table with oid {oid} does not exist any more",
                hint="it leaves the pipeline at the next start",
            )
        columns = _rows(connection, _COLUMNS, oid)
    return table_schema_from_rows(
        oid=oid, schema=named[0], name=named[1], columns=columns, identity=named[3], max_attnum=named[2]
    )


def table_names(connection: Connection, parameters: Mapping[str, str], oids: Sequence[int]) -> dict[int, str]:
    """Oid → ``schema.name``, of the tables that exist today."""
    with translated(parameters):
        rows = connection.execute(
            "SELECT c.oid::bigint, n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = ANY(%s::oid[])",
            (list(oids),),
        ).fetchall()
    return {oid: f"{schema}.{name}" for oid, schema, name in rows}


def catalog_columns(
    connection: Connection, parameters: Mapping[str, str], oid: int, listed: Sequence[str] | None
) -> list[CatalogColumn]:
    """Every attribute of the table as it is today, tombstones and generated columns included.

    `listed`: the names in the publication's column list, None when it has none.
    """
    with translated(parameters):
        attributes = connection.execute(
            "SELECT attnum, attisdropped, attname, atttypid::bigint, atttypmod FROM pg_attribute"
            " WHERE attrelid = %s AND attnum > 0 ORDER BY attnum",
            (oid,),
        ).fetchall()
        if not attributes:
            return []
        described = {column.attnum: column for column in describe_table(connection, parameters, oid).columns}
    columns = []
    for attnum, dropped, name, type_oid, typmod in attributes:
        if dropped:
            columns.append(CatalogColumn(attnum, None, 0, dropped=True))
        elif attnum not in described:
            columns.append(CatalogColumn(attnum, name, type_oid, typmod, published=False))
        else:
            column = described[attnum]
            columns.append(
                CatalogColumn(
                    attnum,
                    name,
                    type_oid,
                    typmod,
                    published=listed is None or name in listed,
                    nullable=column.nullable,
                    default_expression=column.default_expression,
                    primary_key_ordinal=column.primary_key_ordinal,
                    type_name=column.type_name,
                    missing_value=column.missing_value,
                )
            )
    return columns


def _rows(connection: Connection, query: str, oid: int) -> Sequence[Mapping[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(query, (oid,)).fetchall()

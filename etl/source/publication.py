"""What the publication shows: its tables, their columns and row filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etl.errors import PublicationError
from etl.source.connection import Connection, translated

#: Our own bookkeeping must not be replicated by a publication FOR ALL TABLES.
STATE_SCHEMA = "etl"
_COLUMN_LISTS_SINCE = 150000


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as the publication publishes it. `column_names` None: all columns; `row_filter`: SQL of the server."""

    oid: int
    schema: str
    name: str
    is_partitioned: bool
    column_names: tuple[str, ...] | None
    row_filter: str | None
    estimated_rows: int

    @property
    def qualified_name(self) -> str:
        """``schema.name`` for people and labels."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Publication:
    """A publication and whether changes of partitions carry their root."""

    name: str
    via_partition_root: bool
    all_tables: bool
    operations: frozenset[str]


def load_publication(connection: Connection, parameters: Mapping[str, str], name: str) -> Publication:
    """Read the publication. Raises `PublicationError` when it does not exist."""
    with translated(parameters):
        row = connection.execute(
            "SELECT pubviaroot, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate"
            " FROM pg_publication WHERE pubname = %s",
            (name,),
        ).fetchone()
    if row is None:
        raise PublicationError(
            f"publication {name} does not exist",
            hint=f'on the source: CREATE PUBLICATION "{name}" FOR TABLE …'
            " WITH (publish_via_partition_root = true)",
        )
    names = ("insert", "update", "delete", "truncate")
    operations = frozenset(op for op, on in zip(names, row[2:6], strict=True) if on)
    return Publication(name, row[0], row[1], operations)


def publication_oid(connection: Connection, parameters: Mapping[str, str], name: str) -> int | None:
    """The publication's oid: another one under the same name has another. None when there is none."""
    with translated(parameters):
        row = connection.execute(
            "SELECT oid::bigint FROM pg_publication WHERE pubname = %s", (name,)
        ).fetchone()
    return None if row is None else int(row[0])


def published_tables(
    connection: Connection, parameters: Mapping[str, str], name: str
) -> list[PublishedTable]:
    """The publication's tables, ordered by name. Our own state schema is left out."""
    with translated(parameters):
        columns = (
            "p.attnames, p.rowfilter"
            if connection.info.server_version >= _COLUMN_LISTS_SINCE
            else "NULL::name[], NULL::text"
        )
        rows = connection.execute(
            f"""
            SELECT c.oid::bigint, n.nspname, c.relname, c.relkind = 'p', {columns},
                   greatest(c.reltuples, 0)::bigint
              FROM pg_publication_tables p
              JOIN pg_namespace n ON n.nspname = p.schemaname
              JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
             WHERE p.pubname = %s AND n.nspname <> %s
             ORDER BY n.nspname, c.relname""",  # noqa: S608 - a constant chosen by server version
            (name, STATE_SCHEMA),
        ).fetchall()
    return [
        PublishedTable(
            row[0], row[1], row[2], row[3], None if row[4] is None else tuple(row[4]), row[5], row[6]
        )
        for row in rows
    ]

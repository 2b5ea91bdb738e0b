"""What the publication shows: its tables, their columns and row filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from psycopg import errors

from etl.errors import PublicationError
from etl.source.connection import Connection, translated

#: Our own bookkeeping must not be replicated by a publication FOR ALL TABLES.
STATE_SCHEMA = "etl"
#: Column lists, row filters and schemas in publications.
_LISTS_SINCE = 150000
#: So long a look waits for a filtered table that somebody keeps locked, if it knows the filter.
_FILTER_PATIENCE = "100ms"

#: The view names all columns where there is no list. A partition has the list of its published ancestor, by names.
_LISTS = """CASE WHEN l.has_list THEN p.attnames END,
       CASE WHEN l.has_list THEN ARRAY(
           SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = ANY (p.attnames)) END,
       CASE WHEN NOT {entries} <@ %(known)s::bigint[] THEN p.rowfilter END"""
_HAS_LIST = """CROSS JOIN LATERAL (
      SELECT EXISTS (SELECT FROM pg_publication_rel r
                      WHERE r.prpubid = b.oid AND r.prattrs IS NOT NULL
                        AND (r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid))))
             AS has_list) l"""

#: A table is covered by its own entries and by those of the partitioned tables above it.
_ENTRIES = """CASE WHEN b.puballtables THEN ARRAY[b.oid::bigint] ELSE '{}' END || ARRAY(
           SELECT r.oid::bigint FROM pg_publication_rel r WHERE r.prpubid = b.oid
              AND (r.prrelid = c.oid OR r.prrelid IN (SELECT relid FROM pg_partition_ancestors(c.oid))))"""
_SCHEMA_ENTRIES = """ARRAY(
           SELECT s.oid::bigint FROM pg_publication_namespace s JOIN pg_class k ON k.relnamespace = s.pnnspid
            WHERE s.pnpubid = b.oid
              AND (k.oid = c.oid OR k.oid IN (SELECT relid FROM pg_partition_ancestors(c.oid))))"""

#: A partition that was created as one has its columns (tableoid, attnum -6, never changes) and its parent of the same
#: transaction; one that was attached has not.
_PUBLISHED = """
SELECT c.oid::bigint, n.nspname, c.relname, c.relkind = 'p', {columns}, greatest(c.reltuples, 0)::bigint,
       {entries},
       CASE WHEN c.relkind = 'p' THEN ARRAY(
           SELECT t.relid::oid || '@' || i.xmin
             FROM pg_partition_tree(c.oid) t
             JOIN pg_inherits i ON i.inhrelid = t.relid
             JOIN pg_attribute a ON a.attrelid = t.relid AND a.attnum = -6
            WHERE t.level > 0 AND a.xmin <> i.xmin) ELSE '{{}}' END
  FROM pg_publication b
  JOIN pg_publication_tables p ON p.pubname = b.pubname
  JOIN pg_namespace n ON n.nspname = p.schemaname
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
 {lists}
 WHERE b.pubname = %(publication)s AND n.nspname <> %(state_schema)s
 ORDER BY n.nspname, c.relname"""


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table as the publication publishes it; `row_filter`: SQL of the server.

    `column_names` and `column_attnums`: the columns of its column list, None when it has none and all are published.
    `entries` are the oids of what in the publication covers it: its own entry, its schema's, those of the partitioned
    tables above it, the publication itself FOR ALL TABLES. What is taken out and put back has another oid. `attached`: the
    partitions below it that were tables before they were its partitions, and so may have brought rows, as
    ``oid@transaction`` of the attachment.
    """

    oid: int
    schema: str
    name: str
    is_partitioned: bool
    column_names: tuple[str, ...] | None
    row_filter: str | None
    estimated_rows: int
    column_attnums: frozenset[int] | None = None
    entries: frozenset[int] = frozenset()
    attached: frozenset[str] = frozenset()

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
    connection: Connection,
    parameters: Mapping[str, str],
    name: str,
    known: Sequence[PublishedTable] = (),
) -> list[PublishedTable]:
    """The publication's tables, ordered by name. Our own state schema is left out.

    The server writes a row filter out under a lock of its table. Where somebody keeps a filtered table locked, its filter
    is taken from what was `known` before: the entry of a publication keeps the filter it was made with.
    """
    with translated(parameters):
        if known:
            with suppress(errors.LockNotAvailable), connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (_FILTER_PATIENCE,))
                return _published(connection, name, ())
        return _published(connection, name, known)


def _published(connection: Connection, name: str, known: Sequence[PublishedTable]) -> list[PublishedTable]:
    filters = {table.entries: table.row_filter for table in known}
    has_lists = connection.info.server_version >= _LISTS_SINCE
    entries = f"({_ENTRIES} || {_SCHEMA_ENTRIES})" if has_lists else f"({_ENTRIES})"
    query = _PUBLISHED.format(
        columns=_LISTS.format(entries=entries) if has_lists else "NULL::name[], NULL::smallint[], NULL::text",
        entries=entries,
        lists=_HAS_LIST if has_lists else "",
    )
    given = {
        "publication": name,
        "state_schema": STATE_SCHEMA,
        "known": sorted(set().union(*filters)),
    }
    rows = connection.execute(query, given).fetchall()
    return [
        PublishedTable(
            oid=row[0],
            schema=row[1],
            name=row[2],
            is_partitioned=row[3],
            column_names=None if row[4] is None else tuple(row[4]),
            column_attnums=None if row[5] is None else frozenset(row[5]),
            row_filter=row[6] or filters.get(frozenset(row[8])),
            estimated_rows=row[7],
            entries=frozenset(row[8]),
            attached=frozenset(row[9]),
        )
        for row in rows
    ]

"""What a session sees of the source: tables and their columns as they are now, its own open transaction included."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from etl.testing.difftest.kinds import SHORT
from etl.testing.difftest.ledger import STAMP
from etl.testing.harness import PUBLICATION

Connection = psycopg.Connection[tuple[Any, ...]]

_TABLES = """
SELECT c.oid::bigint, c.relname::text, c.relkind = 'p', c.relreplident::text, r.prrelid IS NOT NULL,
       CASE WHEN %s THEN pg_get_expr(r.prqual, r.prrelid) WHEN r.prqual IS NOT NULL THEN 'id' END, r.prattrs::int2[]::int[],
       coalesce((SELECT i.indkey::int2[]::int[] FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary), '{}'),
       coalesce((SELECT i.indkey::int2[]::int[] FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident), '{}')
  FROM pg_class c
  LEFT JOIN (pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid AND p.pubname = %s) ON r.prrelid = c.oid
 WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND NOT starts_with(c.relname, 'leaf ')
 ORDER BY c.oid"""
_COLUMNS = """
SELECT a.attrelid::bigint, a.attnum::int, a.attname::text, format_type(a.atttypid, a.atttypmod), a.atthasdef,
       a.attnotnull, EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique
                                AND a.attnum = ANY (i.indkey::int2[]) AND (i.indnatts = 1 OR a.attname <> 'id'))
  FROM pg_attribute a WHERE a.attrelid = ANY (%s) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
 ORDER BY a.attrelid, a.attnum"""


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True, slots=True)
class Column:
    """A column; `is_unique`: part of a unique index, so that every value must be new."""

    attnum: int
    name: str
    type: str
    has_default: bool
    not_null: bool
    is_unique: bool

    @property
    def sql(self) -> str:
        """The quoted name."""
        return quoted(self.name)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of schema public that is no partition. `filter` and `listed` are what the publication says of it."""

    oid: int
    name: str
    is_partitioned: bool
    identity: str
    is_published: bool
    filter: str | None
    listed: tuple[int, ...] | None
    primary_key: tuple[int, ...]
    identity_index: tuple[int, ...]
    columns: tuple[Column, ...]

    @property
    def sql(self) -> str:
        """The quoted, qualified name."""
        return f"public.{quoted(self.name)}"

    @property
    def key(self) -> tuple[int, ...]:
        """The attnums that tell rows apart at the destination; empty without any."""
        if self.identity == "i":
            return self.identity_index
        return self.primary_key if self.identity in {"d", "f"} else ()

    @property
    def takes_changes(self) -> bool:
        """Whether Postgres lets published rows be updated and deleted."""
        return not self.is_published or self.identity == "f" or bool(self.key)

    @property
    def fixed(self) -> frozenset[int]:
        """Columns that something else depends on: keys, row filters."""
        return frozenset(
            c.attnum for c in self.columns if c.is_unique or c.name in {STAMP, "id"} or self._is_filtered(c)
        )

    @property
    def free(self) -> list[Column]:
        """Columns that may be dropped, replaced and exchanged."""
        return [column for column in self.columns if column.attnum not in self.fixed]

    @property
    def writable(self) -> list[Column]:
        """Columns that statements give values to: all but the stamp."""
        return [column for column in self.columns if column.name != STAMP]

    def column(self, attnum: int) -> Column:
        """The column of this attnum."""
        return next(column for column in self.columns if column.attnum == attnum)

    def _is_filtered(self, column: Column) -> bool:
        return self.filter is not None and column.name in self.filter


def tables(connection: Connection, *, filters: bool = False) -> list[Table]:
    """Every table of schema public as the connection's transaction sees it.

    Row filters are read where `filters` says so, for that waits for locks; without it they are named by their column.
    """
    found = connection.execute(_TABLES, (filters, PUBLICATION)).fetchall()
    columns: dict[int, list[Column]] = {row[0]: [] for row in found}
    for oid, attnum, name, kind, has_default, not_null, is_unique in connection.execute(
        _COLUMNS, (list(columns),)
    ).fetchall():
        columns[oid].append(
            Column(attnum, name, SHORT.get(kind) or str(kind), has_default, not_null, is_unique)
        )
    return [
        Table(
            oid=row[0],
            name=row[1],
            is_partitioned=row[2],
            identity=row[3],
            is_published=row[4],
            filter=row[5],
            listed=None if row[6] is None else tuple(row[6]),
            primary_key=tuple(row[7]),
            identity_index=tuple(row[8]),
            columns=tuple(columns[row[0]]),
        )
        for row in found
    ]

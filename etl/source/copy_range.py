"""One range of a table's initial copy, read under the snapshot of a worker's transaction.

Theory of operation. A snapshot shows the rows, and the catalog when it is queried, as they were; but a statement looks
names up in the catalog of the moment. So every range first locks its relation against changes, in a savepoint, so that
the lock goes with the range and nobody waits for the end of a long copy. Then it compares the catalog of the moment
with that of the snapshot: the names still mean the same relations, the rows are in the same file (a rewrite or TRUNCATE
makes a new one, which an older snapshot sees empty), and the columns, found by attnum, have the same types. They may
have other names by now: those are used. Whatever else differs is told by `SnapshotOutdatedError`: the table is copied
under a new snapshot.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from psycopg import errors, sql

from etl.errors import SnapshotOutdatedError
from etl.schema.table import ColumnSchema
from etl.source.connection import Connection, is_sql_ascii, raw_bytes, translated
from etl.source.copy import TextBatch, outdated
from etl.source.copy_plan import CopyRange, Leaf
from etl.source.copy_text import parse
from etl.source.copy_wire import Block, copy_blocks
from etl.source.publication import PublishedTable

BLOCK_BYTES = 2 << 20

#: Itself, or the partitions below it, as the snapshot shows them.
_TREE = """
WITH RECURSIVE tree(oid) AS (
    SELECT %(oid)s::oid
    UNION ALL
    SELECT i.inhrelid FROM tree t JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
      JOIN pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending)"""

#: Sizes are those of the moment.
_LEAVES = f"""{_TREE}
SELECT has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid),
       c.oid::bigint, n.nspname, c.relname,
       CASE WHEN a.amname = 'heap' THEN pg_relation_size(c.oid) / current_setting('block_size')::bigint END,
       coalesce(pg_table_size(c.oid), 0), greatest(c.reltuples, 0)::bigint
  FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'
  JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_am a ON a.oid = c.relam
 ORDER BY c.oid"""  # noqa: S608 - a constant

#: What the names mean at present, and whether the rows are still where the snapshot expects them.
_IDENTITY = f"""{_TREE}
SELECT to_regclass(%(root)s)::oid::bigint, to_regclass(%(leaf)s)::oid::bigint,
       bool_and(pg_relation_filenode(c.oid) IS NOT DISTINCT FROM nullif(c.relfilenode, 0)
                AND (c.oid = %(oid)s OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s))))
  FROM tree t JOIN pg_class c ON c.oid = t.oid AND c.relkind <> 'p'"""  # noqa: S608 - a constant

#: The columns as the snapshot shows them, and what they are called at present.
_ATTRIBUTES = """
SELECT attname, atttypid::bigint, atttypmod,
       (pg_identify_object_as_address('pg_class'::regclass, attrelid, attnum)).object_names[3]
  FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"""


def read_leaves(
    connection: Connection, parameters: Mapping[str, str], table: PublishedTable
) -> tuple[Leaf, ...]:
    """The relations that hold the table's rows in the snapshot of the connection's transaction.

    A partitioned table is one when our role may not read each of its partitions by itself. Raises
    `SnapshotOutdatedError` when somebody else keeps one of them locked.
    """
    with translated(parameters), _savepoint(connection, table):
        rows = connection.execute(_LEAVES, {"oid": table.oid}).fetchall()
    if table.is_partitioned and not all(readable for readable, *_ in rows):
        nbytes, estimated_rows = (sum(row[place] for row in rows) for place in (5, 6))
        return (Leaf(table.oid, table.schema, table.name, None, nbytes, estimated_rows, is_only=False),)
    return tuple(Leaf(*leaf) for _, *leaf in rows)


def read_range(
    connection: Connection,
    parameters: Mapping[str, str],
    table: PublishedTable,
    part: CopyRange,
    columns: Sequence[ColumnSchema],
    *,
    block_bytes: int = BLOCK_BYTES,
) -> Generator[TextBatch, None, None]:
    """Read the range's rows that the publication's row filter lets through, in blocks of about `block_bytes`.

    `columns`: those to read, as the snapshot shows the table. Close it when it is left early: until then the connection
    is busy. However it ends, the transaction can go on with another range, unless the connection is lost. Raises
    `SnapshotOutdatedError` when the relation is not what the snapshot shows any more, or somebody else keeps it locked.
    """
    column_type = pa.binary() if is_sql_ascii(connection) else pa.string()
    with translated(parameters), _savepoint(connection, table):
        _lock(connection, table, part)
        names = _present_names(connection, table, part, columns)
        statement = _statement(table, part, names).as_bytes(connection)
        with raw_bytes(connection, restore=True):
            for block in copy_blocks(connection, statement, block_bytes):
                yield _batch(block, len(columns), column_type)


def _batch(block: Block, ncols: int, column_type: pa.DataType) -> TextBatch:
    columns = parse(block.lines, ncols, column_type, skipped=block.skipped) if ncols else ()
    return TextBatch(columns, block.rows, block.nbytes)


@contextmanager
def _savepoint(connection: Connection, table: PublishedTable) -> Iterator[None]:
    """Undo at the end, locks included; tell errors that a new snapshot helps against."""
    try:
        with connection.transaction(force_rollback=True):
            yield
    except (
        errors.UndefinedTable,
        errors.UndefinedColumn,
        errors.InvalidSchemaName,
        errors.WrongObjectType,
    ) as error:
        raise outdated(table) from error
    except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
        raise SnapshotOutdatedError(
            f"table {table.qualified_name} is being altered, and has been for a while",
            hint="it is copied under a new snapshot once the other session lets go of it",
            table=table.qualified_name,
        ) from error


def _lock(connection: Connection, table: PublishedTable, part: CopyRange) -> None:
    """Keep everybody from altering table and leaf. Raises `SnapshotOutdatedError` unless both are still the same."""
    root, leaf = sql.Identifier(table.schema, table.name), sql.Identifier(part.schema, part.name)
    # as a query and not as LOCK TABLE, which refuses foreign tables; the table first, as everybody does who alters it
    connection.execute(
        sql.SQL("SELECT FROM ONLY {} AS root, {} AS leaf LIMIT 0").format(root, _relation(part))
    )
    names = {"root": root.as_string(connection), "leaf": leaf.as_string(connection)}
    row = connection.execute(_IDENTITY, {"oid": part.oid, **names}).fetchone()
    if row is None or row[:2] != (table.oid, part.oid) or row[2] is False:
        raise outdated(table)


def _present_names(
    connection: Connection, table: PublishedTable, part: CopyRange, columns: Sequence[ColumnSchema]
) -> list[str]:
    """What the columns are called in the leaf at present. Raises `SnapshotOutdatedError` for one that was altered.

    A partition may number its columns in its own way, but it calls them as the table does: they are found by their
    names in the snapshot, and from there followed by number.
    """
    rows = connection.execute(_ATTRIBUTES, (part.oid,)).fetchall()
    shown = {name: (type_oid, typmod) for name, type_oid, typmod, _ in rows}
    present = {before: now for before, *_, now in rows}
    if any(shown.get(column.name) != (column.type_oid, column.typmod) for column in columns):
        raise outdated(table)
    # the filter's text names columns as they were when it was read
    if table.row_filter and any(before != now for before, now in present.items()):
        raise outdated(table)
    names = [present[column.name] for column in columns]
    if columns and not _have_types(connection, part, dict(zip(names, columns, strict=True))):
        raise outdated(table)
    return names


def _have_types(connection: Connection, part: CopyRange, columns: Mapping[str, ColumnSchema]) -> bool:
    """True when the columns, by their present names, have the types of the snapshot."""
    selected = sql.SQL(", ").join(map(sql.Identifier, columns))
    result = connection.execute(
        sql.SQL("SELECT {} FROM {} LIMIT 0").format(selected, _relation(part))
    ).pgresult
    if result is None:
        return False
    domains: dict[str, int] = {}
    for place, (name, column) in enumerate(columns.items()):
        # the protocol tells the type a domain is made of
        if result.ftype(place) != column.type_oid:
            domains[name] = column.type_oid
        elif result.fmod(place) != column.typmod:
            return False
    return not domains or _domains(connection, part, list(domains)) == tuple(domains.values())


def _domains(connection: Connection, part: CopyRange, names: Sequence[str]) -> tuple[int, ...] | None:
    """The declared types of columns; no row is read."""
    types = sql.SQL(", ").join(
        sql.SQL("pg_typeof(r.{})::oid::bigint").format(sql.Identifier(name)) for name in names
    )
    query = sql.SQL("SELECT {} FROM (SELECT) AS one LEFT JOIN {} AS r ON false").format(
        types, _relation(part)
    )
    return connection.execute(query).fetchone()


def _statement(table: PublishedTable, part: CopyRange, names: Sequence[str]) -> sql.Composed:
    conditions = [
        sql.SQL("ctid {} {}").format(sql.SQL(operator), sql.Literal(f"({block},0)"))
        for operator, block in ((">=", part.from_block), ("<", part.to_block))
        if block is not None
    ]
    if table.row_filter:
        conditions.append(sql.SQL("({})").format(sql.SQL(table.row_filter)))
    return sql.SQL("COPY (SELECT {columns} FROM {relation}{where}) TO STDOUT").format(
        columns=sql.SQL(", ").join(map(sql.Identifier, names)),
        relation=_relation(part),
        where=sql.SQL(" WHERE ") + sql.SQL(" AND ").join(conditions) if conditions else sql.SQL(""),
    )


def _relation(part: CopyRange) -> sql.Composed:
    """ONLY: tables that inherit from a plain one are published, and copied, by themselves."""
    only = sql.SQL("ONLY ") if part.is_only else sql.SQL("")
    return only + sql.Identifier(part.schema, part.name)

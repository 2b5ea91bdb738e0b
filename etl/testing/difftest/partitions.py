"""Partitions that come and go. Nobody else has a transaction open meanwhile."""

from __future__ import annotations

from etl.testing.difftest.catalog import Connection, Table, quoted
from etl.testing.difftest.chance import Chance
from etl.testing.difftest.ledger import noted

_PARTITIONS = """
SELECT c.relname::text, pg_get_expr(c.relpartbound, c.oid)
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s ORDER BY c.oid"""
#: Names of partitions begin with this, so that they are told from the tables that statements are made for.
LEAF = "leaf "


def replace_partition(chance: Chance, connection: Connection, table: Table) -> list[str]:
    """One partition leaves with its rows deleted; a table of its own gets rows and takes its place.

    The new one has other attribute numbers than the table above it, once columns of that have been dropped.
    """
    found = connection.execute(_PARTITIONS, (table.oid,)).fetchall()
    if not found or not table.takes_changes:
        return []
    name, bound = chance.one(found)
    old, new = (f"public.{quoted(each)}" for each in (name, f"{LEAF}{chance.between(1000, 9999)}"))
    gone = (
        f"DELETE FROM {table.sql} WHERE tableoid = '{old}'::regclass;"
        f" ALTER TABLE {table.sql} DETACH PARTITION {old}; DROP TABLE {old}; {noted('partition', table.sql)}"
    )
    if chance.happens(0.3):
        return [gone, f"CREATE TABLE {new} PARTITION OF {table.sql} {bound}{_identity(table, new)}"]
    names = ", ".join(column.sql for column in table.writable)
    made = (
        f"CREATE TABLE {new} (LIKE {table.sql} INCLUDING DEFAULTS INCLUDING STORAGE){_identity(table, new)}"
    )
    return [
        # rows of the old one are sure to fit
        f"{made}; INSERT INTO {new} ({names}) SELECT {names} FROM {old} ORDER BY ctid LIMIT 3",
        gone,
        f"ALTER TABLE {table.sql} ATTACH PARTITION {new} {bound}; {noted('partition', table.sql)}",
    ]


def _identity(table: Table, leaf: str) -> str:
    return f"; ALTER TABLE {leaf} REPLICA IDENTITY FULL" if table.identity == "f" else ""

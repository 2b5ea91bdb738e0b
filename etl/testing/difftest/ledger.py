"""The book the oracle reads: kept at the source, beside the tables, in the transactions that change them.

Every schema change is followed by ``difftest.note``, which writes down the moment and all columns as they are then. A
trigger stamps every row that is written with the latest moment of its table. So a row says by itself which columns it was
written with, whatever has been rolled back in between, and nothing of the product is needed to know it.
"""

from __future__ import annotations

from typing import Final

from etl.testing.harness import PUBLICATION

#: The column that is stamped. It is never renamed or dropped.
STAMP: Final = "_w"

#: One statement each.
PRELUDE: Final = (
    "CREATE SCHEMA difftest",
    "CREATE SEQUENCE difftest.moments",
    "CREATE TABLE difftest.events (moment bigint PRIMARY KEY, relid oid NOT NULL, what text NOT NULL, name text)",
    "CREATE INDEX ON difftest.events (relid, moment)",
    """
CREATE TABLE difftest.shapes (
    moment bigint NOT NULL, attnum int NOT NULL, name text NOT NULL, type text NOT NULL, published bool NOT NULL)""",
    f"""
CREATE FUNCTION difftest.note(what text, VARIADIC tables text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    named text;
    relation oid;
    at bigint;
BEGIN
    FOREACH named IN ARRAY tables LOOP
        relation := to_regclass(named);
        CONTINUE WHEN relation IS NULL;
        at := nextval('difftest.moments');
        INSERT INTO difftest.events VALUES (at, relation, what, named);
        INSERT INTO difftest.shapes
        SELECT at, a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
               coalesce((SELECT a.attname = ANY (p.attnames)
                           FROM pg_publication_tables p JOIN pg_class c ON c.relname = p.tablename
                           JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = p.schemaname
                          WHERE p.pubname = '{PUBLICATION}' AND c.oid = relation), false)
          FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped;
    END LOOP;
END
$$""",
    f"""
CREATE FUNCTION difftest.stamp() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.{STAMP} := (SELECT max(moment) FROM difftest.events
                     WHERE relid = coalesce(pg_partition_root(TG_RELID), TG_RELID));
    RETURN NEW;
END
$$""",
)


def noted(what: str, *tables: str) -> str:
    """The statement that keeps book; `tables` are quoted names."""
    named = ", ".join("'" + table.replace("'", "''") + "'" for table in tables)
    return f"SELECT difftest.note('{what}', {named})"


def stamped(table: str) -> str:
    """The statement that has a table's rows stamped."""
    return (
        f"CREATE TRIGGER difftest_stamp BEFORE INSERT OR UPDATE ON {table}"
        " FOR EACH ROW EXECUTE FUNCTION difftest.stamp()"
    )

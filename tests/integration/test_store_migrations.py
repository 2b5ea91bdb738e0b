"""The state store is created and upgraded from every earlier version, and never by a version that does not know it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from etl.config.sql_files import SqlFile, sql_files
from etl.errors import StoreError
from etl.lsn import Lsn, SnapshotId
from etl.schema.table import ColumnSchema, TableSchema
from etl.store.base import CopyRecord, DestinationRecord, TableState, TableStateRecord, TableVerb
from etl.store.migrations import migrate, refuse_newer, store_files
from etl.store.postgres import PostgresStore
from etl.testing.postgres import Database

#: What each version is the first to hold, written as that version wrote it.
ROWS_OF_VERSION = {
    1: """
        INSERT INTO etl.pipelines (pipeline_id, epoch, ordinal_rule, holder_host, holder_pid)
        VALUES (1, 5, 1, 'somewhere', 4242)
    """,
    2: """
        INSERT INTO etl.replication_state (pipeline_id, table_id, state, metadata)
        VALUES (1, 16384, 'sync_done', '{"type": "sync_done", "lsn": "0/64"}')
    """,
    3: """
        WITH version AS (
            INSERT INTO etl.table_schemas (pipeline_id, table_id, schema_name, table_name)
            VALUES (1, 16384, 'public', 'users') RETURNING id)
        INSERT INTO etl.table_columns (
            table_schema_id, ordinal_position, column_name, type_oid, type_modifier, type_name, nullable,
            primary_key_ordinal_position)
        SELECT id, 1, 'id', 20, -1, 'bigint', false, 1 FROM version
    """,
    4: r"""
        INSERT INTO etl.destination_tables_metadata (
            pipeline_id, table_id, destination_table_id, mode, schema_status,
            snapshot_commit_lsn, snapshot_message_lsn, replication_mask, identity_mask)
        VALUES (1, 16384, 'public.users', 'mirror', 'applied', '0/0', '0/0', '\x01', '\x01')
    """,
    5: """
        INSERT INTO etl.replication_progress (pipeline_id, worker_type, flush_lsn) VALUES (1, 'apply', '0/C8')
    """,
    6: """
        INSERT INTO etl.replication_state (pipeline_id, table_id, state, metadata)
        VALUES (1, 16385, 'paused', '{"type": "paused", "lsn": "0/64", "backlog": "b1"}')
    """,
    7: """
        INSERT INTO etl.table_copies (
            pipeline_id, table_id, snapshot, consistent_point, range_count, finished_ranges, row_count)
        VALUES (1, 16386, '00000003-0000001B-1', '0/5A', 4, '{0,2}', 20)
    """,
    8: """
        INSERT INTO etl.table_requests (pipeline_id, table_id, verb) VALUES (1, 16385, 'resume')
    """,
}

STATES = {16384: TableStateRecord(16384, TableState.SYNC_DONE, Lsn(100))}
PAUSED = {16385: TableStateRecord(16385, TableState.PAUSED, Lsn(100), backlog="b1")}
SCHEMA = TableSchema(
    16384,
    "public",
    "users",
    (ColumnSchema("id", 1, 20, nullable=False, primary_key_ordinal=1, type_name="bigint"),),
)
COPY = CopyRecord(16386, "00000003-0000001B-1", Lsn(90), 4, frozenset({0, 2}), 20)
METADATA = DestinationRecord(16384, "public.users", "mirror", "applied", SnapshotId.COPY, (True,), (True,))

CATALOG = """
SELECT c.relname, c.relkind::text, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid), pg_get_indexdef(c.oid)
FROM pg_class c
LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'etl'::regnamespace AND c.relkind IN ('r', 'i')
UNION ALL
SELECT conrelid::regclass::text, 'constraint', conname, pg_get_constraintdef(oid), true, NULL, NULL
FROM pg_constraint WHERE connamespace = 'etl'::regnamespace
UNION ALL
SELECT t.typname, 'enum', e.enumlabel, NULL, true, NULL, NULL
FROM pg_type t JOIN pg_enum e ON e.enumtypid = t.oid WHERE t.typnamespace = 'etl'::regnamespace
ORDER BY 1, 2, 3, 4
"""


def run(database: Database, files: Sequence[SqlFile] | None = None) -> list[int]:
    with database.connect() as connection, connection.transaction():
        return migrate(connection, files)


def recorded(database: Database) -> list[int]:
    with database.connect() as connection:
        return [
            row[0]
            for row in connection.execute(
                "SELECT version FROM etl.store_migrations ORDER BY version"
            ).fetchall()
        ]


def catalog(database: Database) -> list[tuple[object, ...]]:
    with database.connect() as connection:
        return connection.execute(CATALOG).fetchall()


VERSIONS = [file.version for file in store_files()]


def test_versions_count_from_one_without_gaps_and_each_has_its_rows_here() -> None:
    assert VERSIONS == list(range(1, len(VERSIONS) + 1)) == sorted(ROWS_OF_VERSION)


@pytest.mark.parametrize("start", [0, *VERSIONS])
def test_a_store_of_every_earlier_version_is_upgraded_and_keeps_its_rows(
    database: Database, start: int
) -> None:
    known = store_files()
    if start:
        run(database, known[:start])
        with database.connect() as connection:
            for version in range(1, start + 1):
                connection.execute(ROWS_OF_VERSION[version])
    assert run(database) == VERSIONS[start:]

    store = PostgresStore(database.dsn, 1)
    states = {oid: replace(record, updated_at=None) for oid, record in store.table_states().items()}
    assert states == (STATES if start >= 2 else {}) | (PAUSED if start >= 6 else {})
    assert store.schemas() == ([SCHEMA] if start >= 3 else [])
    assert store.destination_records() == ({16384: METADATA} if start >= 4 else {})
    assert store.progress() == (200 if start >= 5 else None)
    copies = {oid: replace(record, started_at=None) for oid, record in store.copies().items()}
    assert copies == ({16386: COPY} if start >= 7 else {})
    requests = [(request.oid, request.verb) for request in store.requests()]
    assert requests == ([(16385, TableVerb.RESUME)] if start >= 8 else [])
    assert store.acquire() > 5
    for state in (TableState.READY, TableState.PAUSED):
        store.set_table_state(TableStateRecord(16384, state))
    store.close()


def test_an_upgraded_store_looks_like_a_new_one(database: Database) -> None:
    for version in VERSIONS:
        assert run(database, store_files()[:version]) == [version]
    upgraded = catalog(database)
    with database.server.database() as fresh:
        run(fresh)
        assert upgraded == catalog(fresh)


def test_migrating_again_changes_nothing(database: Database) -> None:
    assert run(database) == VERSIONS
    before = catalog(database)
    assert run(database) == []
    assert catalog(database) == before
    assert recorded(database) == VERSIONS


def test_processes_that_start_together_migrate_once(database: Database) -> None:
    together = threading.Barrier(4)

    def start(_: int) -> list[int]:
        together.wait()
        return run(database)

    with ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(start, range(4)))
    assert sorted(applied) == [[], [], [], VERSIONS]


def test_a_migration_that_fails_leaves_nothing_behind(database: Database) -> None:
    broken = replace(store_files()[2], text="CREATE TABLE etl.half (); SELECT 1/0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        run(database, [*store_files()[:2], broken])
    with database.connect() as connection:
        assert connection.execute("SELECT to_regnamespace('etl')").fetchone() == (None,)
    assert run(database) == VERSIONS


def test_a_changed_file_is_refused(database: Database) -> None:
    first, *others = store_files()
    run(database)
    with pytest.raises(StoreError, match=rf"migration 1 \({first.name}\)") as refused:
        run(database, [replace(first, checksum="0" * 64), *others])
    assert "never edited" in refused.value.hint


@pytest.mark.parametrize("use", [lambda store: store.acquire(), lambda store: store.progress()])
def test_a_store_newer_than_this_version_is_refused(database: Database, use: object) -> None:
    run(database)
    with database.connect() as connection:
        connection.execute(
            "INSERT INTO etl.store_migrations (version, name, checksum) VALUES (99, 'future', '')"
        )
        with pytest.raises(StoreError, match="99"):
            refuse_newer(connection)
    store = PostgresStore(database.dsn, 1)
    with pytest.raises(StoreError, match="has version 99") as refused:
        use(store)  # type: ignore[operator]
    assert refused.value.hint == "upgrade etl"
    store.close()


def test_a_schema_of_another_program_is_refused_and_left_as_it_is(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE SCHEMA etl; CREATE TABLE etl.replication_state (theirs int)")
        before = catalog(database)
        with pytest.raises(StoreError, match="replication_state") as refused:
            run(database)
    assert "another database" in refused.value.hint
    assert catalog(database) == before


def test_a_schema_made_by_the_event_trigger_is_shared(database: Database) -> None:
    with database.connect() as connection:
        connection.execute("CREATE SCHEMA etl; CREATE TABLE etl.secret (x text)")
    assert run(database) == VERSIONS


def test_every_table_can_be_replicated_itself(database: Database) -> None:
    """A table without a key in a publication FOR ALL TABLES would refuse our own updates."""
    run(database)
    with database.connect() as connection:
        without_key = connection.execute(
            "SELECT relname FROM pg_class c WHERE relnamespace = 'etl'::regnamespace AND relkind = 'r'"
            " AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary)"
        ).fetchall()
    assert without_key == []


def test_files_are_numbered_once_and_carry_their_checksum() -> None:
    files = sql_files("store")
    assert len({file.checksum for file in files}) == len(files)
    assert all(len(file.checksum) == 64 for file in files)


@pytest.mark.parametrize("file", store_files(), ids=lambda file: file.name)
def test_a_file_can_be_run_in_a_database_of_any_encoding(file: SqlFile) -> None:
    assert file.text.isascii()

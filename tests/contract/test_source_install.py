"""Installing, upgrading, printing and removing the event triggers of the source."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from etl.errors import DdlTriggerError, SourcePrivilegeError
from etl.source import install as installer
from etl.source.install import (
    install,
    installed_version,
    latest_version,
    load_signing_keys,
    render_sql,
    source_files,
    uninstall,
)
from etl.testing.postgres import Database

OURS = """
SELECT 'function', concat_ws(' ', p.oid::regprocedure, p.prosrc, p.proconfig, p.prosecdef)
  FROM pg_proc p WHERE p.pronamespace = 'etl'::regnamespace
 UNION ALL
SELECT 'table', concat_ws(' ', c.relname, c.relpersistence, array_agg(concat(a.attname, a.atttypid) ORDER BY a.attnum))
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'etl'::regnamespace AND c.relkind = 'r' GROUP BY c.oid
 UNION ALL
SELECT 'trigger', concat_ws(' ', evtname, evtevent, evtenabled, evttags) FROM pg_event_trigger
 UNION ALL
SELECT 'migration', concat_ws(' ', version, name, checksum) FROM etl.source_migrations
 ORDER BY 1, 2
"""


@pytest.fixture
def connection(database: Database) -> Iterator[psycopg.Connection]:
    with database.connect() as connection:
        yield connection


@pytest.fixture
def powerless(database: Database, connection: psycopg.Connection) -> Iterator[psycopg.Connection]:
    """A role that may create schemas, and is no superuser."""
    role = f"powerless_{database.name}"
    connection.execute(f"CREATE ROLE {role} LOGIN")
    connection.execute(f"GRANT CREATE ON DATABASE {database.name} TO {role}")
    with psycopg.connect(make_conninfo(database.dsn, user=role), autocommit=True) as low:
        yield low
    connection.execute(f"DROP OWNED BY {role} CASCADE")
    connection.execute(f"DROP ROLE {role}")


def test_nothing_is_installed_in_a_fresh_database(connection: psycopg.Connection):
    assert installed_version(connection) is None
    with pytest.raises(DdlTriggerError, match="not installed"):
        load_signing_keys(connection)


def test_installing_brings_the_latest_version_and_one_key_and_is_done_once(connection: psycopg.Connection):
    assert install(connection) == [file.version for file in source_files()]
    assert installed_version(connection) == latest_version()
    keys = load_signing_keys(connection)
    assert [len(secret) for secret in keys.values()] == [32]
    assert install(connection) == []
    assert load_signing_keys(connection) == keys


def test_what_is_missing_is_applied(connection: psycopg.Connection, monkeypatch: pytest.MonkeyPatch):
    files = source_files()
    # the state an older version left: what it knew, and no triggers
    connection.execute("".join(file.text for file in files[:2]).encode())
    for file in files[:2]:
        connection.execute(
            "INSERT INTO etl.source_migrations (version, name, checksum) VALUES (%s, %s, %s)",
            (file.version, file.name, file.checksum),
        )
    assert installed_version(connection) is None
    assert install(connection) == [file.version for file in files[2:]]
    assert installed_version(connection) == latest_version()


def test_two_processes_that_install_at_once_install_once(database: Database):
    results: list[list[int]] = []

    def run() -> None:
        with database.connect() as connection:
            results.append(install(connection))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(len, results)) == [0, 0, 0, len(source_files())]


def test_an_installation_that_fails_leaves_nothing(connection: psycopg.Connection):
    connection.execute("CREATE SCHEMA etl")
    connection.execute("CREATE FUNCTION etl.published_tables(oid[]) RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(DdlTriggerError, match="already holds something"):
        install(connection)
    assert installed_version(connection) is None
    left = connection.execute(
        "SELECT proname::text FROM pg_proc WHERE pronamespace = 'etl'::regnamespace"
    ).fetchall()
    assert left == [("published_tables",)]


def test_a_file_that_was_edited_after_it_had_been_applied_is_refused(connection: psycopg.Connection):
    install(connection)
    connection.execute("UPDATE etl.source_migrations SET checksum = 'other' WHERE version = 2")
    with pytest.raises(DdlTriggerError, match="is not the file that was applied"):
        install(connection)


def test_a_newer_installation_is_refused(connection: psycopg.Connection):
    install(connection)
    connection.execute(
        "INSERT INTO etl.source_migrations (version, name, checksum) VALUES (999, 'future', 'x')"
    )
    with pytest.raises(DdlTriggerError, match="version 999") as refused:
        install(connection)
    assert "upgrade" in refused.value.hint


def test_a_trigger_that_was_dropped_is_made_again(connection: psycopg.Connection):
    install(connection)
    keys = load_signing_keys(connection)
    connection.execute("DROP EVENT TRIGGER supabase_etl_ddl_drop_trigger")
    assert installed_version(connection) is None
    assert install(connection) == []
    assert installed_version(connection) == latest_version()
    assert load_signing_keys(connection) == keys


@pytest.mark.parametrize("mode", ["DISABLE", "ENABLE REPLICA"])
def test_a_trigger_that_somebody_turned_off_is_not_turned_on_behind_their_back(
    connection: psycopg.Connection, mode: str
):
    install(connection)
    connection.execute(f"ALTER EVENT TRIGGER supabase_etl_ddl_message_trigger {mode}")
    assert installed_version(connection) is None
    with pytest.raises(DdlTriggerError, match="is disabled") as refused:
        install(connection)
    connection.execute(refused.value.hint.encode())
    assert installed_version(connection) == latest_version()


def test_a_role_without_the_right_is_told_what_to_do(powerless: psycopg.Connection):
    with pytest.raises(SourcePrivilegeError) as refused:
        install(powerless)
    assert "etl init --print-sql" in refused.value.hint
    assert installed_version(powerless) is None


def test_a_role_that_may_not_look_is_told_what_to_do(
    connection: psycopg.Connection, powerless: psycopg.Connection
):
    install(connection)
    with pytest.raises(SourcePrivilegeError, match="permission denied"):
        installed_version(powerless)


def test_a_standby_is_told_from_a_primary(connection: psycopg.Connection):
    connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(DdlTriggerError, match="read-only") as refused:
        install(connection)
    assert "primary" in refused.value.hint


def test_the_printed_script_does_what_installing_does(database: Database, connection: psycopg.Connection):
    install(connection)
    installed = connection.execute(OURS).fetchall()
    uninstall(connection)
    connection.execute(render_sql().encode())
    assert connection.execute(OURS).fetchall() == installed
    assert installed_version(connection) == latest_version()


def test_the_printed_script_may_be_run_again(connection: psycopg.Connection):
    connection.execute(render_sql().encode())
    keys = load_signing_keys(connection)
    connection.execute(render_sql().encode())
    assert load_signing_keys(connection) == keys


def test_the_printed_script_refuses_what_installing_refuses(connection: psycopg.Connection):
    install(connection)
    connection.execute("UPDATE etl.source_migrations SET checksum = 'other' WHERE version = 2")
    with pytest.raises(psycopg.errors.RaiseException, match="migration 2"):
        connection.execute(render_sql().encode())


def test_the_printed_script_grants_the_role_of_the_pipeline_what_it_needs(
    connection: psycopg.Connection, powerless: psycopg.Connection
):
    connection.execute(render_sql(powerless.info.user).encode())
    assert installed_version(powerless) == latest_version()
    assert load_signing_keys(powerless) == load_signing_keys(connection)


def test_a_role_of_any_name_is_quoted_in_the_printed_script():
    assert 'TO "x""; DROP TABLE y; --"' in render_sql('x"; DROP TABLE y; --')


def test_without_a_role_the_grants_are_printed_as_comments():
    grants = [
        line for line in render_sql().splitlines() if "GRANT" in line and "role_of_the_pipeline" in line
    ]
    assert len(grants) == 3
    assert all(line.startswith("-- ") for line in grants)


def test_removing_leaves_nothing(connection: psycopg.Connection):
    install(connection)
    uninstall(connection)
    assert installed_version(connection) is None
    left = connection.execute(
        "SELECT (SELECT count(*) FROM pg_event_trigger), (SELECT count(*) FROM pg_namespace WHERE nspname = 'etl')"
    ).fetchone()
    assert left == (0, 0)
    uninstall(connection)


def test_removing_leaves_what_others_keep_in_the_schema(connection: psycopg.Connection):
    install(connection)
    connection.execute("CREATE TABLE etl.replication_state (a int)")
    connection.execute("CREATE FUNCTION etl.theirs() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    uninstall(connection)
    left = connection.execute(
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'etl'::regnamespace"
        " UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = 'etl'::regnamespace ORDER BY 1"
    ).fetchall()
    assert left == [("replication_state",), ("theirs",)]
    assert install(connection)


def test_removing_needs_the_right(connection: psycopg.Connection, powerless: psycopg.Connection):
    install(connection)
    with pytest.raises(SourcePrivilegeError):
        uninstall(powerless)
    assert installed_version(connection) == latest_version()


def test_every_object_the_files_create_is_known_to_the_removal():
    text = "".join(file.text for file in source_files())
    created = sum(len(installer._created(kind)) for kind in ("FUNCTION", "TABLE", "TYPE"))
    assert text.count("\nCREATE ") - text.count("\nCREATE SCHEMA ") == created

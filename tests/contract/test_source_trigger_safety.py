"""The user's statement never fails, and never takes long, because of us; what could not be told is said to be missing."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from etl.source.install import install
from etl.testing.postgres import start_postgres
from tests.contract.trigger_stream import Message, Source, column, names

KB = 1024


def created(source: Source, columns: str = "a int") -> None:
    source.run(f"CREATE TABLE t ({columns})", "ALTER PUBLICATION p ADD TABLE t")


# --- size -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "truncated"), [(64 * KB - 8, False), (64 * KB - 7, True), (16 * KB * KB, True)]
)
def test_a_default_of_more_than_64_kb_is_left_out_and_marked(source: Source, length: int, truncated: bool):
    created(source, "a text")
    source.run(f"ALTER TABLE t ALTER COLUMN a SET DEFAULT '{'x' * length}'")
    entry = column(source.message(), "a")
    assert (entry["atthasdef"], entry["default_truncated"]) == (True, truncated)
    assert entry["default_expression"] == (None if truncated else f"'{'x' * length}'::text")


@pytest.mark.parametrize(("length", "truncated"), [(64 * KB, False), (64 * KB + 1, True), (300 * KB, True)])
def test_a_missing_value_of_more_than_64_kb_is_left_out_and_marked(
    source: Source, length: int, truncated: bool
):
    created(source)
    source.run(f"ALTER TABLE t ADD COLUMN b text DEFAULT repeat('x', {length})")
    entry = column(source.message(), "b")
    assert (entry["atthasmissing"], entry["missing_truncated"]) == (True, truncated)
    assert entry["missing_value"] == (None if truncated else "x" * length)


def test_what_goes_beyond_a_megabyte_of_defaults_is_left_out_and_marked(source: Source):
    defaults = ", ".join(f"c{n} text DEFAULT '{'x' * 40 * KB}'" for n in range(40))
    created(source, defaults)
    source.run("ALTER TABLE t ADD COLUMN last int DEFAULT 1")
    payload = source.message()
    cut = [entry["default_truncated"] for entry in payload["columns"]]
    assert cut == [False] * 25 + [True] * 16
    assert len(json.dumps(payload)) < 2 * KB * KB


@pytest.mark.parametrize("filler", ["x", "é", "😀"])
def test_the_statement_text_is_cut_at_8_kb_between_characters(source: Source, filler: str):
    created(source)
    statement = f"ALTER TABLE t ADD COLUMN b text /* {filler * 20000} */"
    source.run(statement)
    text = source.message()["current_query"]
    assert statement.startswith(text)
    assert 2 * KB <= len(text.encode()) <= 8 * KB


def test_a_table_of_1600_columns_is_described_whole(source: Source):
    created(source, ", ".join(f"c{n} int DEFAULT {n}" for n in range(1599)))
    # pg_get_expr with a relation compares the names of all columns, for every default: that took 18 s
    source.run(
        "SET statement_timeout = '10s'", "ALTER TABLE t ADD COLUMN last text", "RESET statement_timeout"
    )
    payload = source.message()
    assert len(payload["columns"]) == payload["relnatts"] == 1600
    assert payload["columns"][1598]["default_expression"] == "1598"


def test_names_of_any_kind_come_through(source: Source):
    name = 'He said "hi", it\'s a \\ \t\n{naïve} 😀'
    quoted = psycopg.sql.Identifier(name).as_string(source.connection)
    source.run(f"CREATE TABLE {quoted} (a int)", f"ALTER PUBLICATION p ADD TABLE {quoted}")
    source.run(f"ALTER TABLE {quoted} RENAME COLUMN a TO {quoted}")
    payload = source.message()
    assert (payload["relname"], names(payload)) == (name, [name])


# --- what the session has set -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        "SET plpgsql.extra_errors = 'all'",
        "SET plpgsql.extra_warnings = 'all'",
        "SET transform_null_equals = on",
        "SET array_nulls = off",
        "SET default_transaction_deferrable = on",
        "SET standard_conforming_strings = off",
        "SET row_security = off",
        "SET search_path = ''",
        "SET search_path = pg_temp, public",
        "SET bytea_output = 'escape'",
        "SET client_encoding = 'LATIN1'",
        "SET check_function_bodies = off",
        "SET default_transaction_isolation = 'serializable'",
        "SET lock_timeout = '1ms'",
        "SET default_toast_compression = 'pglz'",
    ],
)
def test_no_setting_of_the_session_makes_a_difference(source: Source, setting: str):
    created(source)
    source.run("DISCARD PLANS", setting, "ALTER TABLE public.t ADD COLUMN b text DEFAULT 'x'", "RESET ALL")
    assert column(source.message(), "b")["default_expression"] == "'x'::text"
    assert source.notices == []


@pytest.mark.parametrize(
    "statement",
    [
        "DO $$ BEGIN ALTER TABLE t ADD COLUMN b int; ALTER TABLE t ADD COLUMN c int; END $$",
        "ALTER TABLE t ADD COLUMN b int; ALTER TABLE t ADD COLUMN c int",
    ],
)
def test_several_statements_sent_as_one_are_logged_one_by_one(source: Source, statement: str):
    created(source)
    source.run(statement)
    assert [names(payload) for payload in source.messages()] == [["a", "b"], ["a", "b", "c"]]


def test_when_another_event_trigger_alters_the_table_too_the_last_message_has_it_all(source: Source):
    created(source, "a int, b int")
    source.run(
        """CREATE FUNCTION meddle() RETURNS event_trigger LANGUAGE plpgsql AS $$
           BEGIN ALTER TABLE public.t ADD COLUMN IF NOT EXISTS meddled int; END $$""",
        "CREATE EVENT TRIGGER z_meddle ON sql_drop EXECUTE FUNCTION meddle()",
        "ALTER TABLE t DROP COLUMN b",
    )
    assert names(source.messages()[-1]) == ["a", "meddled"]


def test_another_event_trigger_that_fails_takes_the_message_with_it(source: Source):
    created(source)
    source.run(
        "CREATE FUNCTION veto() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$",
        "CREATE EVENT TRIGGER z_veto ON ddl_command_end EXECUTE FUNCTION veto()",
    )
    with pytest.raises(psycopg.errors.RaiseException):
        source.run("ALTER TABLE t ADD COLUMN b int")
    assert source.messages() == []


# --- isolation --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_older_than_the_last_change_of_the_table_is_not_believed(source: Source, level: str):
    created(source)
    source.run(f"BEGIN ISOLATION LEVEL {level}", "SELECT 1")
    with source.database.connect() as other:
        other.execute("ALTER TABLE t ADD COLUMN b int")
    source.run("ALTER TABLE t ADD COLUMN c int", "COMMIT")
    by_other, stale = source.messages()
    assert names(by_other) == ["a", "b"]
    assert "columns" not in stale
    assert (stale["oid"], stale["error"]["sqlstate"]) == (source.oid("t"), "40001")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_snapshot_is_believed_when_others_only_tried_to_change_the_table(source: Source, level: str):
    created(source)
    source.run(f"BEGIN ISOLATION LEVEL {level}", "SELECT 1")
    with source.database.connect() as other, other.transaction(force_rollback=True):
        other.execute("ALTER TABLE t ADD COLUMN b int")
    source.run("ALTER TABLE t ADD COLUMN c int", "ALTER TABLE t ADD COLUMN d int", "COMMIT")
    assert [names(payload) for payload in source.messages()] == [["a", "c"], ["a", "c", "d"]]


def test_a_table_of_a_renamed_schema_that_another_transaction_is_changing_is_not_described(source: Source):
    source.run("CREATE SCHEMA s", "CREATE TABLE s.t (a int)", "ALTER PUBLICATION p ADD TABLE s.t")
    with source.database.connect() as other, other.transaction():
        other.execute("ALTER TABLE s.t ADD COLUMN b int")
        source.run("ALTER SCHEMA s RENAME TO z")
    undescribed, described = source.messages()
    assert undescribed["error"]["sqlstate"] == "55P03"
    assert names(described) == ["a", "b"]


def test_a_leaf_that_a_younger_transaction_changed_is_not_described_behind_its_back(source: Source):
    source.run(
        "CREATE TABLE root (id int, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (9)",
        "ALTER PUBLICATION p ADD TABLE root",
        "BEGIN",
        "SELECT pg_current_xact_id()",
    )
    with source.database.connect() as younger, source.database.connect() as youngest:
        younger.execute("ALTER TABLE leaf ALTER COLUMN v SET DEFAULT 1")
        source.run("ALTER TABLE root OWNER TO CURRENT_USER")
        # whoever has been described is locked until the end, so nobody can change it and commit first
        with pytest.raises(psycopg.errors.LockNotAvailable):
            youngest.execute("SET lock_timeout = '50ms'; ALTER TABLE leaf ALTER COLUMN v SET DEFAULT 2")
        source.run("COMMIT")
        youngest.execute("ALTER TABLE leaf ALTER COLUMN v SET DEFAULT 2")
    defaults = [column(payload, "v")["default_expression"] for payload in source.messages()]
    assert defaults == ["1", "1", "2"]


# --- when we fail -----------------------------------------------------------------------------------------------


def failing(
    source: Source, sabotage: str, statement: str = "ALTER TABLE t ADD COLUMN b int"
) -> list[Message]:
    """The messages of a statement that succeeds although somebody broke what is ours."""
    created(source)
    source.run(sabotage)
    source.events()
    source.notices.clear()
    source.run(statement)
    assert (
        source.value("SELECT count(*) FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'b'")
        == 1
    )
    return [event for event in source.events() if isinstance(event, Message)]


@pytest.mark.parametrize(
    "sabotage",
    [
        "DROP FUNCTION etl.describe_table_schema(oid)",
        "DROP FUNCTION etl.render_columns(oid, boolean)",
        "DROP FUNCTION etl.describe_table_identity(oid)",
    ],
)
def test_a_table_that_cannot_be_described_is_reported_with_a_signed_message_and_a_warning(
    own_source: Source, sabotage: str
):
    (message,) = failing(own_source, sabotage)
    payload: dict[str, Any] = message.payload
    assert list(payload) == [
        "version",
        "trigger_event",
        "command_tag",
        "server_version_num",
        "xid",
        "subxid",
        "oid",
        "error",
    ]
    assert payload["oid"] == own_source.oid("t")
    assert set(payload["error"]) == {"sqlstate", "message"}
    (warning,) = own_source.notices
    assert "was recorded without a description" in warning


@pytest.mark.parametrize(
    "sabotage", ["DROP FUNCTION etl.published_tables(oid[])", "DROP FUNCTION etl.changes_of_commands()"]
)
def test_a_change_of_unknown_tables_is_reported_under_oid_0(own_source: Source, sabotage: str):
    (message,) = failing(own_source, sabotage)
    assert message.payload["oid"] == 0
    assert message.payload["error"]["sqlstate"] == "42883"


def test_one_table_that_cannot_be_described_leaves_the_others_described(own_source: Source):
    own_source.run(
        "CREATE TYPE pair AS (x int)",
        "CREATE TABLE one OF pair",
        "CREATE TABLE two OF pair",
        "ALTER PUBLICATION p ADD TABLE one, two",
        """CREATE OR REPLACE FUNCTION etl.hold_still(table_oid oid) RETURNS void LANGUAGE plpgsql AS $$ BEGIN END $$""",
        """CREATE OR REPLACE FUNCTION etl.check_description_is_current(table_oid oid) RETURNS void LANGUAGE plpgsql AS $$
           BEGIN IF table_oid = 'public.one'::pg_catalog.regclass THEN RAISE 'no'; END IF; END $$""",
        "ALTER TYPE pair ADD ATTRIBUTE y int CASCADE",
    )
    one, two = own_source.messages()
    assert one["error"] == {"sqlstate": "P0001", "message": "no"}
    assert names(two) == ["x", "y"]


def test_without_a_key_the_message_is_unsigned_and_a_warning_says_so(own_source: Source):
    (message,) = failing(own_source, "DELETE FROM etl.ddl_signing_key")
    payload, signature = message.signed
    assert signature is None
    assert names(json.loads(payload)) == ["a", "b"]
    assert own_source.notices == [
        "etl: a schema change was recorded without a signature: etl.ddl_signing_key is empty"
    ]


def test_without_the_scratch_table_the_message_lacks_the_subtransaction_only(own_source: Source):
    (message,) = failing(
        own_source,
        """DROP TABLE etl.ddl_scratch;
           CREATE OR REPLACE FUNCTION etl.take_deferred_tables() RETURNS oid[] LANGUAGE sql AS $$ SELECT '{}'::oid[] $$""",
    )
    assert message.payload["subxid"] is None
    assert names(message.payload) == ["a", "b"]


@pytest.mark.parametrize(
    "sabotage",
    [
        "DROP FUNCTION etl.sign_ddl_message(bytea)",
        "DROP FUNCTION etl.ddl_message(json, text, text, bigint)",
        """DROP FUNCTION etl.render_failure(oid, text, text, bigint, text, text);
           DROP FUNCTION etl.describe_table_schema(oid)""",
    ],
)
def test_when_nothing_can_be_recorded_a_warning_says_so(own_source: Source, sabotage: str):
    assert failing(own_source, sabotage) == []
    assert "was not recorded" in own_source.notices[-1]


def test_an_owner_that_may_not_emit_messages_is_named_in_a_warning(own_source: Source):
    role = f"limited_{own_source.database.name}"
    emit = own_source.value(
        "SELECT string_agg(oid::regprocedure::text, ', ') FROM pg_proc WHERE proname = 'pg_logical_emit_message'"
    )
    own_source.run(f"CREATE ROLE {role}", f"REVOKE EXECUTE ON FUNCTION {emit} FROM PUBLIC")
    try:
        owned = f"ALTER FUNCTION etl.emit_schema_change_messages() OWNER TO {role}"
        assert failing(own_source, owned) == []
        assert own_source.notices == [
            f"etl: a schema change was not recorded: {role} may not call pg_logical_emit_message"
        ]
    finally:
        own_source.run("DROP SCHEMA etl CASCADE", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("table", ["ddl_signing_key", "ddl_scratch"])
def test_a_lock_that_somebody_holds_on_a_table_of_ours_does_not_hold_up_the_statement(
    own_source: Source, table: str
):
    with own_source.database.connect() as other, other.transaction():
        other.execute(f"LOCK TABLE etl.{table} IN ACCESS EXCLUSIVE MODE")
        failing(own_source, "SET statement_timeout = '30s'")
    assert own_source.notices


def test_dropping_the_schema_takes_the_triggers_along(own_source: Source):
    assert failing(own_source, "DROP SCHEMA etl CASCADE") == []


# --- WAL that nobody can decode ---------------------------------------------------------------------------------


def test_nothing_is_logged_where_the_wal_is_not_logical():
    with (
        start_postgres({"wal_level": "replica"}, own=True) as server,
        server.database() as database,
        database.connect() as connection,
    ):
        install(connection)
        connection.execute("CREATE TABLE t (a int)")
        connection.execute("SET client_min_messages = error")
        connection.execute("CREATE PUBLICATION p FOR TABLE t")
        connection.execute("ALTER TABLE t ADD COLUMN b int")
        assert connection.execute("SELECT etl.ddl_log_is_off()").fetchone() == (True,)
        # a described change would have left a dead row here
        assert connection.execute("SELECT pg_relation_size('etl.ddl_scratch')").fetchone() == (0,)

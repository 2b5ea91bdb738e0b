"""Who can make a message that is believed, and what the triggers' rights can be used for by others."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from etl.errors import SourcePrivilegeError
from etl.schema.signature import split_signed, verify
from etl.source.install import install, load_signing_keys
from tests.contract.trigger_stream import PREFIX, Begin, Commit, Message, Source, names

BLOCK = 64


@pytest.fixture
def published(source: Source) -> Source:
    source.run("CREATE TABLE t (a int, b int)", "ALTER PUBLICATION p ADD TABLE t")
    source.events()
    return source


@pytest.fixture
def mallory(published: Source) -> Iterator[psycopg.Connection]:
    """A role that may do nothing but connect, and own a table."""
    yield from role_connection(published, "mallory")


def role_connection(source: Source, prefix: str) -> Iterator[psycopg.Connection]:
    role = f"{prefix}_{source.database.name}"
    source.run(f"CREATE ROLE {role} LOGIN")
    try:
        with psycopg.connect(make_conninfo(source.database.dsn, user=role), autocommit=True) as connection:
            yield connection
    finally:
        source.run(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


# --- forged and replayed messages -------------------------------------------------------------------------------


def test_the_signature_is_the_hmac_of_the_payload_under_the_secret(published: Source):
    published.run("ALTER TABLE t ADD COLUMN c int")
    (message,) = (event for event in published.events() if isinstance(event, Message))
    payload, signature = message.signed
    keys = load_signing_keys(published.connection)
    assert signature is not None
    assert signature.hmac == hmac.new(keys[signature.key_id], payload, hashlib.sha256).digest()
    assert json.loads(message.content)["etl_signature"]["hmac"] == signature.hmac.hex()


def test_the_pads_are_those_of_rfc_2104(published: Source):
    row = published.connection.execute(
        "SELECT secret, inner_pad, outer_pad FROM etl.ddl_signing_key", binary=True
    ).fetchone()
    assert row is not None
    secret, inner, outer = row
    assert len(secret) == 32
    padded = secret.ljust(BLOCK, b"\0")
    assert (inner, outer) == (bytes(x ^ 0x36 for x in padded), bytes(x ^ 0x5C for x in padded))


def test_anyone_can_emit_our_prefix_and_nobody_can_sign_it(published: Source, mallory: psycopg.Connection):
    forged = json.dumps({"version": 1, "oid": published.oid("t"), "columns": []})
    guess = f'{forged[:-1]}, "etl_signature": {{"version": 1, "key_id": 1, "hmac": "{"0" * 64}"}}}}'
    for content in (forged, guess, "{garbage"):
        mallory.execute("SELECT pg_logical_emit_message(true, %s, %s)", (PREFIX, content))
    keys = load_signing_keys(published.connection)
    found = [split_signed(event.content) for event in published.events() if isinstance(event, Message)]
    assert len(found) == 3
    assert not any(signature is not None and verify(payload, signature, keys) for payload, signature in found)


def test_changing_one_byte_of_a_signed_message_breaks_it(published: Source):
    published.run("ALTER TABLE t ADD COLUMN c int")
    (message,) = (event for event in published.events() if isinstance(event, Message))
    keys = load_signing_keys(published.connection)
    for place in range(0, len(message.content), 7):
        changed = bytearray(message.content)
        changed[place] ^= 1
        payload, signature = split_signed(bytes(changed))
        assert signature is None or not verify(payload, signature, keys)


def test_a_signed_message_that_is_emitted_again_names_another_transaction(
    published: Source, mallory: psycopg.Connection
):
    published.run("ALTER TABLE t ADD COLUMN c int")
    (original,) = (event for event in published.events() if isinstance(event, Message))
    mallory.execute("SELECT pg_logical_emit_message(true, %s, %s::bytea)", (PREFIX, original.content))
    begin, replayed, _ = published.events()
    assert isinstance(begin, Begin)
    assert isinstance(replayed, Message)
    assert replayed.content == original.content
    assert replayed.payload["xid"] & 0xFFFFFFFF != begin.xid


def test_the_message_of_a_transaction_names_that_transaction(published: Source):
    published.run("ALTER TABLE t ADD COLUMN c int")
    begin, message, commit = published.events()
    assert isinstance(begin, Begin)
    assert isinstance(message, Message)
    assert isinstance(commit, Commit)
    assert message.payload["xid"] & 0xFFFFFFFF == begin.xid


def test_a_new_key_signs_from_then_on_and_the_old_one_still_checks(own_source: Source):
    own_source.run(
        "CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t", "ALTER TABLE t ADD COLUMN b int"
    )
    assert own_source.value("SELECT etl.create_ddl_signing_key()") == 2
    own_source.run("ALTER TABLE t ADD COLUMN c int")
    keys = load_signing_keys(own_source.connection)
    found = [split_signed(event.content) for event in own_source.events() if isinstance(event, Message)]
    assert [signature.key_id for _, signature in found if signature] == [1, 2]
    assert all(signature is not None and verify(payload, signature, keys) for payload, signature in found)


def test_every_database_has_a_secret_of_its_own(own_source: Source):
    first = load_signing_keys(own_source.connection)
    own_source.run("SELECT etl.create_ddl_signing_key()")
    second = load_signing_keys(own_source.connection)
    assert len(set(second.values())) == len(first) + 1


# --- rights -----------------------------------------------------------------------------------------------------


def test_an_owner_without_any_right_on_our_schema_can_alter_a_table(
    published: Source, mallory: psycopg.Connection
):
    published.run("CREATE TYPE pair AS (x int)", f"ALTER TABLE t OWNER TO {mallory.info.user}")
    published.events()
    mallory.execute("ALTER TABLE t ADD COLUMN c int")
    assert names(published.message()) == ["a", "b", "c"]
    mallory.execute("DROP TABLE t")
    assert published.message()["command_tag"] == "DROP TABLE"


def test_nobody_else_may_run_a_function_read_a_table_or_use_the_schema(source: Source):
    open_to_all = source.connection.execute(
        """SELECT p.oid::regprocedure::text FROM pg_proc p
            WHERE p.pronamespace = 'etl'::regnamespace AND has_function_privilege('public', p.oid, 'EXECUTE')
           UNION ALL
           SELECT c.oid::regclass::text FROM pg_class c
            WHERE c.relnamespace = 'etl'::regnamespace AND c.relkind = 'r'
              AND has_table_privilege('public', c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')
           UNION ALL
           SELECT nspname FROM pg_namespace
            WHERE nspname = 'etl' AND has_schema_privilege('public', oid, 'USAGE, CREATE')"""
    ).fetchall()
    assert open_to_all == []


@pytest.mark.parametrize(
    "attempt",
    [
        "SELECT secret FROM etl.ddl_signing_key",
        "SELECT etl.sign_ddl_message('{}')",
        "SELECT etl.create_ddl_signing_key()",
        "INSERT INTO etl.ddl_scratch VALUES ('1', 1)",
        "CREATE FUNCTION etl.describe_table_schema(regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "ALTER EVENT TRIGGER supabase_etl_ddl_message_trigger DISABLE",
    ],
)
def test_a_role_without_rights_cannot(mallory: psycopg.Connection, attempt: str):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        mallory.execute(attempt)


def test_only_the_trigger_runs_with_its_owners_rights_and_every_function_pins_its_search_path(source: Source):
    rows = source.connection.execute(
        "SELECT proname, prosecdef, proconfig FROM pg_proc WHERE pronamespace = 'etl'::regnamespace"
    ).fetchall()
    assert [name for name, definer, _ in rows if definer] == ["emit_schema_change_messages"]
    unpinned = [name for name, _, config in rows if "search_path=pg_catalog, pg_temp" not in (config or ())]
    assert unpinned == []


SHADOWS = """
CREATE TEMPORARY TABLE {0} (oid oid, relname name, attname name, attnum int, nspname name, puballtables bool);
INSERT INTO {0} VALUES (0, 'evil', 'evil', 1, 'evil', false);
"""


def test_temporary_and_public_objects_of_the_user_are_never_touched(
    published: Source, mallory: psycopg.Connection
):
    user = mallory.info.user
    published.run(
        f"ALTER TABLE t OWNER TO {user}",
        f"CREATE SCHEMA evil AUTHORIZATION {user}",
        f"GRANT CREATE ON SCHEMA public TO {user}",
        "CREATE TABLE victims (caller text)",
        "GRANT INSERT ON victims TO PUBLIC",
    )
    published.events()
    relations = (
        "pg_class",
        "pg_attribute",
        "pg_type",
        "pg_namespace",
        "pg_publication",
        "pg_publication_rel",
    )
    for relation in relations:
        mallory.execute(SHADOWS.format(relation).encode())
    for signature, result in (
        ("format_type(oid, integer)", "text"),
        ("json_build_object(text, text)", "json"),
        ("json_agg(anyelement)", "json"),
        ("current_database()", "text"),
        ("current_setting(text)", "text"),
        ("octet_length(text)", "integer"),
        ("coalesce_it(text)", "text"),
    ):
        mallory.execute(
            f"""CREATE FUNCTION evil.{signature} RETURNS {result} LANGUAGE plpgsql AS $$
                BEGIN INSERT INTO public.victims VALUES (current_user); RETURN NULL; END $$""".encode()
        )
    mallory.execute(
        "CREATE FUNCTION evil.same(oid, oid) RETURNS boolean LANGUAGE plpgsql AS"
        " $$ BEGIN INSERT INTO public.victims VALUES (current_user); RETURN false; END $$"
    )
    mallory.execute("CREATE OPERATOR evil.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = evil.same)")
    mallory.execute("SET search_path = evil, pg_temp, public, pg_catalog")
    mallory.execute("ALTER TABLE public.t ADD COLUMN c int")
    assert names(published.message()) == ["a", "b", "c"]
    assert published.value("SELECT count(*) FROM victims") == 0


def test_the_role_of_a_pipeline_can_describe_tables_and_read_the_keys_and_no_more(own_source: Source):
    own_source.run("CREATE TABLE t (a int)")
    for runtime in role_connection(own_source, "runtime"):
        with pytest.raises(SourcePrivilegeError, match="permission denied"):
            load_signing_keys(runtime)
        install(own_source.connection, runtime.info.user)
        assert load_signing_keys(runtime) == load_signing_keys(own_source.connection)
        described = runtime.execute("SELECT attname FROM etl.describe_table_schema('t'::regclass)").fetchall()
        assert described == [("a",)]
        assert runtime.execute(
            "SELECT etl.describe_table_identity('t'::regclass) IS NOT NULL"
        ).fetchone() == (True,)
        for attempt in (
            "SELECT etl.sign_ddl_message('{}')",
            "DELETE FROM etl.ddl_signing_key",
            "DROP FUNCTION etl.describe_table_schema(oid)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                runtime.execute(attempt)


def test_a_role_that_may_create_in_the_schema_cannot_get_its_functions_called(own_source: Source):
    own_source.run(
        "CREATE TABLE t (a int)", "CREATE TABLE victims (caller text)", "ALTER PUBLICATION p ADD TABLE t"
    )
    own_source.run("GRANT INSERT ON victims TO PUBLIC")
    overloads = own_source.connection.execute(
        """SELECT proname, pg_get_function_identity_arguments(oid), pronargs,
                  CASE WHEN proretset THEN 'void' ELSE prorettype::regtype::text END
             FROM pg_proc WHERE pronamespace = 'etl'::regnamespace AND proname <> 'emit_schema_change_messages'"""
    ).fetchall()
    for runtime in role_connection(own_source, "runtime"):
        install(own_source.connection, runtime.info.user)
        body = "$$ BEGIN INSERT INTO public.victims VALUES (current_user); RETURN NULL; END $$"
        for name, arguments, count, result in overloads:
            # one more argument with a default, and the same number of arguments of any type
            returned = "json" if result in {"void", "record"} else result
            variants = [f"{arguments}{', ' if arguments else ''}extra int DEFAULT 1"]
            variants += [", ".join(["anyelement"] * count)] if count else []
            for variant in variants:
                runtime.execute(
                    f"CREATE FUNCTION etl.{name}({variant}) RETURNS {returned} LANGUAGE plpgsql AS {body}".encode()
                )
        own_source.run(
            "ALTER TABLE t ADD COLUMN b int DEFAULT 1", "ALTER TABLE t DROP COLUMN b", "DROP TABLE t"
        )
        # it may get in the way, by making calls ambiguous; it runs nothing with our rights
        assert own_source.value("SELECT count(*) FROM victims") == 0


def test_whoever_owned_the_schema_before_cannot_replace_what_the_trigger_calls(own_source: Source):
    own_source.run("DROP SCHEMA etl CASCADE")
    for squatter in role_connection(own_source, "squatter"):
        own_source.run(f"CREATE SCHEMA etl AUTHORIZATION {squatter.info.user}")
        squatter.execute("CREATE TABLE etl.pipelines (a int)")
        install(own_source.connection)
        squatter.execute("CREATE TABLE etl.more_of_mine (a int)")
        for attempt in (
            "DROP FUNCTION etl.describe_table_schema(oid)",
            "CREATE OR REPLACE FUNCTION etl.published_tables(candidates oid[]) RETURNS oid[] LANGUAGE sql AS 'SELECT 1'",
            "DROP TABLE etl.ddl_signing_key",
            "ALTER SCHEMA etl RENAME TO mine",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                squatter.execute(attempt)

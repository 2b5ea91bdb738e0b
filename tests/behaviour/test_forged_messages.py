"""Anyone who may connect can write a message with our prefix; only the trigger's are believed."""

from __future__ import annotations

from tests.stories import Outcome, story

FORGED = """SELECT pg_logical_emit_message({transactional}, 'supabase_etl_ddl', {content})"""
PLAUSIBLE = (
    "jsonb_build_object('version', 1, 'oid', 'items'::regclass::oid::int, 'nspname', '{schema}', 'relname', 'items',"
    " 'command_tag', 'ALTER TABLE', 'xid', pg_current_xact_id()::text::bigint, 'columns', '[]'::jsonb,"
    " 'identity', jsonb_build_object('relreplident', 'd', 'primary_key_attnums', '[1]'::jsonb))::text"
)
WRONGLY_SIGNED = (
    f'left({PLAUSIBLE}, -1) || \', "etl_signature": {{"version": 1, "key_id": 1, "hmac": "\''
    " || repeat('0', 64) || '\"}}'"
)


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"],
    when=[
        FORGED.format(transactional="true", content="'{garbage'"),
        FORGED.format(transactional="false", content="'{garbage'"),
        FORGED.format(transactional="true", content="''"),
        FORGED.format(transactional="true", content=PLAUSIBLE),
        FORGED.format(transactional="false", content=PLAUSIBLE),
        FORGED.format(transactional="true", content=r"'\xff00fe'::bytea"),
        FORGED.format(transactional="true", content="repeat('x', 5000000)"),
        FORGED.format(transactional="true", content=WRONGLY_SIGNED),
        "SELECT pg_logical_emit_message(true, 'somebody else', 'hello')",
        "INSERT INTO items VALUES (2, 'two')",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO items VALUES (3, 'three', 3)",
    ],
)
def test_forged_and_unsigned_messages_are_ignored_and_the_pipeline_stays_healthy(outcome: Outcome):
    assert outcome.rows("items") == [(1, "one", None), (2, "two", None), (3, "three", 3)]
    ignored = [line for run in outcome.world.runs for line in run.logged("schema_message_ignored")]
    assert {line["outcome"] for line in ignored} >= {"unsigned", "non_transactional", "forged"}

"""Rows: whatever identifies them, however large, moved, filtered or partitioned they are, they arrive as they are."""

from __future__ import annotations

import pytest

from etl.testing.harness import PipelineUnderTest
from tests.stories import Outcome, story

#: A value that Postgres stores out of line (12.8 kB, incompressible), and so does not send when it did not change.
BIG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400))"
BIG_COLUMN = "ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL"


# --- what identifies a row -------------------------------------------------------------------------------------------

CHANGES = (
    "INSERT INTO items VALUES (4, 'four', 4), (5, 'five', 5)",
    "UPDATE items SET a = 'changed' WHERE id IN (1, 4)",
    "UPDATE items SET id = id + 100 WHERE id IN (2, 5)",
    "DELETE FROM items WHERE id = 3",
    "INSERT INTO items VALUES (3, 'three again', 3)",
    "UPDATE items SET id = 2 WHERE id = 102",
)


def keyed(*more: str) -> list[str]:
    return [
        "CREATE TABLE items (id int PRIMARY KEY, a text, n int NOT NULL UNIQUE)",
        *more,
        "INSERT INTO items VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)",
    ]


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(name, marks=story(keyed(f"ALTER TABLE items REPLICA IDENTITY {name}"), when=CHANGES))
        for name in ("DEFAULT", "FULL", "USING INDEX items_n_key")
    ],
)
def test_updates_deletes_and_key_changes_find_their_rows(outcome: Outcome, identity: str):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    keyed("ALTER TABLE items REPLICA IDENTITY NOTHING"),
    when=[
        "INSERT INTO items VALUES (4, 'four', 4)",
        "DO $$ BEGIN DELETE FROM items; EXCEPTION WHEN OTHERS THEN NULL; END $$",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO items VALUES (5, 'five', 5, 5)",
    ],
)
def test_without_a_replica_identity_the_source_refuses_all_but_inserts_which_arrive(outcome: Outcome):
    outcome.assert_same("items")


@story(
    keyed(),
    when=[
        "UPDATE items SET a = 'd' WHERE id = 1",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "UPDATE items SET id = 11, a = 'f' WHERE id = 1",
        "DELETE FROM items WHERE id = 2",
        (
            "ALTER TABLE items REPLICA IDENTITY USING INDEX items_n_key",
            "UPDATE items SET n = 30 WHERE id = 3",
            "INSERT INTO items VALUES (4, 'i', 4)",
            "UPDATE items SET a = 'j' WHERE n = 4",
        ),
        "ALTER TABLE items REPLICA IDENTITY NOTHING",
        "INSERT INTO items VALUES (5, 'n', 5)",
        "ALTER TABLE items REPLICA IDENTITY DEFAULT",
        "UPDATE items SET a = 'end' WHERE id = 5",
        "DELETE FROM items WHERE id = 11",
    ],
)
def test_the_replica_identity_may_change_in_the_stream_and_in_a_transaction(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, n int NOT NULL)",
        "INSERT INTO items VALUES (1, 10), (2, 20), (3, 30)",
    ],
    when=[
        ("ALTER TABLE items DROP CONSTRAINT items_pkey", "ALTER TABLE items ADD PRIMARY KEY (n)"),
        "UPDATE items SET id = id + 100 WHERE n = 10",
        "UPDATE items SET n = 21 WHERE n = 20",
        "DELETE FROM items WHERE n = 30",
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (n, id)",
        "UPDATE items SET n = 11 WHERE n = 10",
        "INSERT INTO items VALUES (7, 70)",
    ],
)
def test_the_primary_key_may_become_another_one(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (v text, b int, a text, PRIMARY KEY (a, b))",
        "INSERT INTO items VALUES ('v1', 1, 'x'), ('v2', 2, 'x'), ('v3', 1, 'y')",
    ],
    when=[
        "UPDATE items SET v = 'changed' WHERE (a, b) = ('x', 1)",
        "UPDATE items SET a = 'z', b = 9 WHERE (a, b) = ('x', 2)",
        "DELETE FROM items WHERE (a, b) = ('y', 1)",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "UPDATE items SET v = 'again' WHERE c = 'z'",
        "UPDATE items SET a = 2 WHERE c = 'x'",
    ],
)
def test_a_key_of_several_columns_in_another_order_and_under_other_names(outcome: Outcome):
    assert outcome.names("items") == ["v", "a", "c"]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (a int, b text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES (1, 'same'), (1, 'same'), (1, 'same'), (2, NULL), (2, NULL), (NULL, NULL)",
    ],
    when=[
        "DELETE FROM items WHERE ctid = (SELECT min(ctid) FROM items WHERE a = 1)",
        "UPDATE items SET b = 'once' WHERE ctid = (SELECT min(ctid) FROM items WHERE a = 2)",
        "INSERT INTO items VALUES (1, 'same'), (3, 'x'), (3, 'x')",
        "UPDATE items SET a = 4 WHERE a = 3",
        "DELETE FROM items WHERE a IS NULL",
        (
            "INSERT INTO items VALUES (5, 'brief')",
            "UPDATE items SET b = 'briefer' WHERE a = 5",
            "DELETE FROM items WHERE a = 5",
        ),
    ],
)
def test_rows_without_a_key_are_kept_with_their_multiplicity(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (a int, b text)", "INSERT INTO items VALUES (1, 'x'), (1, 'x')"],
    when=[
        "INSERT INTO items VALUES (1, 'x')",
        "ALTER TABLE items ADD c int",
        "INSERT INTO items VALUES (2, 'y', 2)",
    ],
)
def test_rows_that_nothing_identifies_are_appended(outcome: Outcome):
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (a int, b text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES (1, 'x'), (1, 'x'), (2, 'y'), (3, 'z')",
    ],
    when=[
        "ALTER TABLE items ADD COLUMN d text DEFAULT 'dd'",
        "DELETE FROM items WHERE ctid = (SELECT min(ctid) FROM items WHERE a = 1)",
        "UPDATE items SET b = 'yy' WHERE a = 2",
        "ALTER TABLE items DROP COLUMN b",
        "INSERT INTO items VALUES (4, 'given')",
        "UPDATE items SET a = 33 WHERE a = 3",
        "DELETE FROM items WHERE a = 4",
    ],
)
def test_rows_without_a_key_are_found_by_the_default_that_was_added_after_them(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    assert outcome.rows("items") == [(1, None), (2, "dd"), (33, "dd")]


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY DEFERRABLE, a text)",
        "INSERT INTO items VALUES (1, 'one')",
    ],
    when=[
        "INSERT INTO items VALUES (2, 'two')",
        "ALTER TABLE items ADD b int",
        "INSERT INTO items VALUES (3)",
    ],
)
def test_a_deferrable_primary_key_is_no_identity_and_inserts_arrive(outcome: Outcome):
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        "INSERT INTO items VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    ],
    when=[
        "UPDATE items SET a = 'by key' WHERE id = 1",
        "ALTER TABLE items DROP CONSTRAINT items_pkey",
        "INSERT INTO items VALUES (1, 'by key'), (4, 'four')",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "UPDATE items SET a = 'by row' WHERE ctid = (SELECT min(ctid) FROM items WHERE id = 1)",
        "DELETE FROM items WHERE id = 2",
    ],
)
def test_the_primary_key_may_go_and_full_rows_identify_from_then_on(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    keyed("ALTER TABLE items REPLICA IDENTITY USING INDEX items_n_key"),
    when=[
        "UPDATE items SET a = 'by index' WHERE id = 1",
        "ALTER TABLE items DROP CONSTRAINT items_n_key",
        "INSERT INTO items VALUES (4, 'four', 4)",
        "ALTER TABLE items REPLICA IDENTITY DEFAULT",
        "UPDATE items SET a = 'by key' WHERE id IN (2, 4)",
    ],
)
def test_the_index_of_the_replica_identity_may_go(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    [
        (
            "CREATE TABLE items (t text, n numeric, f float8, d date, ts timestamptz, u uuid, b bytea, c char(3), i int,"
            " PRIMARY KEY (c, t, n, f, d, ts, u, b))"
        ),
        *(
            f"INSERT INTO items VALUES ($${t}$$, {n}, {f}, '{d}', '{ts}', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{b}', 'k', 0)"
            for t, n, f, d, ts, b in (
                ("", "1.0", "'NaN'", "2026-01-01", "2026-01-01 00:00:00+00", r"\x"),
                ("a'b", "'NaN'", "'-0'", "infinity", "infinity", r"\x00"),
                ("line\nline", "1.00", "'Infinity'", "-infinity", "-infinity", r"\xff"),
            )
        ),
    ],
    when=[
        "UPDATE items SET i = 1",
        "UPDATE items SET t = t || 'x', n = n + 1 WHERE f <> 'NaN'",
        "UPDATE items SET i = i + 1",
        "DELETE FROM items WHERE d = 'infinity'",
    ],
)
def test_a_key_may_have_any_type_and_its_special_values(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "items") == []
    assert sorted(outcome.rows("items", "t, n, i")) == sorted(
        outcome.source("SELECT t, n::text, i FROM items")
    )


@story(
    [
        "CREATE TABLE items (row_id text, n text, t int, v0 text, root text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES ('r', 'n', 1, 'v', 'x'), ('r', 'n', 1, 'v', 'x'), ('s', 'm', 2, 'w', 'y')",
        "CREATE TABLE keyed (rowid int PRIMARY KEY, c0 text, source text, existing text)",
        "ALTER TABLE keyed ALTER COLUMN c0 SET STORAGE EXTERNAL",
        f"INSERT INTO keyed SELECT i, {BIG}, 's', 'e' FROM generate_series(1, 3) i",
    ],
    when=[
        "DELETE FROM items WHERE ctid = (SELECT min(ctid) FROM items)",
        "UPDATE items SET row_id = 'q' WHERE t = 2",
        "UPDATE keyed SET source = 'changed' WHERE rowid = 1",
        "DELETE FROM keyed WHERE rowid = 2",
    ],
)
def test_columns_may_have_names_that_mean_something_to_the_destination(outcome: Outcome):
    outcome.assert_same("items")
    outcome.assert_same("keyed")


# --- values that were not sent because they did not change -----------------------------------------------------------

TOAST = [
    "CREATE TABLE items (id int PRIMARY KEY, n int, big text, arr text[], j jsonb)",
    BIG_COLUMN,
    f"INSERT INTO items SELECT i, 0, {BIG}, ARRAY[{BIG}, NULL, 'x'], to_jsonb({BIG}) FROM generate_series(1, 4) i",
]
TOAST_CHANGES = (
    "UPDATE items SET n = 1",
    (
        "UPDATE items SET n = 2 WHERE id = 1",
        "UPDATE items SET id = 11 WHERE id = 1",
        "UPDATE items SET n = 3 WHERE id = 11",
    ),
    f"UPDATE items SET big = {BIG} WHERE id = 2",
    (
        f"INSERT INTO items VALUES (5, 0, {BIG}, NULL, NULL)",
        "UPDATE items SET n = 5 WHERE id = 5",
        "UPDATE items SET id = 55 WHERE id = 5",
    ),
    "UPDATE items SET big = NULL WHERE id = 3",
    "UPDATE items SET n = 9 WHERE id = 3",
    (
        "DELETE FROM items WHERE id = 4",
        f"INSERT INTO items VALUES (4, 0, {BIG}, NULL, NULL)",
        "UPDATE items SET n = 4 WHERE id = 4",
    ),
)


@pytest.mark.parametrize(
    "identity",
    [
        pytest.param(
            name, marks=story([*TOAST, f"ALTER TABLE items REPLICA IDENTITY {name}"], when=TOAST_CHANGES)
        )
        for name in ("DEFAULT", "FULL")
    ],
)
def test_a_toasted_value_that_was_not_sent_is_kept(outcome: Outcome, identity: str):
    assert outcome.rows("items", "min(length(big))")[0][0] > 10_000
    outcome.assert_same("items")


@story(
    TOAST,
    when=[
        "UPDATE items SET n = 1 WHERE id = 1",
        "ALTER TABLE items RENAME COLUMN big TO large",
        "UPDATE items SET n = 2 WHERE id IN (1, 2)",
        "ALTER TABLE items DROP COLUMN arr, ADD COLUMN x int DEFAULT 7",
        "UPDATE items SET n = 3",
        "ALTER TABLE items RENAME COLUMN j TO big",
        "UPDATE items SET id = id + 10",
    ],
)
def test_a_toasted_value_that_was_not_sent_is_kept_over_schema_changes(outcome: Outcome):
    outcome.assert_same("items")


@story(
    TOAST,
    when=[
        "UPDATE items SET n = 1 WHERE id = 1",
        "UPDATE items SET big = 'short' WHERE id = 2",
        "DELETE FROM items WHERE id = 3",
    ],
    changelog=["items"],
)
def test_a_changelog_names_the_values_that_were_not_sent(outcome: Outcome):
    rows = outcome.world.read(
        f'SELECT _etl_op, id, n, big, list_sort(_etl_unchanged) FROM "{outcome.schema}".items'
        " WHERE _etl_op <> 'copy' ORDER BY _etl_commit_lsn, _etl_ordinal"
    )
    assert rows == [
        ("update", 1, 1, None, ["arr", "big", "j"]),
        ("update", 2, 0, "short", ["arr", "j"]),
        ("delete", 3, None, None, None),
    ]


# --- truncate --------------------------------------------------------------------------------------------------------


@story(
    [
        "CREATE TABLE parents (id int PRIMARY KEY)",
        "CREATE TABLE children (id int PRIMARY KEY, parent int REFERENCES parents)",
        "CREATE TABLE loners (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO parents VALUES (1); INSERT INTO children VALUES (1, 1)",
        "INSERT INTO loners (a) VALUES ('x'); INSERT INTO others VALUES (1)",
    ],
    when=[
        ("INSERT INTO parents VALUES (2)", "TRUNCATE parents CASCADE", "INSERT INTO parents VALUES (3)"),
        "INSERT INTO children VALUES (3, 3)",
        "TRUNCATE loners RESTART IDENTITY",
        "INSERT INTO loners (a) VALUES ('y')",
        ("SAVEPOINT s", "TRUNCATE others", "ROLLBACK TO s", "INSERT INTO others VALUES (2)"),
        (
            "ALTER TABLE others ADD COLUMN a int",
            "TRUNCATE others, loners",
            "INSERT INTO others VALUES (4, 4)",
        ),
    ],
)
def test_truncate_empties_the_tables_it_named_and_those_it_cascaded_to_at_its_place_in_the_stream(
    outcome: Outcome,
):
    for table in ("parents", "children", "loners", "others"):
        outcome.assert_same(table)
    assert outcome.rows("others") == [(4, 4)]


# --- partitions and children -----------------------------------------------------------------------------------------


@story(
    [
        "CREATE TABLE items (id int, region text, a text, PRIMARY KEY (region, id)) PARTITION BY LIST (region)",
        "CREATE TABLE items_eu PARTITION OF items FOR VALUES IN ('eu')",
        # another order of columns, and a tombstone
        "CREATE TABLE items_us (gone int, a text, region text NOT NULL, id int NOT NULL)",
        "ALTER TABLE items_us DROP COLUMN gone",
        "ALTER TABLE items ATTACH PARTITION items_us FOR VALUES IN ('us')",
        "INSERT INTO items VALUES (1, 'eu', 'one'), (2, 'us', 'two'), (3, 'eu', 'three')",
    ],
    when=[
        "INSERT INTO items VALUES (4, 'us', 'four')",
        "UPDATE items SET a = 'changed' WHERE id IN (1, 2)",
        "UPDATE items SET region = 'us' WHERE id = 3",
        "CREATE TABLE items_asia PARTITION OF items FOR VALUES IN ('asia') PARTITION BY RANGE (id)",
        "CREATE TABLE items_asia_low PARTITION OF items_asia FOR VALUES FROM (0) TO (100)",
        "INSERT INTO items VALUES (5, 'asia', 'five')",
        "ALTER TABLE items ADD COLUMN b int DEFAULT 8",
        "INSERT INTO items VALUES (6, 'asia', 'six'), (7, 'us', 'seven'), (8, 'eu', 'eight')",
        "UPDATE items SET region = 'asia' WHERE id = 4",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "ALTER TABLE items DROP COLUMN b",
        "DELETE FROM items WHERE id IN (1, 7)",
        "INSERT INTO items_us (c, region, id) VALUES ('nine', 'us', 9)",
    ],
)
def test_a_partitioned_table_arrives_under_its_root(outcome: Outcome):
    assert outcome.tables() == ["items"]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        "CREATE TABLE special (extra int, PRIMARY KEY (id)) INHERITS (items)",
        "INSERT INTO items VALUES (1, 'plain'); INSERT INTO special VALUES (1, 'special', 1)",
    ],
    when=[
        "INSERT INTO items VALUES (2, 'plain'); INSERT INTO special VALUES (3, 'special', 3)",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO special VALUES (4, 'special', 4, 4); INSERT INTO items VALUES (5, 'plain', 5)",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "UPDATE items SET b = 9 WHERE id = 1",
        "ALTER TABLE items DROP COLUMN b",
        "UPDATE items SET c = 'changed' WHERE id IN (2, 4)",
        "DELETE FROM items WHERE id = 3",
    ],
)
def test_inheritance_children_are_tables_of_their_own_and_follow_their_parents_changes(outcome: Outcome):
    only = outcome.source("SELECT * FROM ONLY items ORDER BY id")
    assert outcome.rows("items") == only
    assert outcome.names("special") == ["id", "c", "extra"]
    outcome.assert_same("special")


# --- row filters and column lists ------------------------------------------------------------------------------------


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, n int, a text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES (1, 5, 'low'), (2, 15, 'high'), (3, NULL, 'none')",
    ],
    when=[
        "INSERT INTO items VALUES (4, 6, 'low'), (5, 16, 'high')",
        "UPDATE items SET n = 17 WHERE id = 1",
        "UPDATE items SET n = 7 WHERE id = 2",
        "UPDATE items SET a = 'still high' WHERE id = 5",
        "ALTER TABLE items ADD COLUMN b int",
        "UPDATE items SET n = 20, b = 1 WHERE id = 3",
    ],
    publish=["items WHERE (n > 10)"],
)
def test_a_row_filter_holds_for_copy_and_stream_and_rows_enter_and_leave(outcome: Outcome):
    assert outcome.rows("items") == [(1, 17, "low", None), (3, 20, "none", 1), (5, 16, "still high", None)]


@story(
    [
        "CREATE TABLE items (secret text DEFAULT 'canary-secret', id int PRIMARY KEY, a text, b text)",
        "INSERT INTO items VALUES ('canary-secret', 1, 'a1', 'b1')",
    ],
    when=[
        "INSERT INTO items VALUES ('canary-secret', 2, 'a2', 'b2')",
        "UPDATE items SET secret = 'canary-secret-2'",
        "UPDATE items SET b = 'bb', id = 3 WHERE id = 2",
        "ALTER TABLE items DROP COLUMN secret",
        "INSERT INTO items VALUES (4, 'a4', 'b4')",
    ],
    publish=["items (id, b)"],
)
def test_a_column_list_holds_for_copy_and_stream(outcome: Outcome):
    assert outcome.rows("items") == [(1, "b1"), (3, "bb"), (4, "b4")]
    assert all("canary-secret" not in run.log for run in outcome.world.runs)


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"],
    when=[
        "INSERT INTO items VALUES (2, 'two')",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO items VALUES (3, 'x')",
    ],
    publish=["items (a)"],
)
def test_a_column_list_without_the_key_takes_what_the_source_lets_through(outcome: Outcome):
    assert outcome.rows("items") == [("one",), ("two",), ("x",)]


# --- the changelog mode ----------------------------------------------------------------------------------------------


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one'), (2, 'two')"],
    when=[
        ("INSERT INTO items VALUES (3, 'three')", "UPDATE items SET a = 'changed' WHERE id = 1"),
        "UPDATE items SET id = 20 WHERE id = 2",
        "DELETE FROM items WHERE id = 3",
        "ALTER TABLE items ADD COLUMN b int",
        "TRUNCATE items",
        "INSERT INTO items VALUES (5, 'five', 5)",
    ],
    changelog=["items"],
)
class TestAChangelog:
    def test_has_every_change_in_order(self, outcome: Outcome):
        rows = outcome.world.read(
            f'SELECT _etl_op, id, a, b FROM "{outcome.schema}".items ORDER BY _etl_commit_lsn, _etl_ordinal, id'
        )
        assert rows == [
            ("copy", 1, "one", None),
            ("copy", 2, "two", None),
            ("insert", 3, "three", None),
            ("update", 1, "changed", None),
            ("update", 20, "two", None),
            ("delete", 3, None, None),
            ("truncate", None, None, None),
            ("insert", 5, "five", 5),
        ]

    def test_says_which_changes_were_of_one_transaction_and_when_it_was_committed(self, outcome: Outcome):
        rows = outcome.world.read(
            "SELECT count(DISTINCT _etl_commit_lsn), count(DISTINCT (_etl_commit_lsn, _etl_ordinal)), count(*),"
            f" count(_etl_commit_ts) FROM \"{outcome.schema}\".items WHERE _etl_op <> 'copy'"
        )
        assert rows == [(5, 6, 6, 6)]


# --- messages of strangers -------------------------------------------------------------------------------------------

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


# --- names -----------------------------------------------------------------------------------------------------------

NAMES = (
    'Upper "and" quoted',
    "with.dots.in.it",
    "new\nline",
    "trailing ",
    "sélect ☃",
    "x" * 63,
    "drop table",
    "_underscore",
    "back\\slash",
    "a'b",
    "1digit",
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@story(
    [
        f"CREATE TABLE {_quoted(table)} (id int PRIMARY KEY, "
        + ", ".join(f"{_quoted(name)} text" for name in NAMES)
        + f"); INSERT INTO {_quoted(table)} VALUES (1, 'v')"
        for table in NAMES
    ],
    when=[
        step
        for table in NAMES
        for step in (
            f"ALTER TABLE {_quoted(table)} RENAME COLUMN {_quoted(NAMES[0])} TO {_quoted(NAMES[0] + '2')}",
            f"ALTER TABLE {_quoted(table)} ADD COLUMN {_quoted('new' + NAMES[1])} text DEFAULT 'x''y'",
            f"INSERT INTO {_quoted(table)} (id, {_quoted(NAMES[2])}) VALUES (2, 'v2')",
            f"UPDATE {_quoted(table)} SET {_quoted(NAMES[3])} = 'u' WHERE id = 1",
        )
    ],
)
def test_tables_and_columns_may_have_any_name(outcome: Outcome):
    assert outcome.tables() == sorted(NAMES)
    for table in NAMES:
        assert outcome.names(table) == ["id", NAMES[0] + "2", *NAMES[1:], "new" + NAMES[1]]
        columns = f"id, {_quoted(NAMES[2])}, {_quoted(NAMES[3])}"
        assert outcome.rows(table, columns) == [(1, None, "u"), (2, "v2", None)]


SCHEMAS = ("main", "temp", "system", "warehouse", "information schema", "Upper", "s.dotted")


@story(
    [
        step
        for schema in SCHEMAS
        for step in (
            f"CREATE SCHEMA {_quoted(schema)}",
            f"CREATE TABLE {_quoted(schema)}.things (id int PRIMARY KEY, a text)",
            f"INSERT INTO {_quoted(schema)}.things VALUES (1, 'one')",
        )
    ],
    when=[
        step
        for schema in SCHEMAS
        for step in (
            f"ALTER TABLE {_quoted(schema)}.things ADD COLUMN b int DEFAULT 2",
            f"INSERT INTO {_quoted(schema)}.things VALUES (2, 'two')",
            f"UPDATE {_quoted(schema)}.things SET a = 'changed' WHERE id = 1",
        )
    ],
    publish=[f"{_quoted(schema)}.things" for schema in SCHEMAS],
)
def test_schemas_may_have_any_name(outcome: Outcome):
    for schema in SCHEMAS:
        rows = outcome.world.read(
            f"SELECT * FROM warehouse.{_quoted(schema)}.things ORDER BY id",
        )
        assert rows == [(1, "changed", 2), (2, "two", 2)], schema


# --- one transaction over several tables -----------------------------------------------------------------------------


def test_a_transaction_over_several_tables_becomes_visible_as_one(pipeline: PipelineUnderTest):
    pipeline.sql(
        "CREATE TABLE a (id int PRIMARY KEY, money int)",
        "CREATE TABLE b (id int PRIMARY KEY, money int)",
        "INSERT INTO a VALUES (1, 100); INSERT INTO b VALUES (1, 100)",
    )
    pipeline.publish("a", "b")
    pipeline.once()
    pipeline.transaction("UPDATE a SET money = money - 60", "UPDATE b SET money = money + 60")
    killed = pipeline.once(failpoints="dest.mid_write:1=kill", check=False)
    assert killed.code == -9
    assert (pipeline.rows("public.a", "money"), pipeline.rows("public.b", "money")) == ([(100,)], [(100,)])
    pipeline.once()
    assert (pipeline.rows("public.a", "money"), pipeline.rows("public.b", "money")) == ([(40,)], [(160,)])

"""What identifies a row: keys, full rows, other columns, nothing; and changes of it in the stream."""

from __future__ import annotations

import pytest

from tests.stories import Outcome, story

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
    given=[
        "CREATE TABLE bag (a int, t varchar(5))",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1, 'x'), (2, 'x'), (3, 'x')",
    ],
    when=[
        "ALTER TABLE bag ADD COLUMN d text DEFAULT 'given'",
        # the table is rewritten: its rows have the value now, and the catalog does not
        "ALTER TABLE bag ADD COLUMN e bigint DEFAULT (random() * 0)",
        "ALTER TABLE bag DROP COLUMN e",
        "DELETE FROM bag WHERE a = 1",
        "UPDATE bag SET a = 20 WHERE a = 2",
    ],
)
def test_rows_without_a_key_are_found_after_their_table_was_rewritten(outcome: Outcome):
    assert outcome.logged("old_rows_not_found", "bag") == []
    assert outcome.rows("bag", "a, d") == [(3, None), (20, "given")]

"""Schema changes that come by other ways than ALTER TABLE, or unlogged: delivered, healed, or a named error.

A wide event trigger logs what an ALTER TABLE trigger would miss; what it cannot see, RELATION shows at the next row.
"""

from __future__ import annotations

import pytest

from tests.stories import Outcome, Step, story

ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, a text, b text)",
    "INSERT INTO items VALUES (1, 'a1', 'b1')",
)
SKIP = "SET supabase_etl.skip_ddl_log = 'true'"
LOG = "RESET supabase_etl.skip_ddl_log"


# --- other ways to change a table ------------------------------------------------------------------------------------

RENAMES: dict[str, tuple[Step, ...]] = {
    "ALTER VIEW": ("ALTER VIEW items RENAME COLUMN a TO c",),
    "ALTER MATERIALIZED VIEW": ("ALTER MATERIALIZED VIEW items RENAME COLUMN a TO c",),
    "ALTER FOREIGN TABLE": ("ALTER FOREIGN TABLE items RENAME COLUMN a TO c",),
    "session_replication_role": (
        "SET session_replication_role = replica",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "RESET session_replication_role",
    ),
    "a DO block": ("DO $$ BEGIN EXECUTE 'ALTER TABLE items RENAME COLUMN a TO c'; END $$",),
}


@pytest.mark.parametrize(
    "way",
    [
        pytest.param(way, marks=story(ITEMS, when=[*steps, "INSERT INTO items VALUES (2, 'c2', 'b2')"]))
        for way, steps in RENAMES.items()
    ],
)
def test_a_column_renamed_by_another_way_is_renamed(outcome: Outcome, way: str):
    assert outcome.messages("items") == 1
    assert outcome.names("items") == ["id", "c", "b"]
    outcome.assert_same("items")


@story(
    [
        "CREATE TYPE shape AS (id int, a text, b text)",
        "CREATE TABLE items OF shape (PRIMARY KEY (id))",
        "INSERT INTO items VALUES (1, 'a1', 'b1')",
    ],
    when=[
        "ALTER TYPE shape ADD ATTRIBUTE c int CASCADE",
        "INSERT INTO items VALUES (2, 'a2', 'b2', 2)",
        "ALTER TYPE shape RENAME ATTRIBUTE a TO d CASCADE",
        "INSERT INTO items VALUES (3, 'd3', 'b3', 3)",
        "ALTER TYPE shape DROP ATTRIBUTE b CASCADE",
        "INSERT INTO items VALUES (4, 'd4', 4)",
    ],
)
def test_a_typed_table_follows_its_type(outcome: Outcome):
    assert outcome.messages("items") == 3
    assert outcome.names("items") == ["id", "d", "c"]
    outcome.assert_same("items")


@story(
    [
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE DOMAIN code AS int",
        "CREATE SEQUENCE counter",
        "CREATE FUNCTION seven() RETURNS int LANGUAGE sql AS 'SELECT 7'",
        (
            "CREATE TABLE items (id int PRIMARY KEY, m mood, c code, n int DEFAULT nextval('counter'),"
            " f int DEFAULT seven(), g int DEFAULT 5)"
        ),
        "INSERT INTO items VALUES (1, 'ok', 1)",
    ],
    when=[
        "DROP TYPE mood CASCADE",
        "INSERT INTO items (id, c) VALUES (2, 2)",
        "DROP SEQUENCE counter CASCADE",
        "INSERT INTO items (id, c) VALUES (3, 3)",
        "DROP FUNCTION seven() CASCADE",
        "INSERT INTO items (id, c) VALUES (4, 4)",
        "DROP DOMAIN code CASCADE",
        "INSERT INTO items (id) VALUES (5)",
    ],
)
def test_columns_and_defaults_dropped_by_a_cascade_are_dropped(outcome: Outcome):
    assert outcome.messages("items") == 4
    assert outcome.names("items") == ["id", "n", "f", "g"]
    assert outcome.defaults("items") == {"g": "5"}
    outcome.assert_same("items")


@story(
    [
        'CREATE SCHEMA "{schema}_inner"',
        'CREATE TABLE "{schema}_inner".items (id int PRIMARY KEY, a text)',
    ],
    when=[
        "INSERT INTO \"{schema}_inner\".items VALUES (1, 'one')",
        'ALTER SCHEMA "{schema}_inner" RENAME TO "{schema}_other"',
        "INSERT INTO \"{schema}_other\".items VALUES (2, 'two')",
        'ALTER TABLE "{schema}_other".items ADD COLUMN b int',
        "INSERT INTO \"{schema}_other\".items VALUES (3, 'three', 3)",
    ],
    later=["INSERT INTO \"{schema}_other\".items VALUES (4, 'four', 4)"],
    publish=['"{schema}_inner".items'],
)
def test_a_schema_renamed_in_the_stream_keeps_its_destination_tables_and_rows_flow(outcome: Outcome):
    rows = outcome.world.read(f'SELECT id, b FROM "{outcome.schema}_inner".items ORDER BY id')
    assert rows == [(1, None), (2, None), (3, 3), (4, 4)]


# --- not logged at all -----------------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=[SKIP, "ALTER TABLE items ADD COLUMN c int DEFAULT 3", "INSERT INTO items VALUES (2, 'a2', 'b2')"],
)
def test_an_unlogged_add_column_is_healed_from_relation(outcome: Outcome):
    assert outcome.messages("items") == 0
    assert outcome.rows("items") == [(1, "a1", "b1", None), (2, "a2", "b2", 3)]


@story(ITEMS, when=[SKIP, "ALTER TABLE items DROP COLUMN a", "INSERT INTO items VALUES (2, 'b2')"])
def test_an_unlogged_drop_column_is_healed_from_relation(outcome: Outcome):
    assert outcome.rows("items") == [(1, "b1"), (2, "b2")]


@story(
    ITEMS,
    when=[
        SKIP,
        "ALTER TABLE items RENAME COLUMN a TO t",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "ALTER TABLE items RENAME COLUMN t TO b",
        "INSERT INTO items (id, a, b) VALUES (2, 'new a', 'new b')",
    ],
)
def test_an_unlogged_swap_of_names_is_healed_from_relation(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "b": 2, "a": 3}
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        SKIP,
        "ALTER TABLE items ADD COLUMN c int",
        "ALTER TABLE items RENAME COLUMN a TO d",
        LOG,
        "ALTER TABLE items SET (fillfactor = 90)",
        "INSERT INTO items VALUES (2, 'd2', 'b2', 2)",
    ],
)
def test_a_logged_alter_after_unlogged_ones_tells_of_all_of_them(outcome: Outcome):
    assert outcome.messages("items") == 1
    assert outcome.names("items") == ["id", "d", "b", "c"]
    outcome.assert_same("items")


@story(
    [*ITEMS, "CREATE TABLE others (id int PRIMARY KEY)"],
    when=[
        SKIP,
        "ALTER TABLE items ADD COLUMN x int",
        "INSERT INTO items VALUES (2, 'a2', 'b2', 2)",
        "ALTER TABLE items DROP COLUMN x",
        "ALTER TABLE items ADD COLUMN y int",
        "INSERT INTO items VALUES (3, 'a3', 'b3', 3)",
        "INSERT INTO others VALUES (1)",
    ],
    breaks=True,
)
class TestAnUnloggedChangeThatHasNoSingleExplanation:
    def test_stops_the_table_with_the_columns_named(self, outcome: Outcome):
        error = outcome.error("items")
        assert error is not None
        assert "RELATION does not match the stored schema" in error
        assert "x" in error

    def test_writes_no_row_that_it_cannot_place(self, outcome: Outcome):
        assert outcome.rows("items") == [(1, "a1", "b1")]

    def test_leaves_the_other_tables_flowing(self, outcome: Outcome):
        outcome.assert_same("others")

"""The contract, "ETL deliberately avoids physical destination backfills for those existing rows": end to end.

DuckDB has no metadata-only initial default, so rows from before an ADD COLUMN … DEFAULT read NULL there, while at the
source they read the default.
"""

from __future__ import annotations

from tests.stories import Outcome, story

ITEMS = ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one'), (2, 'two')"]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ADD COLUMN b text DEFAULT 'pending'",
        "INSERT INTO items VALUES (3, 'three')",
        "INSERT INTO items VALUES (4, 'four', 'given')",
        "INSERT INTO items VALUES (5, 'five', NULL)",
    ],
)
class TestAddColumnWithALiteralDefault:
    def test_leaves_existing_rows_null(self, outcome: Outcome):
        assert outcome.rows("items", "id, b")[:2] == [(1, None), (2, None)]
        assert outcome.source("SELECT DISTINCT b FROM items WHERE id < 3") == [("pending",)]

    def test_sets_the_default_for_future_writes(self, outcome: Outcome):
        assert outcome.defaults("items") == {"b": "'pending'"}

    def test_takes_the_values_of_future_rows_from_the_stream(self, outcome: Outcome):
        assert outcome.rows("items", "id, b")[2:] == [(3, "pending"), (4, "given"), (5, None)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ADD COLUMN b text DEFAULT 'pending'",
        "UPDATE items SET a = 'changed' WHERE id = 1",
    ],
)
def test_an_update_of_an_existing_row_brings_the_default_that_the_source_shows_in_it(outcome: Outcome):
    assert outcome.rows("items") == [(1, "changed", "pending"), (2, "two", None)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ADD COLUMN b double precision DEFAULT random()",
        "ALTER TABLE items ADD COLUMN c uuid NOT NULL DEFAULT gen_random_uuid()",
        "INSERT INTO items VALUES (3, 'three')",
    ],
)
def test_a_default_that_rewrites_the_table_at_the_source_leaves_existing_rows_null(outcome: Outcome):
    assert outcome.rows("items", "id, b, c")[:2] == [(1, None, None), (2, None, None)]
    (new,) = outcome.source("SELECT id, b, c::text FROM items WHERE id = 3")
    assert outcome.rows("items", "id, b, c::VARCHAR")[2] == new
    assert outcome.defaults("items") == {}


@story(
    ITEMS,
    when=["ALTER TABLE items ADD COLUMN b int NOT NULL DEFAULT 7", "INSERT INTO items VALUES (3, 'three')"],
)
def test_a_newly_added_column_stays_nullable_for_historical_rows(outcome: Outcome):
    assert outcome.rows("items", "id, b") == [(1, None), (2, None), (3, 7)]
    assert outcome.skipped("items") == set()


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, b text)", "INSERT INTO items VALUES (1, NULL), (2, 'two')"],
    when=["ALTER TABLE items ALTER COLUMN b SET DEFAULT 'now set'", "INSERT INTO items VALUES (3)"],
)
def test_set_default_does_not_touch_existing_rows(outcome: Outcome):
    assert outcome.rows("items") == [(1, None), (2, "two"), (3, "now set")]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ALTER COLUMN a TYPE varchar(40) USING upper(a)",
        "INSERT INTO items VALUES (3, 'three')",
    ],
)
def test_a_rewrite_at_the_source_does_not_rewrite_existing_rows(outcome: Outcome):
    assert outcome.rows("items") == [(1, "one"), (2, "two"), (3, "three")]


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, a text NOT NULL, b text NOT NULL DEFAULT 'b')",
        "INSERT INTO items VALUES (1, 'one')",
    ],
    when=["ALTER TABLE items ALTER COLUMN a DROP NOT NULL", "INSERT INTO items VALUES (2, NULL)"],
)
def test_defaults_and_values_of_the_copy_are_those_of_the_source(outcome: Outcome):
    assert outcome.defaults("items") == {"b": "'b'"}
    outcome.assert_same("items")

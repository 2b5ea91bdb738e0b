"""The contract, "The current diff rules are": keyed by attnum, over replicated columns only, end to end.

`tests/contract/test_diff_rules.py` holds the rules themselves; here a destination must follow them.
"""

from __future__ import annotations

from tests.stories import Outcome, story

ITEMS = [
    "CREATE TABLE items (id int PRIMARY KEY, a text, b text, c text)",
    "INSERT INTO items VALUES (1, 'a1', 'b1', 'c1')",
]
SWAP = (
    "ALTER TABLE items RENAME COLUMN a TO t",
    "ALTER TABLE items RENAME COLUMN b TO a",
    "ALTER TABLE items RENAME COLUMN t TO b",
)
ROTATION = (
    "ALTER TABLE items RENAME COLUMN a TO t",
    "ALTER TABLE items RENAME COLUMN c TO a",
    "ALTER TABLE items RENAME COLUMN b TO c",
    "ALTER TABLE items RENAME COLUMN t TO b",
)


# --- same ordinal position, different name ---------------------------------------------------------------------------


@story(ITEMS, when=[(*SWAP, "INSERT INTO items VALUES (2, 'new a', 'new b', 'c2')")])
def test_a_swap_of_two_names_in_one_transaction_moves_the_names_and_not_the_values(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "b": 2, "a": 3, "c": 4}
    assert outcome.changes("items") == 1
    outcome.assert_same("items")


@story(ITEMS, when=[*SWAP, "INSERT INTO items VALUES (2, 'new b', 'new a', 'c2')"])
def test_a_swap_of_two_names_over_several_transactions_is_the_same(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "b": 2, "a": 3, "c": 4}
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        step
        for n, statement in enumerate(SWAP)
        for step in (statement, f"INSERT INTO items VALUES ({n + 2}, 'x{n}', 'y{n}', 'z{n}')")
    ],
)
def test_a_swap_of_two_names_with_rows_at_every_stage_is_the_same(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "b": 2, "a": 3, "c": 4}
    assert outcome.changes("items") == 3
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        (*ROTATION, "INSERT INTO items VALUES (2, 'x', 'y', 'z')"),
        *ROTATION,
        "INSERT INTO items VALUES (3, 'x', 'y', 'z')",
    ],
)
def test_rotations_of_three_names_are_followed(outcome: Outcome):
    assert outcome.changes("items") == 2
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        'ALTER TABLE items RENAME COLUMN a TO "A"',
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
        'ALTER TABLE items RENAME COLUMN b TO "a; DROP TABLE items --"',
        "INSERT INTO items VALUES (3, 'a3', 'b3', 'c3')",
    ],
)
def test_a_rename_that_only_changes_the_case_is_a_rename(outcome: Outcome):
    assert outcome.names("items") == ["id", "A", "a; DROP TABLE items --", "c"]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        ("ALTER TABLE items DROP COLUMN a", "ALTER TABLE items RENAME COLUMN b TO a"),
        "INSERT INTO items VALUES (2, 'new a', 'c2')",
    ],
)
def test_a_rename_into_the_name_of_a_dropped_column_keeps_the_renamed_columns_values(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "a": 3, "c": 4}
    assert outcome.rows("items") == [(1, "b1", "c1"), (2, "new a", "c2")]


@story(
    ITEMS,
    when=[
        (
            "ALTER TABLE items RENAME COLUMN a TO d",
            "ALTER TABLE items ADD COLUMN a int DEFAULT 5",
            "INSERT INTO items (id, d) VALUES (2, 'd2')",
        )
    ],
)
def test_an_addition_under_the_name_of_a_renamed_column_is_another_column(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "d": 2, "b": 3, "c": 4, "a": 5}
    assert outcome.rows("items", "id, d, a") == [(1, "a1", None), (2, "d2", 5)]


# --- a position that is gone, a position that is new -----------------------------------------------------------------


@story(
    ITEMS,
    when=[
        "ALTER TABLE items DROP COLUMN c",
        "ALTER TABLE items ADD COLUMN c text",
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
    ],
)
def test_a_drop_and_re_add_is_no_rename_but_a_drop_and_an_add(outcome: Outcome):
    # c was the last column: the RELATION before and after are the same to the byte
    assert outcome.attnums("items") == {"id": 1, "a": 2, "b": 3, "c": 5}
    assert outcome.rows("items", "id, c") == [(1, None), (2, "c2")]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        step
        for n in range(5)
        for step in (
            "ALTER TABLE items DROP COLUMN c",
            f"ALTER TABLE items ADD COLUMN c {'int' if n % 2 else 'text'}",
            f"INSERT INTO items VALUES ({n + 2}, 'a', 'b', {n})",
        )
    ],
)
def test_the_same_name_dropped_and_added_again_and_again_is_a_new_column_each_time(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "a": 2, "b": 3, "c": 9}
    assert outcome.types("items")["c"] == "VARCHAR"
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "ALTER TABLE items DROP COLUMN a, DROP COLUMN b, DROP COLUMN c, ADD COLUMN x int, ADD COLUMN a int",
        "INSERT INTO items VALUES (2, 3, 4)",
    ],
)
def test_old_positions_are_dropped_and_new_positions_added_in_ordinal_order(outcome: Outcome):
    assert outcome.attnums("items") == {"id": 1, "x": 5, "a": 6}
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (only_one text)", "ALTER TABLE items REPLICA IDENTITY FULL"],
    when=[
        "INSERT INTO items VALUES ('one')",
        ("ALTER TABLE items DROP COLUMN only_one", "ALTER TABLE items ADD COLUMN only_one int"),
        "INSERT INTO items VALUES (2)",
    ],
)
def test_all_columns_of_a_table_can_be_replaced_at_once(outcome: Outcome):
    assert outcome.rows("items") == [(None,), (2,)]


# --- same ordinal position, different nullability or default ---------------------------------------------------------


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ALTER COLUMN a SET NOT NULL",
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
        "ALTER TABLE items ALTER COLUMN a DROP NOT NULL",
        "ALTER TABLE items ALTER COLUMN a DROP NOT NULL",
        "INSERT INTO items VALUES (3, NULL, 'b3', 'c3')",
    ],
)
def test_a_different_nullability_is_detected_as_metadata_only(outcome: Outcome):
    assert outcome.skipped("items") == {("a", "nullability")}
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        (
            "ALTER TABLE items RENAME COLUMN a TO z",
            "ALTER TABLE items ALTER COLUMN z SET DEFAULT 'q'",
            "ALTER TABLE items ALTER COLUMN b SET DEFAULT 'r'",
            "ALTER TABLE items DROP COLUMN c",
            "ALTER TABLE items ADD COLUMN a int DEFAULT 1",
        ),
        "INSERT INTO items (id) VALUES (2)",
    ],
)
def test_renames_defaults_drops_and_adds_of_one_boundary_are_applied_together(outcome: Outcome):
    assert outcome.changes("items") == 1
    assert outcome.defaults("items") == {"z": "'q'", "b": "'r'", "a": "1"}
    assert outcome.rows("items") == [(1, "a1", "b1", None), (2, "q", "r", 1)]


# --- over replicated columns only ------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ALTER COLUMN c SET DEFAULT 'hidden'",
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
        "ALTER TABLE items RENAME COLUMN c TO hidden",
        "INSERT INTO items VALUES (3, 'a3', 'b3', 'c3')",
        "ALTER TABLE items ADD COLUMN secret text DEFAULT 'canary-secret'",
        "INSERT INTO items VALUES (4, 'a4', 'b4', 'c4')",
        "ALTER TABLE items DROP COLUMN hidden",
        "INSERT INTO items VALUES (5, 'a5', 'b5', 's5')",
    ],
    publish=["items (id, a)"],
)
def test_changes_of_unpublished_columns_change_nothing_at_the_destination(outcome: Outcome):
    assert outcome.changes("items") == 0 or outcome.skipped("items") == set()
    assert outcome.columns("items") == [("id", "INTEGER", None), ("a", "VARCHAR", None)]
    assert outcome.rows("items") == [(n, f"a{n}") for n in range(1, 6)]


@story(
    [*ITEMS, "ALTER TABLE items ALTER COLUMN b SET DEFAULT 'unknown before'"],
    when=[
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
        (
            "ALTER PUBLICATION etl_pub DROP TABLE items",
            "ALTER PUBLICATION etl_pub ADD TABLE items (id, a, b)",
        ),
        "INSERT INTO items VALUES (3, 'a3', 'b3', 'c3')",
    ],
    publish=["items (id, a)"],
)
def test_a_newly_published_column_is_added_nullable_and_without_a_default(outcome: Outcome):
    assert outcome.columns("items")[-1] == ("b", "VARCHAR", None)
    assert outcome.rows("items") == [(1, "a1", None), (2, "a2", None), (3, "a3", "b3")]


@story(
    ITEMS,
    when=[
        "INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')",
        (
            "ALTER PUBLICATION etl_pub DROP TABLE items",
            "ALTER PUBLICATION etl_pub ADD TABLE items (id, a, c)",
        ),
        "INSERT INTO items VALUES (3, 'a3', 'b3', 'c3')",
        "ALTER TABLE items RENAME COLUMN b TO unpublished",
        "INSERT INTO items VALUES (4, 'a4', 'b4', 'c4')",
    ],
    publish=["items (id, a, b, c)"],
)
def test_a_column_that_leaves_the_publication_is_dropped(outcome: Outcome):
    assert outcome.names("items") == ["id", "a", "c"]
    assert outcome.rows("items") == [(n, f"a{n}", f"c{n}") for n in range(1, 5)]

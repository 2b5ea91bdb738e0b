"""Values that an update does not send because they did not change (TOAST, Postgres manual) are kept."""

from __future__ import annotations

import pytest

from tests.stories import Outcome, story

#: A value that Postgres stores out of line (12.8 kB, incompressible), and so does not send when it did not change.
BIG = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 400))"
BIG_COLUMN = "ALTER TABLE items ALTER COLUMN big SET STORAGE EXTERNAL"

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

"""The contract, "Relation is an ordered event, not a batch boundary": which row is written under which schema.

What a Relation divides is looked at through a changelog table, which keeps every change in stream order. The ``plain``
pipeline finds all of a story waiting and takes it in few batches; ``live`` takes it transaction by transaction.
"""

from __future__ import annotations

from tests.stories import Outcome, story

ITEMS = ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"]
ORDER = "id, a"


def log_of(outcome: Outcome, table: str, columns: str) -> list[tuple[object, ...]]:
    """A changelog table's changes in stream order."""
    query = (
        f'SELECT _etl_op, {columns} FROM "{outcome.schema}"."{table}" ORDER BY _etl_commit_lsn, _etl_ordinal'
    )
    return outcome.world.read(query)


# --- the message is internal plumbing --------------------------------------------------------------------------------


@story(ITEMS, when=["ALTER TABLE items ADD COLUMN b int"])
class TestADdlMessageWithoutARowAfterIt:
    def test_is_stored_as_a_new_version(self, outcome: Outcome):
        assert outcome.messages("items") == 1
        assert outcome.versions("items")[-1] == ["id", "a", "b"]

    def test_does_not_reach_the_destination(self, outcome: Outcome):
        assert outcome.names("items") == ["id", "a"]
        assert outcome.changes("items") == 0


@story(
    [*ITEMS, "CREATE TABLE marks (name text PRIMARY KEY, lsn pg_lsn)"],
    when=[
        "INSERT INTO marks VALUES ('before', pg_current_wal_insert_lsn())",
        ("INSERT INTO items VALUES (2, 'two')", "ALTER TABLE items ADD COLUMN b int"),
        "INSERT INTO marks VALUES ('after', pg_current_wal_insert_lsn())",
    ],
    publish=["items"],
)
def test_the_new_version_is_stored_under_the_messages_lsn_and_its_transactions_commit(outcome: Outcome):
    placed = outcome.source(
        "SELECT b.lsn < s.snapshot_message_lsn, s.snapshot_message_lsn <= s.snapshot_commit_lsn,"
        "       s.snapshot_commit_lsn < a.lsn"
        "  FROM etl.table_schemas s, marks b, marks a"
        f" WHERE s.pipeline_id = {outcome.pipeline_id} AND s.table_id = 'items'::regclass AND b.name = 'before' AND a.name = 'after'"
        " ORDER BY s.id DESC LIMIT 1"
    )
    assert placed == [(True, True, True)]


# --- the boundary ----------------------------------------------------------------------------------------------------


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"],
    when=[
        "INSERT INTO items VALUES (2, 'two')",
        "ALTER TABLE items RENAME COLUMN a TO b",
        "INSERT INTO items VALUES (3, 'three')",
        "ALTER TABLE items ADD COLUMN a text",
        "INSERT INTO items VALUES (4, 'four', 'new a')",
        "UPDATE items SET a = b WHERE id = 2",
        "DELETE FROM items WHERE id = 3",
    ],
    changelog=["items"],
)
def test_relation_is_the_point_where_the_active_schema_changes_for_following_rows(outcome: Outcome):
    assert log_of(outcome, "items", "id, b, a") == [
        ("copy", 1, "one", None),
        ("insert", 2, "two", None),
        ("insert", 3, "three", None),
        ("insert", 4, "four", "new a"),
        ("update", 2, "two", "two"),
        ("delete", 3, None, None),
    ]


@story(
    ITEMS,
    when=[
        (
            "INSERT INTO items VALUES (2, 'two')",
            "ALTER TABLE items ADD COLUMN b int",
            "INSERT INTO items VALUES (3, 'three', 3)",
            "ALTER TABLE items DROP COLUMN a",
            "INSERT INTO items VALUES (4, 4)",
            "UPDATE items SET b = 1 WHERE id = 1",
            "ALTER TABLE items RENAME COLUMN b TO a",
            "INSERT INTO items VALUES (5, 5)",
        )
    ],
)
def test_ddl_and_rows_of_one_transaction_keep_their_order(outcome: Outcome):
    assert outcome.columns("items") == [("id", "INTEGER", None), ("a", "INTEGER", None)]
    assert outcome.rows("items") == [(1, 1), (2, None), (3, 3), (4, 4), (5, 5)]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        step
        for n in range(12)
        for step in (
            f"ALTER TABLE items ADD COLUMN c{n} int",
            f"INSERT INTO items (id, c{n}) VALUES ({100 + n}, {n})",
            f"ALTER TABLE items DROP COLUMN c{n}"
            if n % 3 == 0
            else f"UPDATE items SET c{n} = -1 WHERE id = 1",
        )
    ],
)
def test_a_batch_may_hold_many_schema_changes_of_one_table(outcome: Outcome):
    assert outcome.messages("items") == 16
    assert outcome.names("items") == ["id", "a", *(f"c{n}" for n in range(12) if n % 3)]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE x (id int PRIMARY KEY, v text)",
        "CREATE TABLE y (id int PRIMARY KEY, v text)",
        "CREATE TABLE z (id int PRIMARY KEY, v text)",
    ],
    when=[
        "INSERT INTO x VALUES (1, 'x'); INSERT INTO y VALUES (1, 'y'); INSERT INTO z VALUES (1, 'z')",
        "ALTER TABLE x RENAME COLUMN v TO w",
        "INSERT INTO y VALUES (2, 'y'); INSERT INTO x VALUES (2, 'x')",
        (
            "ALTER TABLE y ADD COLUMN w int",
            "ALTER TABLE x ADD COLUMN v int",
            "INSERT INTO z VALUES (2, 'z')",
            "INSERT INTO x VALUES (3, 'x', 3)",
            "INSERT INTO y VALUES (3, 'y', 3)",
        ),
        "UPDATE x SET v = 0; UPDATE y SET w = 0; UPDATE z SET v = 'zz'",
    ],
)
def test_a_batch_may_hold_schema_changes_of_several_tables_and_none_of_others(outcome: Outcome):
    for table in "xyz":
        outcome.assert_same(table)
    assert outcome.names("x") == ["id", "w", "v"]
    assert (outcome.changes("y"), outcome.changes("z")) == (1, 0)


@story(
    ITEMS,
    when=[
        "ALTER TABLE items ADD COLUMN b int",
        "ALTER TABLE items ADD COLUMN c int DEFAULT 3",
        "ALTER TABLE items DROP COLUMN b",
        "ALTER TABLE items RENAME COLUMN c TO b",
        "INSERT INTO items (id, a) VALUES (2, 'two')",
    ],
)
def test_a_run_of_ddl_messages_with_no_row_between_them_is_one_change(outcome: Outcome):
    assert outcome.messages("items") == 4
    assert outcome.changes("items") == 1
    assert outcome.columns("items") == [
        ("id", "INTEGER", None),
        ("a", "VARCHAR", None),
        ("b", "INTEGER", "3"),
    ]
    assert outcome.rows("items") == [(1, "one", None), (2, "two", 3)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items RENAME COLUMN a TO b",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "ALTER TABLE items ADD COLUMN c int",
        "ALTER TABLE items DROP COLUMN c",
        "INSERT INTO items VALUES (2, 'two')",
    ],
)
def test_ddl_that_was_undone_before_the_next_row_changes_nothing(outcome: Outcome):
    assert outcome.columns("items") == [("id", "INTEGER", None), ("a", "VARCHAR", None)]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=["ALTER TABLE items ADD COLUMN b int", "TRUNCATE items", "INSERT INTO items VALUES (2, 'two', 2)"],
)
def test_a_truncate_is_under_the_new_schema_like_any_row_event(outcome: Outcome):
    assert outcome.rows("items") == [(2, "two", 2)]


# --- transactional messages ------------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=[
        (
            "ALTER TABLE items ADD COLUMN b int",
            "SAVEPOINT s",
            "ALTER TABLE items ADD COLUMN never int",
            "ALTER TABLE items RENAME COLUMN a TO gone",
            "INSERT INTO items VALUES (8, 'eight', 8, 8)",
            "ROLLBACK TO s",
            "INSERT INTO items VALUES (2, 'two', 2)",
            "SAVEPOINT t",
            "ALTER TABLE items ADD COLUMN c int",
            "RELEASE t",
            "INSERT INTO items VALUES (3, 'three', 3, 3)",
        )
    ],
)
def test_ddl_rolled_back_to_a_savepoint_never_happened(outcome: Outcome):
    assert outcome.messages("items") == 2
    assert outcome.rows("items") == [(1, "one", None, None), (2, "two", 2, None), (3, "three", 3, 3)]
    assert outcome.names("items") == ["id", "a", "b", "c"]


@story(
    ITEMS,
    when=[
        "BEGIN; ALTER TABLE items DROP COLUMN a; INSERT INTO items VALUES (9); ROLLBACK",
        "DO $$ BEGIN ALTER TABLE items ADD COLUMN never int; RAISE 'no'; EXCEPTION WHEN OTHERS THEN NULL; END $$",
        "INSERT INTO items VALUES (2, 'two')",
    ],
)
def test_ddl_of_an_aborted_transaction_never_happened(outcome: Outcome):
    assert outcome.messages("items") == 0
    assert outcome.changes("items") == 0
    outcome.assert_same("items")


# --- after a restart -------------------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=["INSERT INTO items VALUES (2, 'two')", "ALTER TABLE items RENAME COLUMN a TO b"],
    later=["INSERT INTO items VALUES (3, 'three')", "ALTER TABLE items ADD COLUMN a int"],
)
def test_a_change_stored_in_one_run_is_applied_before_the_next_row_of_another(outcome: Outcome):
    assert outcome.names("items") == ["id", "b"]
    assert outcome.rows("items") == [(1, "one"), (2, "two"), (3, "three")]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items RENAME COLUMN a TO b",
        "INSERT INTO items VALUES (2, 'two')",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "INSERT INTO items VALUES (3, 'three')",
    ],
    later=[
        "ALTER TABLE items DROP COLUMN a",
        "INSERT INTO items VALUES (4)",
        "ALTER TABLE items ADD COLUMN a int",
        "INSERT INTO items VALUES (5, 5)",
    ],
)
def test_a_replay_over_a_round_trip_of_names_does_not_walk_the_schema_backwards(outcome: Outcome):
    assert outcome.rows("items") == [(1, None), (2, None), (3, None), (4, None), (5, 5)]
    assert outcome.types("items") == {"id": "INTEGER", "a": "INTEGER"}


@story(
    ITEMS,
    when=["ALTER TABLE items ADD COLUMN b int", "INSERT INTO items VALUES (2, 'two', 2)"],
    later=["ALTER TABLE items DROP COLUMN b", "INSERT INTO items VALUES (3, 'three')"],
)
def test_the_destinations_schema_is_recorded_as_applied_when_nothing_is_under_way(outcome: Outcome):
    recorded = outcome.source(
        "SELECT DISTINCT schema_status::text, previous_snapshot_commit_lsn IS NULL"
        "  FROM etl.destination_tables_metadata WHERE table_id = 'items'::regclass"
    )
    assert recorded == [("applied", True)]
    outcome.assert_same("items")

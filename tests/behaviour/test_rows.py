"""Which rows arrive: truncated, partitioned, inherited, filtered, logged as changes, and whole transactions at once."""

from __future__ import annotations

from etl.testing.harness import PipelineUnderTest
from tests.stories import Outcome, story

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

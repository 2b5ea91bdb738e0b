"""Ten schedules that break pipelines by construction, and more of their kind: each must come out right or say why not.

The pipelines of a story find it in three ways (tests/stories.py): all at once, with crashes in between, and live.
"""

from __future__ import annotations

from etl.testing.harness import PipelineUnderTest
from tests.stories import Outcome, story

ITEMS = [
    "CREATE TABLE items (id int PRIMARY KEY, a text, c text)",
    "INSERT INTO items VALUES (1, 'a1', 'c1')",
]


# --- the ten ---------------------------------------------------------------------------------------------------------


@story(
    ITEMS,
    when=[
        "ALTER TABLE items RENAME COLUMN c TO d",
        "ALTER TABLE items ADD COLUMN c text",
        "INSERT INTO items VALUES (2, 'a2', 'd2', 'c2')",
    ],
)
def test_n1_rename_c_to_d_add_c_then_one_row(outcome: Outcome):
    assert outcome.rows("items", "id, d, c") == [(1, "c1", None), (2, "d2", "c2")]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        (
            "ALTER TABLE items RENAME COLUMN a TO swap",
            "ALTER TABLE items RENAME COLUMN c TO a",
            "ALTER TABLE items RENAME COLUMN swap TO c",
        ),
        "INSERT INTO items (id, a, c) VALUES (2, 'new a', 'new c')",
    ],
)
def test_n2_swap_of_two_names_in_one_transaction(outcome: Outcome):
    assert outcome.rows("items", "id, a, c") == [(1, "c1", "a1"), (2, "new a", "new c")]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "ALTER TABLE items DROP COLUMN c",
        "ALTER TABLE items ADD COLUMN c text",
        "INSERT INTO items VALUES (2, 'a2', 'c2')",
    ],
)
def test_n3_drop_c_and_add_c_of_the_same_type_leaves_no_old_value_behind(outcome: Outcome):
    assert outcome.rows("items", "id, c") == [(1, None), (2, "c2")]
    outcome.assert_same("items")


@story(
    ITEMS,
    when=["ALTER TABLE items DROP COLUMN a", "ALTER TABLE items ADD COLUMN b int DEFAULT 7"],
    later=["INSERT INTO items VALUES (2, 'c2')"],
)
def test_n4_alter_with_no_row_after_it_then_a_restart(outcome: Outcome):
    assert outcome.names("items") == ["id", "c", "b"]
    assert outcome.rows("items") == [(1, "c1", None), (2, "c2", 7)]


@story(
    ITEMS,
    when=[
        "ALTER TABLE items OWNER TO CURRENT_USER",
        "INSERT INTO items VALUES (2, 'a2', 'c2')",
        "ALTER TABLE items ALTER COLUMN a DROP NOT NULL",
        "INSERT INTO items VALUES (3, 'a3', 'c3')",
        "ALTER TABLE items SET (fillfactor = 80)",
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE items ALTER COLUMN a SET STATISTICS 50",
        "ALTER TABLE items CLUSTER ON items_pkey",
        "ALTER TABLE items ALTER COLUMN a SET STORAGE EXTERNAL",
        "UPDATE items SET a = 'changed' WHERE id = 1",
        "ALTER TABLE items ADD COLUMN IF NOT EXISTS a text",
        "DELETE FROM items WHERE id = 2",
    ],
)
def test_n5_alters_that_change_nothing_neither_hang_nor_change_anything(outcome: Outcome):
    assert outcome.messages("items") >= 5
    assert outcome.changes("items") == 0
    outcome.assert_same("items")


@story(
    ITEMS,
    when=[
        "INSERT INTO items VALUES (2, 'a2', 'c2')",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO items VALUES (3, 'a3', 'c3', 3)",
        "UPDATE items SET b = -1 WHERE id = 2",
        "ALTER TABLE items DROP COLUMN a",
        "INSERT INTO items VALUES (4, 'c4', 4)",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "INSERT INTO items VALUES (5, 'c5', 5)",
    ],
)
def test_n6_alters_with_rows_between_are_read_by_a_reader_that_is_behind(outcome: Outcome):
    assert outcome.rows("items") == [(1, "c1", None), (2, "c2", -1), (3, "c3", 3), (4, "c4", 4), (5, "c5", 5)]
    outcome.assert_same("items")


@story(
    [
        "CREATE TABLE items (id int, a text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES (1, 'one'), (2, 'two')",
    ],
    when=[
        "ALTER TABLE items ADD COLUMN at timestamptz DEFAULT now()",
        "ALTER TABLE items ADD COLUMN k text DEFAULT 'k'",
        "INSERT INTO items VALUES (3, 'three')",
        "VACUUM FULL items",
        "DELETE FROM items WHERE id = 1",
        "UPDATE items SET a = 'changed' WHERE id = 2",
    ],
)
def test_n7_add_column_default_now_and_a_rewrite_before_the_reader_arrives(outcome: Outcome):
    # the old images carry the missing values; the destination's rows hold NULL there and are found all the same
    assert outcome.logged("old_rows_not_found", "items") == []
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "CREATE TABLE empty (id int PRIMARY KEY)"],
    when=[
        "ALTER TABLE items ADD COLUMN b int DEFAULT 1",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "ALTER TABLE empty ADD COLUMN a text",
        "INSERT INTO items VALUES (1, 'c1')",
    ],
    later=["INSERT INTO empty VALUES (1, 'a')"],
)
def test_n8_schema_changes_before_the_first_row_of_a_table(outcome: Outcome):
    assert outcome.rows("items") == [(1, "c1", 1)]
    assert outcome.rows("empty") == [(1, "a")]


@story(
    [
        "CREATE TABLE items (id int PRIMARY KEY, v varchar(10), n numeric(6,2))",
        "INSERT INTO items VALUES (1, 'ten', 1.25)",
    ],
    when=[
        "ALTER TABLE items ALTER COLUMN v TYPE varchar(20)",
        "INSERT INTO items VALUES (2, 'longer than ten', 2.5)",
        "ALTER TABLE items ALTER COLUMN n TYPE numeric(8,2)",
        "INSERT INTO items VALUES (3, 'three', 9999.99)",
    ],
)
def test_n9_a_change_of_the_type_modifier_alone_is_seen_and_rows_keep_flowing(outcome: Outcome):
    assert outcome.skipped("items") == {("v", "type"), ("n", "type")}
    assert outcome.types("items")["n"] == "DECIMAL(6,2)"
    outcome.assert_same("items")


@story(
    [*ITEMS, "CREATE TABLE others (id int PRIMARY KEY)"],
    when=[
        "INSERT INTO items VALUES (2, 'a2', 'c2')",
        (
            "CREATE TABLE items_new (id int PRIMARY KEY, a text, c text)",
            "INSERT INTO items_new SELECT id + 100, 'new', c FROM items",
            "DROP TABLE items",
            "ALTER TABLE items_new RENAME TO items",
            "ALTER PUBLICATION etl_pub ADD TABLE items",
        ),
        "INSERT INTO items VALUES (3, 'a3', 'c3')",
        "INSERT INTO others VALUES (1)",
    ],
    breaks=True,
)
class TestN10ATableSwap:
    def test_is_a_clear_error_that_names_both_oids(self, outcome: Outcome):
        (new,) = outcome.source("SELECT 'items'::regclass::oid::int")[0]
        error = outcome.error("items")
        assert error is not None
        assert f"oid {new}" in error
        assert error.count("oid ") >= 2

    def test_mixes_no_row_of_the_new_table_into_the_old_one(self, outcome: Outcome):
        assert outcome.rows("items") == [(1, "a1", "c1"), (2, "a2", "c2")]

    def test_leaves_the_other_tables_flowing(self, outcome: Outcome):
        outcome.assert_same("others")


# --- more of the kind ------------------------------------------------------------------------------------------------


@story(
    [*ITEMS, "CREATE MATERIALIZED VIEW shown AS SELECT * FROM items", "CREATE UNIQUE INDEX ON shown (id)"],
    when=[
        "INSERT INTO items VALUES (2, 'a2', 'c2')",
        "REFRESH MATERIALIZED VIEW CONCURRENTLY shown",
        "INSERT INTO items VALUES (3, 'a3', 'c3')",
        "REFRESH MATERIALIZED VIEW shown",
        "VACUUM FULL items",
        "CLUSTER items USING items_pkey",
        "INSERT INTO items VALUES (4, 'a4', 'c4')",
        "REINDEX TABLE items",
        "ANALYZE items",
        "DELETE FROM items WHERE id = 2",
    ],
)
def test_refreshes_and_rewrites_are_no_changes(outcome: Outcome):
    assert outcome.changes("items") == 0
    outcome.assert_same("items")


@story(
    ["CREATE TABLE items (id int PRIMARY KEY)", "CREATE TABLE others (id int PRIMARY KEY, a int)"],
    when=[
        # rows of COPY share one WAL record, and so one LSN
        "COPY items FROM PROGRAM 'seq 1 500'",
        "ALTER TABLE items ADD COLUMN a int DEFAULT 1",
        (
            "COPY items (id) FROM PROGRAM 'seq 501 900'",
            "ALTER TABLE items DROP COLUMN a",
            "COPY items FROM PROGRAM 'seq 901 950'",
        ),
        "DELETE FROM items WHERE id % 7 = 0",
        (
            "INSERT INTO others SELECT i, 0 FROM generate_series(1, 3000) i",
            "UPDATE others SET a = a + 1",
            "UPDATE others SET id = -id WHERE id % 2 = 0",
            "DELETE FROM others WHERE id % 3 = 0",
            "INSERT INTO others SELECT id, 9 FROM items WHERE id % 3 = 0 ON CONFLICT (id) DO UPDATE SET a = 9",
            "UPDATE others SET a = a + 1",
        ),
    ],
)
def test_rows_that_share_an_lsn_and_rows_that_change_often_in_one_transaction(outcome: Outcome):
    outcome.assert_same("items")
    outcome.assert_same("others")


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, a text)", "CREATE TABLE others (id int PRIMARY KEY, a text)"],
    when=[
        (
            "INSERT INTO items SELECT i, repeat(md5(i::text), 4) FROM generate_series(1, 30000) i",
            "INSERT INTO others SELECT id, a FROM items WHERE id <= 100",
            "ALTER TABLE items ADD COLUMN b int DEFAULT 7",
            "UPDATE items SET b = id WHERE id % 2 = 0",
            "ALTER TABLE items DROP COLUMN a",
            "UPDATE items SET id = -id WHERE id % 3 = 0",
            "DELETE FROM items WHERE id % 5 = 0",
            "ALTER TABLE items RENAME COLUMN b TO a",
            "INSERT INTO items VALUES (0, 0)",
            "UPDATE others SET a = 'end' WHERE id = 100",
        )
    ],
)
def test_a_transaction_much_larger_than_a_batch_with_schema_changes_inside(outcome: Outcome):
    assert outcome.rows("items", "count(*)") == outcome.source("SELECT count(*) FROM items")
    missing = outcome.rows("items", "count(*) FILTER (a IS NULL), count(DISTINCT id)")
    assert missing == [(8000, 24001)]
    outcome.assert_same("others")


@story(
    ITEMS,
    when=[
        """DO $$ BEGIN
            FOR i IN 1..150 LOOP
                BEGIN
                    INSERT INTO items VALUES (1000 + i, 'a', 'c');
                    IF i % 50 = 0 THEN EXECUTE format('ALTER TABLE items ADD COLUMN x%s int', i); END IF;
                    IF i % 3 = 0 THEN RAISE 'undo'; END IF;
                EXCEPTION WHEN raise_exception THEN NULL;
                END;
            END LOOP;
        END $$""",
        "INSERT INTO items (id) VALUES (2)",
    ],
)
def test_many_subtransactions_some_with_ddl_and_some_undone(outcome: Outcome):
    assert outcome.names("items") == ["id", "a", "c", "x50", "x100"]
    outcome.assert_same("items")


@story(
    [f"CREATE TABLE items (id int PRIMARY KEY, {', '.join(f'c{n} int DEFAULT {n}' for n in range(200))})"],
    when=[
        "INSERT INTO items (id) VALUES (1)",
        "ALTER TABLE items " + ", ".join(f"DROP COLUMN c{n}" for n in range(0, 200, 2)),
        "ALTER TABLE items " + ", ".join(f"ADD COLUMN d{n} text DEFAULT 'd{n}'" for n in range(100)),
        "INSERT INTO items (id) VALUES (2)",
        "UPDATE items SET c1 = -1, d1 = 'changed'",
    ],
)
def test_hundreds_of_columns_change_at_once(outcome: Outcome):
    assert outcome.changes("items") == 1
    outcome.assert_same("items")


# --- partitions under their own names --------------------------------------------------------------------------------


def test_partitions_that_are_published_one_by_one_follow_the_changes_of_their_root(
    pipeline: PipelineUnderTest,
):
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, a text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF items FOR VALUES FROM (0) TO (100)",
        "CREATE TABLE high (a text, gone int, id int NOT NULL)",
        "ALTER TABLE high DROP COLUMN gone",
        "ALTER TABLE items ATTACH PARTITION high FOR VALUES FROM (100) TO (200)",
        "INSERT INTO items VALUES (1, 'one'), (101, 'hundred')",
        "CREATE PUBLICATION etl_pub FOR TABLE items",
    )
    pipeline.once()
    pipeline.sql(
        "ALTER TABLE items ADD COLUMN b int DEFAULT 3",
        "INSERT INTO items VALUES (2, 'two'), (102, 'more')",
        "ALTER TABLE items RENAME COLUMN a TO c",
        "UPDATE items SET c = 'changed' WHERE id IN (1, 101)",
        "UPDATE items SET id = 103 WHERE id = 2",
        "ALTER TABLE items DROP COLUMN b",
        "DELETE FROM items WHERE id = 102",
        "INSERT INTO items VALUES (4, 'four')",
    )
    pipeline.once()
    for table in ("low", "high"):
        pipeline.assert_equal(f"public.{table}")


# --- several sessions at once ----------------------------------------------------------------------------------------


def test_schema_messages_of_concurrent_transactions_do_not_come_in_commit_order(pipeline: PipelineUnderTest):
    pipeline.sql(*(f"CREATE TABLE {table} (id int PRIMARY KEY, a text)" for table in "xyz"))
    pipeline.publish("x", "y", "z")
    pipeline.once()
    with pipeline.database.connect() as first, pipeline.database.connect() as second:
        for connection in (first, second):
            connection.execute("BEGIN")
        first.execute("INSERT INTO z VALUES (1, 'z1')")
        first.execute("ALTER TABLE x RENAME COLUMN a TO b")
        second.execute("ALTER TABLE y ADD COLUMN b int")
        second.execute("INSERT INTO z VALUES (2, 'z2')")
        first.execute("INSERT INTO x VALUES (1, 'x1')")
        second.execute("INSERT INTO y VALUES (1, 'y1', 1)")
        second.execute("COMMIT")
        pipeline.sql("ALTER TABLE y DROP COLUMN a", "INSERT INTO y VALUES (2, 2)")
        first.execute("ALTER TABLE x ADD COLUMN a int")
        first.execute("INSERT INTO y VALUES (3, 3)")
        first.execute("INSERT INTO x VALUES (2, 'x2', 2)")
        first.execute("COMMIT")
    pipeline.sql("INSERT INTO x VALUES (3, 'x3', 3)")
    assert pipeline.once(failpoints="stream.after_write=kill", check=False).code == -9
    pipeline.once()
    for table in "xyz":
        pipeline.assert_equal(f"public.{table}")


# --- during the copy -------------------------------------------------------------------------------------------------


def test_n8_a_schema_change_between_the_copys_snapshot_and_the_copy(pipeline: PipelineUnderTest):
    tables = ("added", "dropped", "renamed", "swapped", "untouched")
    for table in tables:
        pipeline.sql(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text, w text)",
            f"INSERT INTO {table} VALUES (1, 'v1', 'w1')",
        )
    pipeline.publish(*tables)
    holding = pipeline.directory / "failpoints"
    holding.mkdir()
    marker = holding / "copy.after_snapshot"
    with pipeline.running(
        "--once", failpoints="copy.after_snapshot:1=hold", env={"ETL_FAILPOINTS_DIR": str(holding)}
    ) as daemon:
        daemon.wait_until(marker.exists, "the copy's snapshot")
        pipeline.sql(
            "ALTER TABLE added ADD COLUMN x text DEFAULT 'x'",
            "ALTER TABLE dropped DROP COLUMN v",
            "ALTER TABLE renamed RENAME COLUMN v TO x",
            *(f"ALTER TABLE swapped RENAME COLUMN {a} TO {b}" for a, b in ("vt", "wv", "tw")),
        )
        pipeline.sql(*(f"INSERT INTO {table} (id, w) VALUES (2, 'w2')" for table in tables))
        marker.unlink()
        assert daemon.wait_for_exit() == 0, daemon.log
    pipeline.once()
    # the row of the copy is older than the column: it is not filled
    assert sorted(pipeline.rows("public.added", "id, v, w, x")) == [
        (1, "v1", "w1", None),
        (2, None, "w2", "x"),
    ]
    for table in tables[1:]:
        pipeline.assert_equal(f"public.{table}")

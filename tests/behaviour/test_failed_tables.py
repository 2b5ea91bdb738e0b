"""One table that cannot go on: a named error, nothing wrong written, and the other tables flow on."""

from __future__ import annotations

import duckdb

from etl.testing.harness import PipelineUnderTest
from tests.stories import Outcome, story

OTHERS = "CREATE TABLE others (id int PRIMARY KEY, a text)"


def assert_others_flow(outcome: Outcome) -> None:
    assert outcome.error("others") is None
    outcome.assert_same("others")


@story(
    [OTHERS, "CREATE TABLE items (id int PRIMARY KEY, n int, m int)", "INSERT INTO items VALUES (1, 1, 1)"],
    when=[
        "ALTER TABLE items ALTER COLUMN n TYPE bigint, ALTER COLUMN m TYPE text",
        # one transaction, for how many transactions before it are in the failing batch is a matter of time
        ("INSERT INTO items VALUES (2, 2, '2')", "INSERT INTO items VALUES (3, 3, 'three')"),
        "INSERT INTO others VALUES (1, 'one')",
        "INSERT INTO items VALUES (4, 4, '4')",
        "INSERT INTO others VALUES (2, 'two')",
        "ALTER TABLE others ADD COLUMN b int",
        "INSERT INTO others VALUES (3, 'three', 3)",
    ],
    later=["INSERT INTO others VALUES (4, 'four', 4)", "INSERT INTO items VALUES (5, 5, '5')"],
    breaks=True,
)
class TestAValueThatTheColumnCannotTakeAfterATypeChange:
    def test_fails_the_table_and_names_the_column(self, outcome: Outcome):
        error = outcome.error("items")
        assert error is not None
        assert "'m'" in error
        assert "INTEGER" in error

    def test_tells_no_value(self, outcome: Outcome):
        assert all("three" not in line["error"] for line in outcome.logged("table_failed", "items"))

    def test_writes_nothing_of_its_transaction_nor_after_it(self, outcome: Outcome):
        assert outcome.rows("items", "id") == [(1,)]

    def test_leaves_the_other_tables_flowing_also_over_schema_changes_and_restarts(self, outcome: Outcome):
        assert_others_flow(outcome)

    def test_keeps_its_changes_in_the_slot(self, outcome: Outcome):
        slot = f"supabase_etl_apply_{outcome.pipeline_id}"
        held = outcome.source(
            "SELECT pg_current_wal_lsn() > confirmed_flush_lsn FROM pg_replication_slots"
            f" WHERE slot_name = '{slot}'"
        )
        assert held == [(True,)]


@story(
    [
        OTHERS,
        'CREATE TABLE items (id int PRIMARY KEY, a text, "A" text)',
        "INSERT INTO items VALUES (1, 'x', 'y')",
    ],
    when=["INSERT INTO items VALUES (2, 'x', 'y')", "INSERT INTO others VALUES (1, 'one')"],
    breaks=True,
)
def test_columns_that_are_one_name_to_the_destination_fail_the_copy_of_their_table_alone(outcome: Outcome):
    error = outcome.error("items")
    assert error is not None
    assert "'a'" in error
    assert "'A'" in error
    assert outcome.tables() == ["others"]
    assert_others_flow(outcome)


@story(
    [OTHERS, "CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"],
    when=[
        'ALTER TABLE items ADD COLUMN "A" text',
        "INSERT INTO items VALUES (2, 'two', 'TWO')",
        "INSERT INTO others VALUES (1, 'one')",
    ],
    breaks=True,
)
def test_an_added_column_that_collides_with_another_fails_the_table_and_leaves_its_schema(outcome: Outcome):
    assert outcome.error("items") is not None
    assert outcome.rows("items") == [(1, "one")]
    assert_others_flow(outcome)


@story(
    [
        OTHERS,
        "CREATE TABLE items (id int PRIMARY KEY)",
        'CREATE TABLE "Items" (id int PRIMARY KEY)',
        "INSERT INTO items VALUES (1)",
        'INSERT INTO "Items" VALUES (2)',
    ],
    when=[
        "INSERT INTO items VALUES (10)",
        'INSERT INTO "Items" VALUES (20)',
        "INSERT INTO others VALUES (1, 'x')",
    ],
    breaks=True,
)
def test_two_tables_that_are_one_name_to_the_destination_are_never_merged(outcome: Outcome):
    failed = [table for table in ("items", "Items") if outcome.error(table) is not None]
    assert len(failed) == 1
    (table,) = outcome.tables()[:1] if len(outcome.tables()) == 2 else []
    expected = {"items": [(1,), (10,)], "Items": [(2,), (20,)]}
    assert outcome.rows(table) == expected[table]
    assert_others_flow(outcome)


@story(
    [OTHERS, "CREATE TABLE items (id int PRIMARY KEY, _etl_op text)"],
    when=["INSERT INTO items VALUES (1, 'x')", "INSERT INTO others VALUES (1, 'one')"],
    changelog=["items"],
    breaks=True,
)
def test_a_column_with_a_name_of_ours_is_refused_by_name_in_a_changelog(outcome: Outcome):
    error = outcome.error("items")
    assert error is not None
    assert "_etl_op" in error
    assert_others_flow(outcome)


@story(
    [
        OTHERS,
        "CREATE TABLE items (rowid text, a text)",
        "ALTER TABLE items REPLICA IDENTITY FULL",
        "INSERT INTO items VALUES ('same', 'x'), ('same', 'x')",
    ],
    when=["INSERT INTO others VALUES (1, 'one')"],
    breaks=True,
)
def test_a_column_that_hides_what_tells_equal_rows_apart_is_refused_by_name(outcome: Outcome):
    error = outcome.error("items")
    assert error is not None
    assert "'rowid'" in error
    assert_others_flow(outcome)


@story(
    [
        OTHERS,
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        "INSERT INTO items VALUES (1, 'one'), (2, 'two')",
    ],
    when=[
        "ALTER TABLE items ADD COLUMN k int GENERATED ALWAYS AS IDENTITY",
        "ALTER TABLE items DROP CONSTRAINT items_pkey, ADD PRIMARY KEY (k)",
        "UPDATE items SET a = 'changed' WHERE id = 1",
        "INSERT INTO others VALUES (1, 'one')",
    ],
    breaks=True,
)
def test_a_key_that_existing_rows_have_no_value_for_fails_the_table(outcome: Outcome):
    error = outcome.error("items")
    assert error is not None
    assert "k" in error
    assert outcome.rows("items", "id, a") == [(1, "one"), (2, "two")]
    assert_others_flow(outcome)


@story(
    [OTHERS, "CREATE TABLE items ()", "CREATE TABLE emptied (id int)"],
    when=[
        "INSERT INTO items DEFAULT VALUES",
        "INSERT INTO emptied VALUES (1)",
        "ALTER TABLE emptied DROP COLUMN id",
        "INSERT INTO emptied DEFAULT VALUES",
        "INSERT INTO others VALUES (1, 'one')",
    ],
    breaks=True,
)
def test_a_table_without_columns_fails_by_name(outcome: Outcome):
    for table in ("items", "emptied"):
        error = outcome.error(table)
        assert error is not None
        assert "column" in error
    assert outcome.rows("emptied") == [(1,)]
    assert_others_flow(outcome)


@story(
    [OTHERS, "CREATE TABLE items (id int PRIMARY KEY, a text)", "INSERT INTO items VALUES (1, 'one')"],
    when=[
        "INSERT INTO items VALUES (2, 'two')",
        (
            "ALTER TABLE items RENAME TO items_2026",
            "CREATE TABLE items (id int PRIMARY KEY, a text)",
            "ALTER PUBLICATION etl_pub ADD TABLE items",
        ),
        "INSERT INTO items VALUES (3, 'in the new table')",
        "INSERT INTO items_2026 VALUES (4, 'in the old table')",
        "INSERT INTO others VALUES (1, 'one')",
    ],
    later=["INSERT INTO items_2026 VALUES (5, 'in the old table')"],
    breaks=True,
)
class TestATableRenamedAwayToMakeRoomForANewOne:
    def test_goes_on_into_its_destination_table(self, outcome: Outcome):
        assert outcome.rows("items", "id") == [(1,), (2,), (4,), (5,)]
        assert_others_flow(outcome)

    def test_is_never_mixed_with_the_new_one_which_fails_by_name(self, outcome: Outcome):
        error = outcome.error("items")
        assert error is not None
        assert "new table" not in str(outcome.rows("items"))


# --- the way back ----------------------------------------------------------------------------------------------------


@story(
    [
        OTHERS,
        'CREATE TABLE items (id int PRIMARY KEY, a text, "A" text)',
        "INSERT INTO items VALUES (1, 'x', 'y')",
    ],
    when=["INSERT INTO items VALUES (2, 'x', 'y')", "INSERT INTO others VALUES (1, 'one')"],
    later=[
        'ALTER TABLE items RENAME COLUMN "A" TO b',
        "INSERT INTO items VALUES (3, 'x', 'y')",
        "INSERT INTO others VALUES (2, 'two')",
    ],
    breaks=True,
)
def test_a_table_that_could_not_be_copied_is_copied_once_the_cause_is_gone(outcome: Outcome):
    assert outcome.error("items") is not None
    outcome.assert_same("items")
    assert_others_flow(outcome)


def test_a_table_that_failed_in_the_stream_goes_on_where_it_failed_once_the_cause_is_gone(
    pipeline: PipelineUnderTest,
):
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, n int)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1, 1)",
    )
    pipeline.publish("items", "others")
    pipeline.once()
    pipeline.sql(
        "ALTER TABLE items ALTER COLUMN n TYPE text",
        "INSERT INTO items VALUES (2, '2'), (3, 'three')",
        "INSERT INTO others VALUES (1)",
        "UPDATE items SET n = 'changed' WHERE id = 1",
    )
    for number in (2, 3):
        assert pipeline.once(check=False).code == 1
        pipeline.sql(f"INSERT INTO others VALUES ({number})", f"INSERT INTO items VALUES ({number + 2}, 'x')")
    with duckdb.connect(str(pipeline.warehouse)) as operator:
        operator.execute("ALTER TABLE public.items ALTER COLUMN n TYPE VARCHAR")
    pipeline.once()
    pipeline.assert_equal("public.items")
    pipeline.assert_equal("public.others")

"""The contract, "Mark destination metadata as Applying … Applied": what a crash in between leaves, and what a restart does.

The contract allows that "a crash while metadata is Applying may require manual intervention"; here it never does where
one order of the plan explains the destination. Every place to crash is tried in `tests/chaos`.
"""

from __future__ import annotations

import duckdb

from etl.testing.harness import PipelineUnderTest, Row

DESTINATION = """
SELECT schema_status::text, previous_snapshot_commit_lsn IS NOT NULL FROM etl.destination_tables_metadata
"""


def started(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, a text, b text, c text DEFAULT 'x')",
        "INSERT INTO items VALUES (1, 'a1', 'b1', 'c1')",
    )
    pipeline.publish("items")
    pipeline.once()
    return pipeline


def swap_and_more(pipeline: PipelineUnderTest) -> None:
    pipeline.sql("INSERT INTO items VALUES (2, 'a2', 'b2', 'c2')")
    pipeline.transaction(
        "ALTER TABLE items RENAME COLUMN a TO t",
        "ALTER TABLE items RENAME COLUMN b TO a",
        "ALTER TABLE items RENAME COLUMN t TO b",
        "ALTER TABLE items DROP COLUMN c, ADD COLUMN c int DEFAULT 3",
        "INSERT INTO items (id, a, b) VALUES (3, 'a3', 'b3')",
    )


def shown(pipeline: PipelineUnderTest) -> list[Row]:
    return sorted(pipeline.rows("public.items", "id, a, b, c"))


AFTER = [(1, "b1", "a1", None), (2, "b2", "a2", None), (3, "a3", "b3", 3)]


def test_a_crash_before_the_ddl_leaves_applying_with_both_endpoints_and_a_restart_applies_it(
    pipeline: PipelineUnderTest,
):
    started(pipeline)
    swap_and_more(pipeline)
    assert pipeline.once(failpoints="ddl.after_mark_applying=kill", check=False).code == -9
    assert pipeline.query(DESTINATION) == [("applying", True)]
    assert shown(pipeline) == [(1, "a1", "b1", "c1"), (2, "a2", "b2", "c2")]
    pipeline.once()
    assert pipeline.query(DESTINATION) == [("applied", False)]
    assert shown(pipeline) == AFTER


def test_a_crash_after_the_ddl_leaves_applying_and_a_restart_marks_it_applied(pipeline: PipelineUnderTest):
    started(pipeline)
    swap_and_more(pipeline)
    assert pipeline.once(failpoints="ddl.after_commit=kill", check=False).code == -9
    assert pipeline.query(DESTINATION) == [("applying", True)]
    pipeline.once()
    assert pipeline.query(DESTINATION) == [("applied", False)]
    assert shown(pipeline) == AFTER


def test_rows_before_a_change_are_durable_before_it_and_rows_after_it_only_once_it_is_applied(
    pipeline: PipelineUnderTest,
):
    started(pipeline)
    swap_and_more(pipeline)
    assert pipeline.once(failpoints="ddl.before_mark_applying=kill", check=False).code == -9
    assert pipeline.query(DESTINATION) == [("applied", False)]
    assert shown(pipeline) == [(1, "a1", "b1", "c1"), (2, "a2", "b2", "c2")]
    assert pipeline.once(failpoints="ddl.after_applied=kill", check=False).code == -9
    assert pipeline.query(DESTINATION) == [("applied", False)]
    assert shown(pipeline) == AFTER[:2]


def test_what_was_written_but_not_acknowledged_is_replayed_and_changes_nothing(pipeline: PipelineUnderTest):
    started(pipeline)
    swap_and_more(pipeline)
    assert pipeline.once(failpoints="stream.after_write=kill", check=False).code == -9
    assert shown(pipeline) == AFTER
    before = pipeline.progress()
    for _ in range(2):
        assert pipeline.once(failpoints="stream.after_write=kill", check=False).code == -9
        assert shown(pipeline) == AFTER
    assert pipeline.progress() == before
    pipeline.sql("INSERT INTO items (id, a, b, c) VALUES (4, 'a4', 'b4', 4)")
    pipeline.once()
    assert shown(pipeline) == [*AFTER, (4, "a4", "b4", 4)]


def test_a_destination_that_no_point_on_the_way_explains_stops_the_table_and_is_left_alone(
    pipeline: PipelineUnderTest,
):
    started(pipeline)
    with duckdb.connect(str(pipeline.warehouse)) as somebody_else:
        somebody_else.execute("ALTER TABLE public.items DROP COLUMN b")
        somebody_else.execute("ALTER TABLE public.items ADD COLUMN b_mine int")
    swap_and_more(pipeline)
    run = pipeline.once(check=False)
    assert run.code == 1
    assert {line["error"] for line in run.logged("table_failed")} == {
        "column 'b' is not in the destination table"
    }
    assert pipeline.names("public.items") == ["id", "a", "c", "b_mine"]

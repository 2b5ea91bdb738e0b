"""Tables come and go while the pipeline runs: nobody restarts it, and what a removed table had stays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from etl.testing.daemon import Daemon
from etl.testing.harness import PUBLICATION, PipelineUnderTest


@contextmanager
def streaming(pipeline: PipelineUnderTest) -> Iterator[Daemon]:
    """A daemon that has copied what was published; it ends gracefully, with everything applied."""
    with pipeline.running() as daemon:
        wait_ready(pipeline, daemon, *published(pipeline))
        yield daemon
        wait_applied(pipeline, daemon)
        daemon.terminate()


def published(pipeline: PipelineUnderTest) -> list[str]:
    rows = pipeline.query(
        "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE schemaname <> 'etl'"
    )
    return [row[0] for row in rows]


def wait_ready(pipeline: PipelineUnderTest, daemon: Daemon, *tables: str) -> None:
    def ready() -> bool:
        if pipeline.query("SELECT to_regclass('etl.destination_tables_metadata') IS NULL") == [(True,)]:
            return False
        states = pipeline.states()
        return all(states.get(table) == "ready" for table in tables)

    daemon.wait_until(ready, f"{tables} to be ready")


def wait_applied(pipeline: PipelineUnderTest, daemon: Daemon) -> None:
    end = pipeline.written()
    pipeline.move_on()
    daemon.wait_until(lambda: pipeline.progress() >= end, "everything until now")


def two_tables(pipeline: PipelineUnderTest) -> None:
    pipeline.sql(
        "CREATE TABLE a (id int PRIMARY KEY, t text)",
        "CREATE TABLE b (id int PRIMARY KEY, t text)",
        "INSERT INTO a VALUES (1, 'a1')",
        "INSERT INTO b SELECT g, 'b' FROM generate_series(1, 1000) g",
    )


def test_a_table_added_to_the_publication_is_copied_and_streamed(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.publish("a")
    with streaming(pipeline) as daemon:
        pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE b", "INSERT INTO b VALUES (1001, 'new')")
        wait_ready(pipeline, daemon, "public.b")
        pipeline.sql("UPDATE b SET t = 'changed' WHERE id <= 10", "INSERT INTO a VALUES (2, 'a2')")

    pipeline.assert_settled("public.a", "public.b")


def test_a_table_that_changes_while_it_is_copied_loses_nothing_and_doubles_nothing(
    pipeline: PipelineUnderTest,
):
    two_tables(pipeline)
    pipeline.publish("a")
    with streaming(pipeline) as daemon:
        pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE b")
        for number in range(200):
            pipeline.sql(
                f"INSERT INTO b VALUES ({2000 + number}, 'x')",
                f"UPDATE b SET t = t || '{number}' WHERE id % 7 = {number % 7}",
                f"DELETE FROM b WHERE id = {number}",
            )
            if number == 50:
                pipeline.sql("ALTER TABLE b ADD COLUMN n int DEFAULT 5", "UPDATE b SET n = id")
            if number == 100:
                pipeline.sql("ALTER TABLE b RENAME COLUMN t TO text")
                pipeline.sql("ALTER TABLE b RENAME COLUMN text TO t")
        wait_ready(pipeline, daemon, "public.b")

    pipeline.assert_settled("public.a", "public.b")


def test_a_table_removed_from_the_publication_keeps_its_rows_and_the_others_flow(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.publish("a", "b")
    with streaming(pipeline) as daemon:
        pipeline.sql("INSERT INTO b VALUES (1001, 'last')", f"ALTER PUBLICATION {PUBLICATION} DROP TABLE b")
        daemon.wait_for_log("table_left_publication")
        pipeline.sql("INSERT INTO b VALUES (1002, 'unpublished')", "INSERT INTO a VALUES (2, 'a2')")

    assert len(pipeline.rows("public.b")) == 1001
    pipeline.assert_settled("public.a")


def test_a_table_that_was_taken_out_and_put_back_is_copied_anew(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.publish("a", "b")
    with streaming(pipeline) as daemon:
        pipeline.sql(
            f"ALTER PUBLICATION {PUBLICATION} DROP TABLE b",
            "INSERT INTO b VALUES (1001, 'while it was out')",
            f"ALTER PUBLICATION {PUBLICATION} ADD TABLE b",
        )
        daemon.wait_for_log("table_copied", times=3)
        wait_ready(pipeline, daemon, "public.b")

    pipeline.assert_settled("public.a", "public.b")


@pytest.mark.parametrize("what", ["ALL TABLES", "TABLES IN SCHEMA public"])
def test_a_table_created_where_everything_is_published_is_copied_and_streamed(
    pipeline: PipelineUnderTest, what: str
):
    two_tables(pipeline)
    pipeline.sql(f"CREATE PUBLICATION {PUBLICATION} FOR {what}")
    with streaming(pipeline) as daemon:
        pipeline.sql("CREATE TABLE c (id int PRIMARY KEY)", "INSERT INTO c VALUES (1), (2)")
        wait_ready(pipeline, daemon, "public.c")
        pipeline.sql("INSERT INTO c VALUES (3)", "CREATE TABLE empty (id int PRIMARY KEY)")
        wait_ready(pipeline, daemon, "public.empty")

    pipeline.assert_equal("public.c")
    pipeline.assert_equal("public.empty")


def test_another_row_filter_brings_the_rows_it_shows(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.sql(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE b WHERE (id <= 10)")
    with streaming(pipeline) as daemon:
        pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} SET TABLE b WHERE (id <= 1000)")
        daemon.wait_for_log("table_copied", times=2)
        wait_ready(pipeline, daemon, "public.b")

    pipeline.assert_equal("public.b")


def test_another_column_list_adds_the_column_without_copying_anew(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.sql(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE b (id)")
    with streaming(pipeline) as daemon:
        pipeline.sql(
            f"ALTER PUBLICATION {PUBLICATION} SET TABLE b (id, t)", "INSERT INTO b VALUES (1001, 'new')"
        )
        wait_applied(pipeline, daemon)
        assert daemon.count_log("table_copied") == 1

    rows = dict(pipeline.rows("public.b"))
    assert rows[1001] == "new"
    assert rows[1] is None


# --- partitions ---------------------------------------------------------------------------------------------------


def partitioned(pipeline: PipelineUnderTest) -> None:
    pipeline.sql(
        "CREATE TABLE p (id int, day int, t text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
        "INSERT INTO p SELECT g, 1, 'p1' FROM generate_series(1, 100) g",
    )
    pipeline.publish("p")


def test_rows_of_a_new_partition_arrive_under_the_root_without_a_copy(pipeline: PipelineUnderTest):
    partitioned(pipeline)
    with streaming(pipeline) as daemon:
        pipeline.sql("CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)", "INSERT INTO p VALUES (1, 2, 'p2')")
        wait_applied(pipeline, daemon)
        assert daemon.count_log("table_copied") == 1

    pipeline.assert_settled("public.p")


def test_the_rows_that_an_attached_partition_brings_arrive(pipeline: PipelineUnderTest):
    partitioned(pipeline)
    with streaming(pipeline) as daemon:
        pipeline.sql(
            "CREATE TABLE p2 (t text, day int NOT NULL, id int NOT NULL)",
            "INSERT INTO p2 VALUES ('before', 2, 1), ('before', 2, 2)",
            "ALTER TABLE p ATTACH PARTITION p2 FOR VALUES IN (2)",
            "INSERT INTO p VALUES (3, 2, 'after')",
        )
        daemon.wait_for_log("table_copied", times=2)
        wait_ready(pipeline, daemon, "public.p")

    pipeline.assert_settled("public.p")


def test_the_rows_of_a_detached_partition_stay_and_its_later_ones_do_not_arrive(pipeline: PipelineUnderTest):
    partitioned(pipeline)
    with streaming(pipeline):
        pipeline.sql("ALTER TABLE p DETACH PARTITION p1", "INSERT INTO p1 VALUES (999, 1, 'detached')")

    assert len(pipeline.rows("public.p")) == 100


def test_whoever_keeps_a_filtered_table_locked_holds_up_no_other_table(pipeline: PipelineUnderTest):
    """The server writes a row filter out under a lock of its table."""
    two_tables(pipeline)
    pipeline.publish("a", "b WHERE (id > 10)")
    with streaming(pipeline) as daemon:
        with pipeline.database.connect() as other, other.transaction():
            other.execute("LOCK TABLE b")
            for n in (2, 3):
                # a look lies between the two: a table is seen that nobody knew
                name = f"c{n}"
                pipeline.sql(
                    f"CREATE TABLE {name} (id int PRIMARY KEY)",
                    f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {name}",
                    f"INSERT INTO a VALUES ({n}, 'while b is locked')",
                )
                daemon.wait_until(lambda seen=name: seen in daemon.log, f"a look that sees {name}")
                wait_applied(pipeline, daemon)
        assert daemon.count_log("attempt_failed") == 0

    assert pipeline.rows("public.a", "id") == [(1,), (2,), (3,)]


def test_a_row_filter_whose_column_is_renamed_is_the_same_filter(pipeline: PipelineUnderTest):
    two_tables(pipeline)
    pipeline.publish("a", "b WHERE (id > 10)")
    with streaming(pipeline) as daemon:
        pipeline.sql("ALTER TABLE b RENAME COLUMN id TO key", "INSERT INTO b VALUES (1001, 'new')")
        wait_applied(pipeline, daemon)
        pipeline.sql("CREATE TABLE c (id int PRIMARY KEY)", f"ALTER PUBLICATION {PUBLICATION} ADD TABLE c")
        wait_ready(pipeline, daemon, "public.c")
        assert daemon.count_log("published_rows_changed") == 0

    assert pipeline.rows("public.b", "min(key), max(key)") == [(11, 1001)]

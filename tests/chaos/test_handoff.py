"""Copies and hand-overs beside a busy stream, under kills: every row once, and nothing of it left behind.

``make chaos`` runs the storm for long: `ETL_CHAOS_KILLS` says how many kills, `ETL_CHAOS_SEED` at which moments.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from etl.testing.daemon import Daemon, wait_until
from etl.testing.harness import PUBLICATION, PipelineUnderTest
from etl.testing.workload import Workload
from etl.testing.writer import Writer
from tests.chaos.steps import end
from tests.holding import held

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("ETL_CHAOS_KILLS", "6"))
SEEDS = [int(os.environ.get("ETL_CHAOS_SEED", "20261201"))]
SECONDS_A_KILL = 90
COPYING = "application_name LIKE '%table\\_sync:1' AND datname = current_database()"


class Flood:
    """About a thousand rows a second into one table, with updates and deletes among them."""

    table = "public.flood"

    def create(self, pipeline: PipelineUnderTest) -> None:
        pipeline.sql(
            "CREATE TABLE flood (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n int, t text)",
            "INSERT INTO flood (n, t) SELECT g, repeat('x', 300) FROM generate_series(1, 20000) g",
        )

    def step(self, connection: psycopg.Connection) -> None:
        with connection.transaction():
            connection.execute(
                "INSERT INTO flood (n, t) SELECT g, repeat('y', 100) FROM generate_series(1, 100) g"
            )
            connection.execute(
                "UPDATE flood SET n = n + 1 WHERE id % 997 = (SELECT max(id) FROM flood) % 997"
            )
            connection.execute("DELETE FROM flood WHERE id % 1009 = (SELECT max(id) FROM flood) % 1009")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(SECONDS_A_KILL * (KILLS + 4))
def test_tables_added_copied_and_handed_over_under_load_and_kills_lose_and_double_nothing(
    pipeline: PipelineUnderTest, seed: int
):
    chance = random.Random(seed)  # noqa: S311 - no secret
    pipeline.settings["table_sync"] = {"range_bytes": "256KiB"}
    workload, flood = Workload(seed), Flood()
    with pipeline.database.connect() as connection:
        workload.create(connection)
    flood.create(pipeline)
    tables = [workload.tables[0], flood.table, *workload.tables[1:]]
    pipeline.publish(tables[0])
    pipeline.once()
    waiting = tables[1:]
    with (
        Writer(pipeline.database, workload, pause_s=0.05),
        Writer(pipeline.database, flood, pause_s=0.1),
    ):
        for _ in range(max(KILLS, len(waiting))):
            with pipeline.running() as daemon:
                daemon.wait_for_log("streaming_started")
                if waiting:
                    pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {waiting.pop(0)}")
                ask(pipeline, chance)
                work(daemon, chance.uniform(0, 3))
                daemon.kill()
    pipeline.etl("tables", "resume", "--all")
    end(pipeline, workload)

    pipeline.assert_settled(*tables)
    assert kept(pipeline) == []


def ask(pipeline: PipelineUnderTest, chance: random.Random) -> None:
    """What people may ask for at any time, without waiting for it."""
    for table in chance.sample(sorted(filter(None, pipeline.states())), 1):
        verb = chance.choice([["resync", "--yes"], ["pause"], ["resume"]])
        asked = pipeline.etl("tables", verb[0], table, *verb[1:], "--no-wait")
        assert asked.code == 0, asked.log


def work(daemon: Daemon, seconds: float) -> None:
    until = time.monotonic() + seconds
    daemon.wait_until(lambda: time.monotonic() >= until, f"{seconds:.1f} s of work")


def kept(pipeline: PipelineUnderTest) -> list[Path]:
    return sorted((pipeline.directory / "backlog").rglob("*"))


# --- connections that break -----------------------------------------------------------------------------------------


@pytest.fixture
def large(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A table of about 30 ranges, read by one connection, that is to be published beside another."""
    pipeline.settings["table_sync"] = {"range_bytes": "256KiB", "connections": 1}
    pipeline.sql(
        "CREATE TABLE small (id int PRIMARY KEY)",
        "CREATE TABLE large (id int PRIMARY KEY, t text)",
        "INSERT INTO large SELECT g, repeat('x', 300) FROM generate_series(1, 20000) g",
    )
    pipeline.publish("small")
    pipeline.once()
    pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE large")
    return pipeline


def terminate(pipeline: PipelineUnderTest, condition: str = "true") -> int:
    return len(
        pipeline.query(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {COPYING} AND {condition}"
        )
    )


def test_a_connection_that_breaks_costs_its_range_alone(large: PipelineUnderTest):
    with held(large, "copy.mid:5=hold") as copy:
        copy.wait("copy.mid")
        assert terminate(large, "query NOT LIKE '%pg_export_snapshot%'") == 1
        large.sql("INSERT INTO large SELECT g, 'new' FROM generate_series(20001, 20100) g")
        copy.go("copy.mid")
        copy.daemon.wait_until(lambda: large.states().get("public.large") == "ready", "the table")
        assert copy.daemon.count_log("copy_range_read_again") == 1
        assert copy.daemon.count_log("table_copied") == 1
        assert copy.daemon.count_log("copy_failed") == 0
    large.once()

    large.assert_settled("public.small", "public.large")


def test_a_copy_whose_snapshot_is_gone_starts_over_and_says_why(large: PipelineUnderTest):
    with held(large, "copy.mid:5=hold,copy.mid:8=hold") as copy:
        copy.wait("copy.mid")
        assert terminate(large) == 2
        large.sql("DELETE FROM large WHERE id <= 100", "UPDATE large SET t = 'new' WHERE id <= 200")
        copy.go("copy.mid")
        copy.wait("copy.mid")
        ((note, ranges, finished),) = large.query(
            "SELECT note, range_count, cardinality(finished_ranges) FROM etl.table_copies"
        )
        assert note.startswith("the slot's snapshot ")
        assert (ranges > 8, finished) == (True, 2)
        assert "the slot's snapshot" in large.etl("tables", "list").out
        copy.go("copy.mid")
        copy.daemon.wait_until(lambda: large.states().get("public.large") == "ready", "the table")
        assert copy.daemon.count_log("table_copied") == 1
        assert copy.daemon.count_log("copy_failed") == 1
    large.once()

    large.assert_settled("public.small", "public.large")


@pytest.mark.parametrize("point", ["copy.after_finish", "copy.before_state_finished"])
def test_a_copy_that_was_whole_when_the_process_was_killed_is_not_made_again(
    pipeline: PipelineUnderTest, point: str
):
    pipeline.settings["tables"] = [{"name": "public.changes", "mode": "changelog"}]
    pipeline.sql(
        "CREATE TABLE changes (id int PRIMARY KEY)",
        "CREATE TABLE items (id int PRIMARY KEY)",
        "INSERT INTO changes SELECT generate_series(1, 3)",
        "INSERT INTO items SELECT generate_series(1, 3)",
    )
    pipeline.publish("changes")
    assert pipeline.once(failpoints=f"{point}=kill", check=False).code < 0
    pipeline.sql("INSERT INTO changes VALUES (4)", f"ALTER PUBLICATION {PUBLICATION} ADD TABLE items")
    mended = pipeline.once()

    assert [line["table"] for line in mended.logged("table_copied")] == ["public.items"]
    rows = pipeline.rows("public.changes", "_etl_op, id")
    assert sorted(rows) == [("copy", 1), ("copy", 2), ("copy", 3), ("insert", 4)]
    pipeline.assert_settled("public.items", changelogs=["public.changes"])
    assert kept(pipeline) == []
    assert pipeline.query("SELECT FROM etl.table_copies") == []


def test_a_table_is_not_copied_anew_while_its_last_copy_still_writes(large: PipelineUnderTest):
    with held(large, "copy.mid:5=hold") as copy:
        copy.wait("copy.mid")
        assert large.etl("tables", "resync", "public.large", "--yes").code == 0
        assert large.states()["public.large"] == "init"
        large.sql("INSERT INTO small VALUES (1)", f"ALTER PUBLICATION {PUBLICATION} DROP TABLE small")
        copy.daemon.wait_for_log("table_left_publication")
        assert large.states()["public.large"] == "init"
        copy.go("copy.mid")
        copy.daemon.wait_until(lambda: large.states().get("public.large") == "ready", "the table")
        assert copy.daemon.count_log("table_copied") == 1
    large.once()

    large.assert_settled("public.large")


# --- tables that are not what they were -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE large", f"ALTER PUBLICATION {PUBLICATION} DROP TABLE large"],
    ids=["dropped", "left"],
)
def test_a_table_that_goes_while_it_is_copied_is_forgotten_and_the_others_flow(
    large: PipelineUnderTest, change: str
):
    with held(large, "copy.mid:5=hold") as copy:
        copy.wait("copy.mid")
        large.sql(change, "INSERT INTO small VALUES (1)")
        copy.daemon.wait_for_log("table_left_publication")
        copy.go("copy.mid")
        end = large.written()
        large.sql("INSERT INTO small VALUES (2)")
        copy.daemon.wait_until(lambda: large.progress() >= end, "the other table")
        assert_ends(large, copy.daemon)
    large.once()

    large.assert_settled("public.small")
    assert kept(large) == []


def test_a_table_that_is_renamed_while_it_is_copied_is_copied_under_its_new_name(large: PipelineUnderTest):
    with held(large, "copy.mid:5=hold") as copy:
        copy.wait("copy.mid")
        large.sql("ALTER TABLE large RENAME TO larger", "INSERT INTO larger VALUES (20001, 'new')")
        copy.go("copy.mid")
        copy.daemon.wait_until(lambda: large.states().get("public.larger") == "ready", "the table")
    large.once()

    large.assert_settled("public.small", "public.larger")


def test_a_table_that_is_dropped_while_its_changes_wait_is_forgotten_with_them(large: PipelineUnderTest):
    large.once()
    assert large.etl("tables", "pause", "public.large").code == 0
    large.sql("DELETE FROM large WHERE id <= 100")
    large.once()
    assert kept(large) != []
    large.sql("DROP TABLE large", "INSERT INTO small VALUES (1)")
    large.once()

    large.assert_settled("public.small")
    assert kept(large) == []


# --- a graceful end -------------------------------------------------------------------------------------------------


@contextmanager
def transaction(pipeline: PipelineUnderTest, *statements: str) -> Iterator[None]:
    with pipeline.database.connect() as connection, connection.transaction(force_rollback=True):
        for statement in statements:
            connection.execute(statement.encode())
        yield


def wait_until_blocked(pipeline: PipelineUnderTest, daemon: Daemon, condition: str) -> None:
    query = f"SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND {condition}"
    daemon.wait_until(lambda: bool(pipeline.query(query)), "the copy to wait")


def assert_ends(pipeline: PipelineUnderTest, daemon: Daemon) -> None:
    assert daemon.terminate() == 0
    # it says so when the end does not come within shutdown_timeout_s
    assert daemon.count_log("shutdown_deadline_passed") == 0
    slots = "SELECT count(*) FROM pg_replication_slots WHERE temporary AND database = current_database()"
    wait_until(lambda: pipeline.query(slots) == [(0,)], "the slot to be gone")


def test_a_slot_that_waits_for_others_to_end_does_not_hold_up_our_end(large: PipelineUnderTest):
    with transaction(large, "INSERT INTO small VALUES (1)"), large.running() as daemon:
        wait_until_blocked(large, daemon, "query LIKE 'CREATE_REPLICATION_SLOT%'")
        assert_ends(large, daemon)
    large.once()

    large.assert_settled("public.small", "public.large")


def test_a_table_that_somebody_locked_does_not_hold_up_our_end(large: PipelineUnderTest):
    with held(large, "copy.after_snapshot:1=hold") as copy:
        copy.wait("copy.after_snapshot")
        with transaction(large, "LOCK TABLE large IN ACCESS EXCLUSIVE MODE"):
            copy.go("copy.after_snapshot")
            wait_until_blocked(large, copy.daemon, COPYING)
            assert_ends(large, copy.daemon)
    large.once()

    large.assert_settled("public.small", "public.large")


def test_a_table_that_cannot_be_read_does_not_cost_the_next_one_its_connection(large: PipelineUnderTest):
    large.sql("CREATE TABLE next (id int PRIMARY KEY)", f"ALTER PUBLICATION {PUBLICATION} ADD TABLE next")
    with held(large, "copy.after_snapshot:1=hold") as copy:
        copy.wait("copy.after_snapshot")
        with transaction(large, "LOCK TABLE large, next IN ACCESS EXCLUSIVE MODE"):
            copy.go("copy.after_snapshot")
            wait_until_blocked(large, copy.daemon, COPYING)
            assert terminate(large, "wait_event_type = 'Lock'") == 1
            wait_until_blocked(large, copy.daemon, COPYING)
        copy.daemon.wait_for_log("table_copied", times=1)
        assert copy.daemon.count_log("copy_failed") == 1
        assert_ends(large, copy.daemon)
    large.once()

    large.assert_settled("public.small", "public.large", "public.next")

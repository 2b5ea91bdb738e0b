"""What goes wrong while a table waits beside the stream costs that table a new copy, and nobody a row."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.pipeline import copy_share
from etl.source.slots import apply_slot_name
from etl.telemetry import failpoints
from etl.testing.daemon import wait_until
from etl.testing.harness import PUBLICATION, PipelineUnderTest
from etl.testing.inprocess import running_here


@pytest.fixture
def paused(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """Two tables that stream, one of which was then paused; both have changed since."""
    for name in "ab":
        pipeline.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY, t text)", f"INSERT INTO {name} VALUES (0, 'x')"
        )
    pipeline.publish("a", "b")
    pipeline.once()
    assert pipeline.etl("tables", "pause", "public.b").code == 0
    change(pipeline, 1)
    pipeline.once()
    assert pipeline.states() == {"public.a": "ready", "public.b": "paused"}
    return pipeline


def change(pipeline: PipelineUnderTest, number: int) -> None:
    pipeline.sql(f"INSERT INTO a VALUES ({number}, 'x')", f"INSERT INTO b VALUES ({number}, 'x')")


def segments(pipeline: PipelineUnderTest) -> list[Path]:
    return sorted((pipeline.directory / "backlog").rglob("*.seg"))


def resume_and_compare(pipeline: PipelineUnderTest) -> None:
    assert pipeline.etl("tables", "resume", "public.b").code == 0
    pipeline.once()
    pipeline.assert_settled("public.a", "public.b")
    assert segments(pipeline) == []


def test_a_damaged_backlog_costs_its_table_a_new_copy_once_it_goes_on(paused: PipelineUnderTest):
    for number in (2, 3):
        change(paused, number)
        paused.once()
    (segment,) = segments(paused)
    content = bytearray(segment.read_bytes())
    content[40] ^= 1
    segment.write_bytes(content)
    run = paused.once()

    assert [line["table"] for line in run.logged("backlog_lost")] == ["public.b"]
    assert paused.states() == {"public.a": "ready", "public.b": "paused"}
    change(paused, 4)
    resume_and_compare(paused)


def test_a_backlog_found_damaged_while_it_is_replayed_costs_its_table_a_new_copy(paused: PipelineUnderTest):
    with running_here(paused):
        wait_until(lambda: len(segments(paused)) == 1, "the backlog")
        paused.sql("INSERT INTO b SELECT g, repeat('x', 1000) FROM generate_series(10, 100) g")
        end = paused.written()
        wait_until(lambda: paused.progress() >= end, "the rows to be kept")
        (segment,) = segments(paused)
        content = bytearray(segment.read_bytes())
        content[40] ^= 1
        segment.write_bytes(content)
        assert paused.etl("tables", "resume", "public.b").code == 0
        wait_until(lambda: paused.states().get("public.b") == "ready", "the new copy")

    paused.assert_settled("public.a", "public.b")


def test_a_paused_table_whose_publication_was_replaced_is_copied_when_it_goes_on(paused: PipelineUnderTest):
    with paused.running() as daemon:
        daemon.wait_for_log("tables_settled")
        paused.transaction(
            f"DROP PUBLICATION {PUBLICATION}", f"CREATE PUBLICATION {PUBLICATION} FOR TABLE a, b"
        )
        assert daemon.wait_for_exit() == 78
    assert segments(paused) == []
    change(paused, 2)
    paused.once()

    assert paused.states() == {"public.a": "ready", "public.b": "paused"}
    resume_and_compare(paused)


def test_a_paused_table_stays_paused_when_the_slot_is_made_anew(paused: PipelineUnderTest):
    paused.settings["invalidated_slot_behavior"] = "recreate"
    paused.sql(f"SELECT pg_drop_replication_slot('{apply_slot_name(1)}')")
    change(paused, 2)
    paused.once()

    assert paused.states() == {"public.a": "ready", "public.b": "paused"}
    resume_and_compare(paused)


def test_a_paused_table_of_which_more_is_shown_stays_paused_and_is_copied_when_it_goes_on(
    paused: PipelineUnderTest,
):
    paused.sql(
        f"ALTER PUBLICATION {PUBLICATION} DROP TABLE b",
        "INSERT INTO b VALUES (2, 'unseen')",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE b",
    )
    paused.once()

    assert paused.states() == {"public.a": "ready", "public.b": "paused"}
    resume_and_compare(paused)


def test_a_copy_that_broke_with_more_than_its_table_is_taken_up_by_the_next_attempt(
    pipeline: PipelineUnderTest,
):
    pipeline.sql("CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a SELECT generate_series(1, 1000)")
    pipeline.publish("a")
    failpoints.configure("copy.mid:1=error")
    with running_here(pipeline):
        wait_until(lambda: pipeline.states().get("public.a") == "ready", "the copy")
    failpoints.configure("")

    pipeline.assert_settled("public.a")


# --- a range larger than planned --------------------------------------------------------------------------------------


@pytest.fixture
def wide(pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch) -> PipelineUnderTest:
    """A table in one range, of which a tenth may be held in memory."""
    monkeypatch.setattr(copy_share, "_HELD_BYTES", 1 << 20)
    pipeline.sql(
        "CREATE TABLE wide (id int PRIMARY KEY, t text)",
        "INSERT INTO wide SELECT g, repeat('x', 2000) FROM generate_series(1, 5000) g",
    )
    pipeline.publish("wide")
    return pipeline


def test_a_range_larger_than_planned_is_written_in_parts(wide: PipelineUnderTest):
    failpoints.configure("copy.mid=sleep(0)")
    with running_here(wide):
        wait_until(lambda: wide.states().get("public.wide") == "ready", "the copy")
    assert failpoints.passes("copy.mid") > 3
    failpoints.configure("")

    wide.assert_settled("public.wide")


def test_a_connection_that_breaks_after_a_part_was_written_doubles_no_row(wide: PipelineUnderTest):
    failpoints.configure("copy.mid:2=hold,copy.mid:12=sleep(0)")
    with running_here(wide):
        assert failpoints.wait_until_held("copy.mid")
        wide.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name LIKE '%table\\_sync:1' AND query NOT LIKE '%pg_export_snapshot%'"
            " AND datname = current_database()"
        )
        failpoints.release("copy.mid")
        wait_until(lambda: wide.states().get("public.wide") == "ready", "the copy")
    failpoints.configure("")

    wide.assert_settled("public.wide")

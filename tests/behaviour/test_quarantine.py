"""A table that fails stops alone: its changes are kept, the slot moves on, and it heals without a new copy."""

from __future__ import annotations

import pytest

from etl.testing.daemon import wait_until
from etl.testing.harness import PipelineUnderTest
from etl.testing.inprocess import running_here

TABLES = ("public.a", "public.b", "public.c")


@pytest.fixture
def three(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    for name in "abc":
        pipeline.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY, t text)", f"INSERT INTO {name} VALUES (0, 'copied')"
        )
    pipeline.publish("a", "b", "c")
    return pipeline


def load(pipeline: PipelineUnderTest, start: int, count: int) -> None:
    for number in range(start, start + count):
        pipeline.transaction(
            *(f"INSERT INTO {name} VALUES ({number}, 'x')" for name in "abc"),
            f"UPDATE b SET t = 'y{number}' WHERE id = {number // 2}",
        )


def wait_states(pipeline: PipelineUnderTest, **states: str) -> None:
    wanted = {f"public.{name}": state for name, state in states.items()}
    wait_until(lambda: pipeline.states() == wanted, f"{wanted}", said=lambda: str(pipeline.states()))


def wait_applied(pipeline: PipelineUnderTest) -> None:
    """Everything until now is durable, or kept, and the slot lets go of it."""
    end = pipeline.written()
    pipeline.move_on()
    wait_until(lambda: pipeline.confirmed() >= end, "the slot to move on")


def test_the_others_and_the_slot_go_on_and_the_table_heals_by_itself(three: PipelineUnderTest):
    with running_here(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        three.sql("ALTER TABLE b ADD COLUMN n int", "UPDATE b SET n = id WHERE id < 5")
        load(three, 21, 20)
        wait_until(lambda: three.states()["public.b"] == "errored", "the failure")
        wait_applied(three)
        wait_until(lambda: "attempt " in three.etl("tables", "list").out, "the time of the next try")
        wait_until(lambda: destination.refused > 2, "retries")
        destination.poisoned = None
        wait_states(three, a="ready", b="ready", c="ready")
        load(three, 41, 5)
        wait_applied(three)

    three.assert_settled(*TABLES)


def test_a_failed_table_goes_on_from_its_backlog_after_a_restart(three: PipelineUnderTest):
    with running_here(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        wait_applied(three)
    load(three, 21, 5)
    run = three.once()

    assert run.logged("table_copied") == []
    three.assert_settled(*TABLES)


def test_a_backlog_that_is_lost_costs_a_new_copy_and_no_row(three: PipelineUnderTest):
    with running_here(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        wait_applied(three)
    for path in sorted((three.directory / "backlog").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run = three.once()

    assert [line["table"] for line in run.logged("backlog_lost")] == ["public.b"]
    three.assert_settled(*TABLES)


def test_a_backlog_beyond_its_bound_is_given_up_for_a_new_copy(three: PipelineUnderTest):
    three.settings["backlog"] = {"max_bytes": 4096}
    with running_here(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 200)
        wait_until(lambda: three.states()["public.b"] == "errored", "the failure")
        destination.poisoned = None
        wait_states(three, a="ready", b="ready", c="ready")
        wait_applied(three)

    three.assert_settled(*TABLES)

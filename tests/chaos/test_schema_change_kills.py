"""kill -9 within schema changes of every plan shape: wherever it happened, the next start finishes the change alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl.testing.harness import PipelineUnderTest
from tests.chaos.shapes import KILLED, SHAPES, TABLES, copy_and_change, finished

pytestmark = pytest.mark.chaos

#: Every place of a schema change but its steps, and how often in a row each change is killed there.
PLACES = {
    "ddl.before_mark_applying": 1,
    "ddl.after_mark_applying": 2,
    "ddl.after_last_step": 1,
    "ddl.after_commit": 2,
    "ddl.after_applied": 1,
}


def kills(pipeline: PipelineUnderTest, failpoint: str, times: int) -> Iterator[int]:
    """Kill each change `times` in a row at the failpoint, until none is left to kill.

    Yields after each kill how many schema changes are finished.
    """
    in_a_row, before = 0, -1
    while True:
        # the first pass belongs to the change that was killed, unless that was finished
        nth = 2 if in_a_row >= times and failpoint != "ddl.after_applied" else 1
        run = pipeline.once(failpoints=f"{failpoint}:{nth}=kill", check=False)
        if run.code == 0:
            return
        assert run.code == KILLED, run.log
        done = finished(pipeline)
        in_a_row = in_a_row + 1 if done == before else 1
        before = done
        yield done


@pytest.fixture
def changed(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline that has all shapes before it."""
    copy_and_change(pipeline)
    return pipeline


def test_a_kill_after_any_step_of_any_schema_change_is_finished_by_the_next_start(
    changed: PipelineUnderTest,
):
    """Step by step: each start gets one step further into the same change, which it finds half done."""
    step, before, killed_in = 1, 0, set()
    while True:
        run = changed.once(failpoints=f"ddl.after_step:{step}=kill", check=False)
        if run.code == 0:
            break
        assert run.code == KILLED, run.log
        done = finished(changed)
        killed_in.add(done)
        step = step + 1 if done == before else 2
        before = done

    assert killed_in == set(range(len(SHAPES)))
    changed.assert_settled(*TABLES)


@pytest.mark.parametrize("place", PLACES)
def test_a_kill_at_any_place_of_any_schema_change_is_finished_by_the_next_start(
    changed: PipelineUnderTest, place: str
):
    killed_at = list(kills(changed, place, PLACES[place]))

    assert len(killed_at) >= len(SHAPES) * PLACES[place]
    changed.assert_settled(*TABLES)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ddl.after_step", "ddl.after_step:2"),
        ("ddl.after_commit", "ddl.before_mark_applying"),
        ("dest.after_commit", "ddl.after_mark_applying"),
    ],
)
def test_a_recovery_that_is_killed_is_recovered_from(changed: PipelineUnderTest, first: str, second: str):
    for failpoint in (first, second):
        run = changed.once(failpoints=f"{failpoint}=kill", check=False)
        assert run.code == KILLED, run.log
    changed.once()

    changed.assert_settled(*TABLES)

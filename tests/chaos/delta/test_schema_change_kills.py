"""kill -9 within schema changes of every plan shape. Delta commits each step by itself: every one of them is a state.

Each start is killed a little further on and so begins by recovering from the kill before it.
"""

from __future__ import annotations

from collections import Counter
from itertools import count

import pytest

from etl.testing.harness import PipelineUnderTest
from tests.chaos.shapes import KILLED, SHAPES, TABLES, copy_and_change, finished

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

#: All there are but `ddl.after_step`, in the order in which a change passes them.
PLACES = (
    "ddl.before_mark_applying",
    "ddl.after_mark_applying",
    "ddl.after_last_step",
    "ddl.after_commit",
    "ddl.after_applied",
)


@pytest.fixture
def changed(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline that has all shapes before it."""
    copy_and_change(pipeline)
    return pipeline


def test_a_kill_after_every_single_step_of_every_schema_change_is_finished_by_the_next_starts(
    changed: PipelineUnderTest,
):
    kills: Counter[int] = Counter()
    while True:
        run = changed.once(failpoints="ddl.after_step=kill", check=False)
        if run.code == 0:
            break
        assert run.code == KILLED, run.log
        kills[finished(changed)] += 1

    assert set(kills) == set(range(len(SHAPES)))
    # rotations go by a name in between, and ten changes at once take ten steps or more
    assert max(kills.values()) >= 10
    assert sum(kills.values()) >= 25
    changed.assert_settled(*TABLES)


def test_a_kill_at_every_place_of_every_schema_change_in_turn_is_finished_by_the_next_starts(
    changed: PipelineUnderTest,
):
    killed_at = []
    for nth in count():
        place = PLACES[nth % len(PLACES)]
        run = changed.once(failpoints=f"{place}=kill", check=False)
        if run.code == 0:
            break
        assert run.code == KILLED, run.log
        killed_at.append((finished(changed), place))

    assert len(set(killed_at)) >= len(SHAPES) * len(PLACES)
    changed.assert_settled(*TABLES)

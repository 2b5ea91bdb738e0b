"""kill -9 within schema changes of every plan shape. Delta commits each step by itself: every one of them is a state.

Each start is killed a little further on and so begins by recovering from the kill before it.
"""

from __future__ import annotations

import signal
from collections import Counter
from itertools import count

import pytest

from etl.testing.harness import PipelineUnderTest
from tests.chaos.test_schema_change_kills import SHAPES, TABLES, finished

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(3600)]

KILLED = -signal.SIGKILL
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
    """All shapes have been copied; then each happened to its table, between rows of the same transaction."""
    for shape in SHAPES:
        pipeline.sql(
            f"CREATE TABLE {shape} (id int PRIMARY KEY, a text, b text, c text DEFAULT 'old')",
            f"INSERT INTO {shape} VALUES (1, 'a1', 'b1', 'c1'), (2, 'a2', 'b2', 'c2')",
        )
    pipeline.publish(*SHAPES)
    pipeline.once()
    for shape, changes in SHAPES.items():
        key = "key" if shape == "ten_mixed" else "id"
        pipeline.transaction(
            f"INSERT INTO {shape} VALUES (3, 'a3', 'b3', 'c3')",
            f"UPDATE {shape} SET a = 'changed' WHERE id = 1",
            *(f"ALTER TABLE {shape} {change}" for change in changes),
            f"INSERT INTO {shape} ({key}) VALUES (4)",
            f"UPDATE {shape} SET {key} = {key}",
        )
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

"""kill -9 within schema changes of every plan shape: wherever it happened, the next start finishes the change alone."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from etl.testing.harness import PipelineUnderTest

pytestmark = pytest.mark.chaos

KILLED = -signal.SIGKILL

#: Plan shape → what happens to a table (id, a, b, c) between two of its rows, in the same transaction.
SHAPES = {
    "add": ["ADD COLUMN d int"],
    "add_default": ["ADD COLUMN d text DEFAULT 'pending'"],
    "drop": ["DROP COLUMN b"],
    "rename": ["RENAME COLUMN b TO z"],
    "swap": ["RENAME COLUMN a TO x", "RENAME COLUMN b TO a", "RENAME COLUMN x TO b"],
    "rotation": [
        "RENAME COLUMN a TO x",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN c TO b",
        "RENAME COLUMN x TO c",
    ],
    "replace": ["DROP COLUMN b", "ADD COLUMN b int"],
    "drop_and_rename_into": ["DROP COLUMN a", "RENAME COLUMN b TO a"],
    "default_set": ["ALTER COLUMN a SET DEFAULT 'new'"],
    "default_drop": ["ALTER COLUMN c DROP DEFAULT"],
    "ten_mixed": [
        "ADD COLUMN d int DEFAULT 1, ADD COLUMN e text",
        "RENAME COLUMN a TO x",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN x TO b",
        "DROP COLUMN c",
        "ADD COLUMN c numeric(10,2)",
        "ALTER COLUMN a SET DEFAULT 'd'",
        "RENAME COLUMN d TO f",
        "ADD COLUMN d boolean",
        "RENAME COLUMN id TO key",
    ],
}
TABLES = [f"public.{shape}" for shape in SHAPES]
#: Every place of a schema change but its steps, and how often in a row each change is killed there.
PLACES = {
    "ddl.before_mark_applying": 1,
    "ddl.after_mark_applying": 2,
    "ddl.after_last_step": 1,
    "ddl.after_commit": 2,
    "ddl.after_applied": 1,
}


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


def finished(pipeline: PipelineUnderTest) -> int:
    """How many tables' schema changes are recorded as applied."""
    rows = pipeline.query(
        "SELECT count(*) FROM etl.destination_tables_metadata"
        " WHERE schema_status = 'applied' AND snapshot_commit_lsn > '0/0'"
    )
    return int(rows[0][0])


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

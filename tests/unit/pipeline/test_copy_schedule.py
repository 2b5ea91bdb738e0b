"""Which part of which table is copied next, and when nobody is at a table any more."""

from __future__ import annotations

from typing import cast

from etl.pipeline.copy_schedule import CopySchedule, PlanTable, ReadShare
from etl.schema.table import ReplicatedTableSchema
from etl.source.copy_plan import CopyRange
from etl.source.publication import PublishedTable

A, B = (PublishedTable(oid, "public", name, False, None, None, 0) for oid, name in ((1, "a"), (2, "b")))
SCHEMA = cast("ReplicatedTableSchema", object())


def ranges(count: int) -> tuple[CopyRange, ...]:
    return tuple(CopyRange(number, 1, "public", "a") for number in range(count))


def take(schedule: CopySchedule) -> PlanTable | ReadShare:
    task = schedule.take()
    assert task is not None
    return task


def test_a_table_that_is_begun_is_finished_before_another_one_is_planned():
    schedule = CopySchedule([A, B], per_table=2)
    first = take(schedule)
    schedule.planned(first.copy, SCHEMA, ranges(2))

    tasks = [take(schedule) for _ in range(3)]
    assert [(type(task), task.copy.table.oid) for task in tasks] == [
        (ReadShare, 1),
        (ReadShare, 1),
        (PlanTable, 2),
    ]


def test_the_last_range_that_was_written_completes_a_table():
    schedule = CopySchedule([A], per_table=2)
    copy = take(schedule).copy
    schedule.planned(copy, SCHEMA, ranges(2))
    take(schedule)
    take(schedule)

    assert [schedule.read(copy, 10), schedule.read(copy, 5)] == [False, True]
    assert copy.rows == 15


def test_a_share_is_of_so_many_ranges_that_stand_side_by_side():
    schedule = CopySchedule([A], per_table=3, share=2)
    schedule.planned(take(schedule).copy, SCHEMA, ranges(5))

    shares = [
        [part.number for part in task.parts]
        for task in (take(schedule) for _ in range(3))
        if isinstance(task, ReadShare)
    ]
    assert shares == [[0, 1], [2, 3], [4]]


def test_a_dropped_table_is_busy_until_the_last_thread_has_left_it():
    schedule = CopySchedule([A], per_table=2)
    copy = take(schedule).copy
    schedule.planned(copy, SCHEMA, ranges(2))
    schedule.leave(copy)
    take(schedule)
    take(schedule)
    schedule.end(copy)
    for busy in (True, True, False):
        assert schedule.is_busy(1) is busy
        schedule.leave(copy)


def test_a_table_that_was_dropped_before_it_was_planned_is_nobodys_task():
    schedule = CopySchedule([A, B], per_table=1)
    for copy in schedule.unfinished():
        if copy.table is A:
            schedule.end(copy)

    assert take(schedule).copy.table is B


def test_nothing_is_handed_out_once_the_round_is_stopped():
    schedule = CopySchedule([A, B], per_table=1)
    schedule.stop()

    assert schedule.take() is None

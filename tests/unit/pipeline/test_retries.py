"""When tables are tried again."""

from __future__ import annotations

from etl.config.models import RetryConfig
from etl.pipeline.retries import Retries

A, B = 1, 2


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def retries() -> tuple[Retries, Clock]:
    clock = Clock()
    return Retries(RetryConfig(initial_delay_ms=1000, max_delay_ms=60_000), clock), clock


def test_each_attempt_waits_about_twice_as_long_up_to_a_bound():
    scheduled, _ = retries()

    for attempts, expected in ((1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (1000, 60)):
        assert 0.75 * expected <= scheduled.schedule(A, attempts) <= 1.25 * expected


def test_a_retry_is_early_until_its_time_has_come_and_then_due():
    scheduled, clock = retries()
    clock.now = scheduled.schedule(A, 1) - 0.01
    assert (scheduled.is_early(A), scheduled.is_due(A)) == (True, False)
    clock.now += 0.02
    assert (scheduled.is_early(A), scheduled.is_due(A)) == (False, True)
    scheduled.cancel(A)
    assert (scheduled.is_early(A), scheduled.is_due(A)) == (False, False)


def test_a_table_without_a_schedule_is_neither_early_nor_due():
    scheduled, _ = retries()
    scheduled.schedule(A, 1)

    assert (scheduled.is_early(B), scheduled.is_due(B)) == (False, False)


def test_failed_copies_are_counted_until_one_is_completed():
    scheduled, _ = retries()

    assert [scheduled.copy_failed(A) for _ in range(3)] == [1, 2, 3]
    scheduled.copied(A)
    assert scheduled.copy_failed(A) == 1

"""A position is as far behind as the oldest end of the WAL that it has not reached."""

from __future__ import annotations

from etl.lsn import Lsn
from etl.pipeline.lag import KEPT_NOTES, LagClock


def clock(*notes: tuple[int, float]) -> LagClock:
    made = LagClock()
    for end, at in notes:
        made.note(Lsn(end), at)
    return made


def test_nothing_is_behind_before_the_first_look():
    assert (LagClock().seconds(Lsn(0), 5.0), LagClock().behind(Lsn(0))) == (0.0, 0)


def test_a_position_at_the_end_is_not_behind_however_long_it_stands_there():
    assert clock((100, 1.0)).seconds(Lsn(100), 3600.0) == 0.0


def test_the_oldest_wal_not_reached_says_how_late_it_is():
    made = clock((100, 1.0), (200, 2.0), (300, 9.0))

    assert [made.seconds(Lsn(at), 10.0) for at in (50, 100, 150, 250, 300)] == [9.0, 8.0, 8.0, 1.0, 0.0]
    assert made.behind(Lsn(250)) == 50


def test_wal_that_does_not_grow_is_no_news():
    assert clock((100, 1.0), (100, 5.0)).seconds(Lsn(50), 6.0) == 5.0


def test_a_position_beyond_the_last_look_is_not_behind():
    assert (clock((100, 1.0)).seconds(Lsn(150), 2.0), clock((100, 1.0)).behind(Lsn(150))) == (0.0, 0)


def test_what_all_stages_have_reached_is_forgotten():
    made = clock((100, 1.0), (200, 2.0))
    made.reached(Lsn(100))

    assert made.seconds(Lsn(0), 10.0) == 8.0


def test_notes_are_bounded_and_a_long_lag_is_still_told():
    made = clock(*((number, float(number)) for number in range(1, 10 * KEPT_NOTES)))

    assert len(made._notes) <= KEPT_NOTES
    told = made.seconds(Lsn(0), 10.0 * KEPT_NOTES)
    assert 0.9 * 10 * KEPT_NOTES < told <= 10 * KEPT_NOTES

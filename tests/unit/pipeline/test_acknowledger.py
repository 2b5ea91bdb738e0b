"""What Postgres may be told: only what is durable and recorded, never back, never beyond a hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import StoreUnavailableError
from etl.lsn import Lsn
from etl.pipeline.acknowledger import IDLE_STEP_BYTES, Acknowledger

START = Lsn(1000)


class Record:
    """What was saved, in order; `fails` makes the next save fail."""

    def __init__(self) -> None:
        self.saved: list[Lsn] = []
        self.fails = False

    def __call__(self, lsn: Lsn) -> None:
        if self.fails:
            raise StoreUnavailableError("away", hint="wait")
        self.saved.append(lsn)


@pytest.fixture
def record() -> Record:
    return Record()


@pytest.fixture
def acknowledger(record: Record) -> Acknowledger:
    return Acknowledger(START, record)


def test_it_begins_where_the_last_run_ended(acknowledger: Acknowledger, record: Record):
    assert acknowledger.flushed == acknowledger.received == START
    assert record.saved == []


def test_a_durable_position_is_recorded_before_it_is_told(acknowledger: Acknowledger, record: Record):
    acknowledger.durable(Lsn(2000))

    assert record.saved == [2000]
    assert acknowledger.flushed == 2000


def test_a_position_that_cannot_be_recorded_is_not_told(acknowledger: Acknowledger, record: Record):
    record.fails = True
    with pytest.raises(StoreUnavailableError):
        acknowledger.durable(Lsn(2000))
    assert acknowledger.flushed == START

    record.fails = False
    acknowledger.durable(Lsn(2000))
    assert acknowledger.flushed == 2000


def test_it_never_goes_back(acknowledger: Acknowledger, record: Record):
    acknowledger.durable(Lsn(2000))
    acknowledger.durable(Lsn(1500))
    acknowledger.idle(Lsn(1500), force=True)

    assert record.saved == [2000]
    assert acknowledger.flushed == 2000


@pytest.mark.parametrize(
    ("step", "force", "moves"),
    [(IDLE_STEP_BYTES - 1, False, False), (IDLE_STEP_BYTES, False, True), (1, True, True), (0, True, False)],
)
def test_an_idle_position_is_recorded_when_it_frees_enough_or_at_the_end(
    acknowledger: Acknowledger, record: Record, step: int, force: bool, moves: bool
):
    acknowledger.idle(Lsn(START + step), force=force)

    assert (record.saved == [START + step]) is moves


def test_what_was_received_is_told_as_written_and_never_below_what_is_flushed(acknowledger: Acknowledger):
    acknowledger.receive(Lsn(5000))
    assert (acknowledger.received, acknowledger.flushed) == (5000, START)

    acknowledger.receive(Lsn(4000))
    acknowledger.durable(Lsn(6000))
    assert (acknowledger.received, acknowledger.flushed) == (6000, 6000)


moves = st.lists(
    st.tuples(st.sampled_from(["durable", "idle", "receive"]), st.integers(0, 1 << 20)), max_size=30
)


@given(moves)
def test_whatever_happens_it_grows_and_tells_only_what_is_recorded(
    steps: list[tuple[str, int]],
):
    record = Record()
    acknowledger = Acknowledger(START, record)
    for name, lsn in steps:
        before = acknowledger.flushed
        getattr(acknowledger, name)(Lsn(lsn))
        assert acknowledger.flushed >= before
        assert acknowledger.flushed == (record.saved[-1] if record.saved else START)
        assert acknowledger.received >= acknowledger.flushed
    assert record.saved == sorted(set(record.saved))

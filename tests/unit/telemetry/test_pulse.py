"""A loop that waits for something outside of us is told from one that is stuck in our own code."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from etl.errors import SourceUnavailableError
from etl.lsn import Lsn, SnapshotId
from etl.telemetry.pulse import (
    KEPT_OUTCOMES,
    Awaited,
    Loop,
    LoopState,
    Positions,
    Pulse,
    RunPhase,
    SchemaOutcome,
    waiting,
)

NOW = datetime(2030, 1, 2, tzinfo=UTC)
AWAY = SourceUnavailableError("the source is away", hint="wait")


@pytest.fixture
def pulse() -> Pulse:
    return Pulse(lambda: NOW)


def loops(pulse: Pulse) -> dict[Loop, LoopState]:
    return {state.loop: state for state in pulse.state().loops}


def test_a_loop_is_shown_while_it_runs(pulse: Pulse):
    with pulse.loop(Loop.MAIN):
        with pulse.loop(Loop.APPLY):
            assert set(loops(pulse)) == {Loop.MAIN, Loop.APPLY}
        assert set(loops(pulse)) == {Loop.MAIN}
    assert loops(pulse) == {}


def test_what_a_thread_waits_for_all_its_loops_wait_for(pulse: Pulse):
    with pulse.loop(Loop.MAIN), pulse.loop(Loop.APPLY), waiting(Awaited.DESTINATION):
        assert {state.waiting_for for state in loops(pulse).values()} == {Awaited.DESTINATION}


def test_the_outermost_wait_is_the_one_that_is_told(pulse: Pulse):
    with pulse.loop(Loop.MAIN):
        with waiting(Awaited.DESTINATION):
            with waiting(Awaited.STORE):
                pass
            assert loops(pulse)[Loop.MAIN].waiting_for is Awaited.DESTINATION
        assert loops(pulse)[Loop.MAIN].waiting_for is None


def test_who_comes_back_from_a_long_wait_is_not_quiet(pulse: Pulse, monkeypatch: pytest.MonkeyPatch):
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    with pulse.loop(Loop.MAIN):
        with waiting(Awaited.DESTINATION):
            now = 600.0
            assert loops(pulse)[Loop.MAIN].waiting_s == 600
        assert loops(pulse)[Loop.MAIN].quiet_s == 0
        now = 700.0
        assert loops(pulse)[Loop.MAIN].quiet_s == 100
        pulse.beat(Loop.MAIN)
        assert loops(pulse)[Loop.MAIN].quiet_s == 0


def test_a_thread_that_is_no_loop_waits_unseen(pulse: Pulse):
    def copy() -> None:
        with waiting(Awaited.SOURCE):
            seen.append(loops(pulse)[Loop.MAIN].waiting_for)

    seen: list[Awaited | None] = []
    with pulse.loop(Loop.MAIN):
        thread = threading.Thread(target=copy)
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_fault_counts_its_attempts_until_the_pipeline_streams(pulse: Pulse):
    pulse.failed(AWAY)
    pulse.failed(AWAY)
    fault = pulse.state().fault
    assert fault is not None
    assert (fault.kind, fault.message, fault.hint, fault.attempts) == (
        "source_unavailable",
        "the source is away",
        "wait",
        2,
    )
    assert pulse.state().phase is RunPhase.RETRYING

    pulse.enter(RunPhase.STREAMING)
    assert (pulse.state().phase, pulse.state().fault) == (RunPhase.STREAMING, None)


def test_what_is_told_of_tables_adds_up_until_they_are_forgotten(pulse: Pulse):
    pulse.wrote({1: 5, 2: 0})
    pulse.wrote({1: 2})
    pulse.copy_planned(1, 100)
    pulse.copy_planned(2, -1)
    pulse.keeps({3: 70})
    state = pulse.state()
    assert (state.rows, state.changed_at) == ({1: 7}, {1: NOW})
    assert (state.estimates, state.backlogs) == ({1: 100}, {3: 70})

    pulse.forget(1)
    assert (pulse.state().rows, pulse.state().estimates) == ({}, {})
    assert state.rows == {1: 7}, "a state that was given away changes no more"


def test_generations_grow_with_what_changed(pulse: Pulse):
    pulse.tables_changed()
    pulse.schema_outcome(SchemaOutcome(1, SnapshotId.COPY, NOW))
    pulse.moved(Positions(Lsn(5), Lsn(4), Lsn(3)))
    pulse.committed(1_000_000)

    state = pulse.state()
    assert (state.generation, state.schemas) == (2, 1)
    assert state.positions.applied == 4
    assert state.last_commit_at == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_outcomes_are_kept_up_to_a_limit(pulse: Pulse):
    for number in range(KEPT_OUTCOMES + 3):
        pulse.schema_outcome(SchemaOutcome(number, SnapshotId.COPY, NOW))

    assert [outcome.oid for outcome in pulse.state().outcomes][:1] == [3]

"""Alive and ready, as rules over what was observed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.http.health import STUCK_AFTER_S, Check, Verdict, is_alive, is_ready, readiness
from etl.pipeline.observation import Observation
from etl.telemetry.pulse import Awaited, Loop, LoopState, RunPhase
from tests.unit.http.observations import FAULT, RUNNING, SLOT, pulse, seen, table

DAY_S = 86_400.0


def check(observation: Observation, name: str) -> Check:
    return next(check for check in readiness(observation) if check.name == name)


def with_loop(state: LoopState) -> tuple[LoopState, ...]:
    return tuple(state if loop.loop is state.loop else loop for loop in RUNNING)


# --- alive --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("awaited", list(Awaited))
@pytest.mark.parametrize("loop", list(Loop))
def test_what_waits_for_something_outside_is_alive_however_long_that_takes(loop: Loop, awaited: Awaited):
    waits = LoopState(loop, DAY_S, awaited, DAY_S)

    assert is_alive(pulse(loops=with_loop(waits)))


@pytest.mark.parametrize("loop", list(Loop))
@pytest.mark.parametrize(("quiet_s", "alive"), [(STUCK_AFTER_S, True), (STUCK_AFTER_S + 0.1, False)])
def test_a_loop_of_ours_that_does_not_come_round_is_stuck(loop: Loop, quiet_s: float, alive: bool):
    state = pulse(loops=with_loop(LoopState(loop, quiet_s)))

    assert is_alive(state) is alive
    assert is_ready(readiness(seen(pulse=state))) is alive


@pytest.mark.parametrize("phase", list(RunPhase))
def test_no_phase_of_the_pipeline_is_death(phase: RunPhase):
    assert is_alive(pulse(phase=phase, fault=FAULT, loops=()))


def test_a_source_that_is_lost_is_no_death():
    lost = seen(slot=replace(SLOT, wal_status="lost"), pulse=pulse(phase=RunPhase.RETRYING, fault=FAULT))

    assert is_alive(lost.pulse)
    assert not is_ready(readiness(lost))


# --- ready --------------------------------------------------------------------------------------------------------


def test_a_pipeline_that_streams_is_ready():
    checks = readiness(seen(table("public.a")))

    assert [(check.name, check.verdict) for check in checks] == [
        ("pipeline", Verdict.PASS),
        ("loops", Verdict.PASS),
        ("slot", Verdict.PASS),
        ("tables", Verdict.PASS),
        ("status", Verdict.PASS),
    ]
    assert is_ready(checks)


@pytest.mark.parametrize("phase", [RunPhase.STARTING, RunPhase.RETRYING, RunPhase.STOPPING])
def test_what_does_not_stream_is_not_ready_and_says_what_it_does_instead(phase: RunPhase):
    found = check(seen(pulse=pulse(phase=phase)), "pipeline")

    assert (found.verdict, phase.value in found.reason) == (Verdict.FAIL, True)


def test_while_it_retries_it_says_why_and_what_to_do():
    found = check(seen(pulse=pulse(phase=RunPhase.RETRYING, fault=FAULT)), "pipeline")

    assert found.reason == "attempt 3 failed (source_unavailable): no connection to db:5432"
    assert found.hint == "is it running?"


def test_it_is_ready_before_anything_was_read_as_soon_as_it_streams():
    early = seen(report=None, lag=None)

    assert is_ready(readiness(early))
    assert check(early, "status").verdict is Verdict.WARN


@pytest.mark.parametrize(
    ("slot", "verdict"),
    [
        (SLOT, Verdict.PASS),
        (replace(SLOT, wal_status="extended"), Verdict.PASS),
        (replace(SLOT, wal_status="unreserved"), Verdict.WARN),
        (replace(SLOT, active=False), Verdict.WARN),
        (replace(SLOT, wal_status="lost"), Verdict.FAIL),
        (replace(SLOT, exists=False), Verdict.FAIL),
    ],
    ids=["reserved", "extended", "unreserved", "not read", "lost", "missing"],
)
def test_the_slot_decides_by_what_the_server_says_of_it(slot: object, verdict: Verdict):
    assert check(seen(slot=slot), "slot").verdict is verdict


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        ("init", Verdict.PASS),
        ("data_sync", Verdict.PASS),
        ("catchup", Verdict.PASS),
        ("ready", Verdict.PASS),
        ("paused", Verdict.WARN),
        ("errored", Verdict.WARN),
        (None, Verdict.PASS),
    ],
)
def test_one_tables_state_is_at_most_a_warning(state: str | None, verdict: Verdict):
    observation = seen(table("public.a"), table("public.b", state, oid=2))

    assert check(observation, "tables").verdict is verdict
    assert is_ready(readiness(observation))


def test_of_many_failed_tables_some_are_named():
    failed = check(seen(*(table(f"public.t{n}", "errored", oid=n) for n in range(14))), "tables")

    assert "public.t9 and 4 more" in failed.reason


def test_a_slow_destination_is_ready_and_told():
    waits = LoopState(Loop.APPLY, 95.0, Awaited.DESTINATION, 95.0)

    assert check(seen(pulse=pulse(loops=with_loop(waits))), "loops") == Check(
        "loops", Verdict.PASS, "apply waits for the destination since 1 min 35 s"
    )


def test_a_status_that_cannot_be_read_is_a_warning():
    found = check(seen(table("public.a"), trouble="no connection to db:5432"), "status")

    assert (found.verdict, "no connection" in found.reason) == (Verdict.WARN, True)

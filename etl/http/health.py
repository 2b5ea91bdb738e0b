"""Is the process alive, and does it do its work: rules over what was observed, without clocks and without I/O.

*Alive* asks one thing: do our own loops come round? What they wait for outside of us may take as long as it takes, for a
process that is started again waits for it again; so a database that is down or a destination that is slow is no reason to
kill us. *Ready* asks whether changes flow, and says why not. A table that failed or is paused is a warning: the others go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from etl.config.figures import human_seconds
from etl.config.reports import SlotStatus, TablePhase, TableStatus
from etl.pipeline.observation import Observation
from etl.telemetry.pulse import LoopState, PulseState, RunPhase
from etl.telemetry.redaction import redact

#: A loop that has not come round for so long, and waits for nothing outside of us, is stuck.
STUCK_AFTER_S = 60.0
_NAMED = 10


class Verdict(StrEnum):
    """What one check found; a warning needs a person's eye and stops nothing."""

    PASS = "pass"  # noqa: S105 -- no password
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: what it found and, unless it passed, what to do."""

    name: str
    verdict: Verdict
    reason: str
    hint: str = ""


def is_stuck(loop: LoopState) -> bool:
    """True when the loop should have come round and has not."""
    return loop.waiting_for is None and loop.quiet_s > STUCK_AFTER_S


def is_alive(pulse: PulseState) -> bool:
    """False when a loop is stuck: only a new process helps."""
    return not any(map(is_stuck, pulse.loops))


def is_ready(checks: Sequence[Check]) -> bool:
    """True when nothing failed."""
    return all(check.verdict is not Verdict.FAIL for check in checks)


def readiness(seen: Observation) -> tuple[Check, ...]:
    """Every check, in the order in which people want to know."""
    found = (_pipeline(seen.pulse), _loops(seen.pulse))
    if seen.report is None:
        return (*found, _status(seen))
    return (*found, _slot(seen.report.slot, seen.pulse), _tables(seen.tables), _status(seen))


def _pipeline(pulse: PulseState) -> Check:
    fault = pulse.fault
    match pulse.phase:
        case RunPhase.STREAMING:
            return Check("pipeline", Verdict.PASS, "it streams")
        case RunPhase.RETRYING if fault is not None:
            reason = f"attempt {fault.attempts} failed ({fault.kind}): {redact(fault.message)}"
            return Check("pipeline", Verdict.FAIL, reason, redact(fault.hint))
        case phase:
            return Check("pipeline", Verdict.FAIL, f"it is {phase.value}")


def _loops(pulse: PulseState) -> Check:
    stuck = [loop for loop in pulse.loops if is_stuck(loop)]
    if stuck:
        reason = ", ".join(f"{loop.loop.value} for {human_seconds(loop.quiet_s)}" for loop in stuck)
        return Check("loops", Verdict.FAIL, f"stuck: {reason}", "start the process again, and report this")
    waits = [
        f"{loop.loop.value} waits for the {loop.waiting_for.value} since {human_seconds(loop.waiting_s)}"
        for loop in pulse.loops
        if loop.waiting_for is not None and loop.waiting_s >= 1
    ]
    return Check("loops", Verdict.PASS, "; ".join(waits) or "all come round")


def _slot(slot: SlotStatus, pulse: PulseState) -> Check:
    if not slot.exists:
        return Check("slot", Verdict.FAIL, f"{slot.name} does not exist", "see docs/how-to/keep-the-slot.md")
    match slot.wal_status:
        case "lost":
            hint = "changes are missing: see docs/how-to/keep-the-slot.md"
            return Check("slot", Verdict.FAIL, f"the server has invalidated {slot.name}", hint)
        case "unreserved":
            hint = "raise max_slot_wal_keep_size now, and see what the stream waits for"
            return Check("slot", Verdict.WARN, "the server is about to remove WAL that is needed", hint)
    if not slot.active and pulse.phase is RunPhase.STREAMING:
        return Check("slot", Verdict.WARN, f"nobody reads {slot.name}")
    return Check("slot", Verdict.PASS, slot.wal_status or "there")


def _tables(tables: Sequence[TableStatus]) -> Check:
    by_phase = {
        phase: [table.name for table in tables if table.phase is phase]
        for phase in (TablePhase.ERROR, TablePhase.PAUSED, TablePhase.COPYING, TablePhase.CATCHING_UP)
    }
    told = "; ".join(f"{phase.value}: {_some(names)}" for phase, names in by_phase.items() if names)
    if by_phase[TablePhase.ERROR]:
        return Check("tables", Verdict.WARN, told, "`etl tables list` says why, and `etl tables retry` helps")
    if by_phase[TablePhase.PAUSED]:
        return Check("tables", Verdict.WARN, told, "`etl tables resume` goes on with them")
    return Check("tables", Verdict.PASS, told or "all stream")


def _status(seen: Observation) -> Check:
    if seen.trouble:
        return Check("status", Verdict.WARN, f"slot and tables could not be read: {redact(seen.trouble)}")
    if seen.report is None:
        return Check("status", Verdict.WARN, "slot and tables were not read yet")
    return Check("status", Verdict.PASS, "slot and tables are known")


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more

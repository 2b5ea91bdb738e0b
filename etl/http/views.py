"""What the pages show, in the order in which people need it; the templates only lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import quote

from etl.config.figures import human_bytes, human_count, human_seconds, human_time, printable
from etl.config.phases import phase_of, reason_of
from etl.config.reports import TablePhase, TableStatus
from etl.http.health import Check, Verdict, is_ready, readiness
from etl.http.sparkline import sparkline
from etl.lsn import SnapshotId
from etl.pipeline.observation import Observation, SchemaStep
from etl.pipeline.schema_history import COPY
from etl.schema.diff import Modification
from etl.telemetry.pulse import RunPhase
from etl.telemetry.redaction import redact

#: Worst first: what needs a person stands on top.
_ORDER = (
    TablePhase.ERROR,
    TablePhase.PAUSED,
    TablePhase.COPYING,
    TablePhase.CATCHING_UP,
    TablePhase.QUEUED,
    TablePhase.STREAMING,
    TablePhase.LEFT,
)
_TONES = {
    TablePhase.ERROR: "bad",
    TablePhase.PAUSED: "warn",
    TablePhase.COPYING: "busy",
    TablePhase.CATCHING_UP: "busy",
    TablePhase.QUEUED: "busy",
    TablePhase.STREAMING: "good",
    TablePhase.LEFT: "idle",
}
_PHASE_TONES = {
    RunPhase.STARTING: "busy",
    RunPhase.STREAMING: "good",
    RunPhase.RETRYING: "bad",
    RunPhase.STOPPING: "warn",
}
_VERDICT_TONES = {Verdict.PASS: "good", Verdict.WARN: "warn", Verdict.FAIL: "bad"}
#: From here on a lag is worth a look, and then worth being woken for.
_LAG_WARN_S, _LAG_BAD_S = 60.0, 600.0
#: Where the destination stands with a version, and its tone.
_STATUS = {"applied": ("current", "good"), "passed": ("earlier", "idle"), "failed": ("failed", "bad")}
_UNINTERPRETED = frozenset({Modification.NULLABILITY, Modification.TYPE, Modification.KEY})


@dataclass(frozen=True, slots=True)
class Figure:
    """A number with its name; `tone` is good, warn, bad, busy or idle, `note` a line below."""

    name: str
    value: str
    note: str = ""
    tone: str = "idle"
    line: str = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that needs a person: what, why, and the way out. `link` leads to more."""

    title: str
    reason: str
    hint: str
    tone: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A table in the list. `copied` and `of` are ranges of a copy under way, None when there is none."""

    oid: int
    name: str
    link: str
    phase: str
    tone: str
    lag: str
    rate: str
    line: str
    rows: str
    change: str
    change_at: str
    copied: int | None = None
    of: int | None = None


@dataclass(frozen=True, slots=True)
class ChangeLine:
    """One change of a version and what became of it."""

    text: str
    outcome: str
    tone: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Version:
    """One schema version on a table's page."""

    key: str
    lsn: str
    at: str
    status: str
    tone: str
    changes: tuple[ChangeLine, ...]
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """The first page."""

    name: str
    phase: str
    tone: str
    ready: bool
    figures: tuple[Figure, ...]
    problems: tuple[Problem, ...]
    rows: tuple[TableRow, ...]
    facts: tuple[tuple[str, str], ...]
    said: str


@dataclass(frozen=True, slots=True)
class TablePage:
    """A table's page. `facts` are pairs of a name and a value."""

    name: str
    pipeline: str
    phase: str
    tone: str
    problem: Problem | None
    figures: tuple[Figure, ...]
    facts: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    versions: tuple[Version, ...]
    said: str


def table_link(name: str) -> str:
    """The address of a table's page, whatever its name holds."""
    return f"/tables/{quote(name, safe='')}"


def overview(seen: Observation, now: datetime) -> Overview:
    """The pipeline at a glance."""
    pulse, checks = seen.pulse, readiness(seen)
    rows = tuple(_row(seen, table, now) for table in _sorted(seen.tables))
    return Overview(
        name=printable(seen.report.name if seen.report else "etl"),
        phase=pulse.phase.value,
        tone=_PHASE_TONES[pulse.phase],
        ready=is_ready(checks),
        figures=(_lag(seen), _slot(seen), _tables(seen), _rate(seen), _last_commit(seen, now)),
        problems=(
            *_check_problems(checks),
            *(_problem(table) for table in seen.tables if _is_problem(table)),
        ),
        rows=rows,
        facts=_pipeline_facts(seen, now),
        said=f"pipeline {pulse.phase.value}, {_tables(seen).value} tables",
    )


def table_page(seen: Observation, table: TableStatus, now: datetime) -> TablePage:
    """One table."""
    history = seen.history_of(table.oid)
    versions = tuple(_version(step) for step in history[::-1])
    explained = _is_problem(table) or table.phase is TablePhase.LEFT
    return TablePage(
        name=printable(table.name),
        pipeline=printable(seen.report.name if seen.report else "etl"),
        phase=printable(phase_of(table)),
        tone=_TONES[table.phase],
        problem=replace(_problem(table), link="") if explained else None,
        figures=_table_figures(seen, table, now),
        facts=_table_facts(table),
        columns=tuple(map(printable, history[-1].columns)) if history else (),
        versions=versions,
        said=f"table {table.phase.value}, {len(versions)} schema versions",
    )


# --- figures ------------------------------------------------------------------------------------------------------


def _lag(seen: Observation) -> Figure:
    if seen.lag is None:
        return Figure("Lag", "unknown", "no position yet")
    lag = seen.lag
    tone = "bad" if lag.durable_s >= _LAG_BAD_S else "warn" if lag.durable_s >= _LAG_WARN_S else "good"
    return Figure("Lag", human_seconds(lag.durable_s), f"{human_bytes(lag.durable_bytes)} of WAL", tone)


def _slot(seen: Observation) -> Figure:
    slot = seen.report.slot if seen.report else None
    if slot is None or not slot.exists:
        return Figure("WAL kept by the slot", "no slot", tone="bad" if slot else "idle")
    tone = {"reserved": "good", "extended": "warn"}.get(slot.wal_status or "", "bad")
    return Figure("WAL kept by the slot", human_bytes(slot.retained_bytes), slot.wal_status or "", tone)


def _tables(seen: Observation) -> Figure:
    ours = [table for table in seen.tables if table.phase is not TablePhase.LEFT]
    streaming = sum(table.phase is TablePhase.STREAMING for table in ours)
    others = [
        f"{count} {phase.value}"
        for phase in _ORDER
        if phase not in {TablePhase.STREAMING, TablePhase.LEFT}
        and (count := sum(table.phase is phase for table in ours))
    ]
    worst = min((_ORDER.index(table.phase) for table in ours), default=len(_ORDER) - 2)
    note = ", ".join(others) or "all stream"
    return Figure(
        "Tables streaming", f"{streaming} of {len(ours)}", note if ours else "", _TONES[_ORDER[worst]]
    )


def _rate(seen: Observation) -> Figure:
    total = sum(seen.pulse.rows.values())
    return Figure(
        "Rows per second",
        _per_second(seen.total_rates),
        f"{human_count(total)} in all",
        line=sparkline(seen.total_rates),
    )


def _last_commit(seen: Observation, now: datetime) -> Figure:
    return Figure(
        "Last commit applied", _ago(seen.pulse.last_commit_at, now), human_time(seen.pulse.last_commit_at)
    )


def _table_figures(seen: Observation, table: TableStatus, now: datetime) -> tuple[Figure, ...]:
    pulse, oid = seen.pulse, table.oid
    figures = [
        Figure("Lag", _table_lag(seen, table), tone=_TONES[table.phase]),
        Figure(
            "Rows per second",
            _per_second(seen.rates_of(oid)),
            f"{human_count(pulse.rows.get(oid, 0))} in all",
            line=sparkline(seen.rates_of(oid)),
        ),
        Figure("Last change", _ago(pulse.changed_at.get(oid), now), human_time(pulse.changed_at.get(oid))),
    ]
    if table.copy is not None:
        expected = pulse.estimates.get(oid)
        note = f"of about {human_count(expected)}" if expected else ""
        figures.insert(0, Figure("Rows copied", human_count(table.copy.rows), note, "busy"))
    return tuple(figures)


def _per_second(rates: Sequence[float]) -> str:
    return human_count(round(rates[-1])) if rates else "0"


def _ago(moment: datetime | None, now: datetime) -> str:
    return "none yet" if moment is None else f"{human_seconds(max((now - moment).total_seconds(), 0.0))} ago"


# --- problems -----------------------------------------------------------------------------------------------------


def _check_problems(checks: Sequence[Check]) -> list[Problem]:
    return [
        Problem(check.name, printable(check.reason), printable(check.hint), _VERDICT_TONES[check.verdict])
        for check in checks
        # each table in error has a line of its own
        if check.verdict is not Verdict.PASS and check.name != "tables"
    ]


def _is_problem(table: TableStatus) -> bool:
    noted = table.copy is not None and bool(table.copy.note)
    return table.phase in {TablePhase.ERROR, TablePhase.PAUSED} or noted


def _problem(table: TableStatus) -> Problem:
    return Problem(
        printable(table.name),
        printable(redact(reason_of(table))) or table.phase.value,
        printable(redact(table.solution or "")),
        _TONES[table.phase],
        table_link(table.name),
    )


# --- tables -------------------------------------------------------------------------------------------------------


def _sorted(tables: Sequence[TableStatus]) -> list[TableStatus]:
    return sorted(tables, key=lambda table: (_ORDER.index(table.phase), table.name, table.oid))


def _row(seen: Observation, table: TableStatus, now: datetime) -> TableRow:
    rates = seen.rates_of(table.oid)
    change, at = _last_change(seen.history_of(table.oid), now)
    return TableRow(
        oid=table.oid,
        name=printable(table.name),
        link=table_link(table.name),
        phase=printable(phase_of(table)),
        tone=_TONES[table.phase],
        lag=_table_lag(seen, table),
        rate=_per_second(rates),
        line=sparkline(rates),
        rows=human_count(seen.pulse.rows.get(table.oid, 0)),
        change=change,
        change_at=at,
        copied=table.copy.finished if table.copy else None,
        of=table.copy.ranges if table.copy else None,
    )


def _table_lag(seen: Observation, table: TableStatus) -> str:
    """What streams is as far as the stream; what does not has changes that wait on disk."""
    if table.phase is TablePhase.STREAMING:
        return human_seconds(seen.lag.durable_s) if seen.lag is not None else ""
    waiting = seen.pulse.backlogs.get(table.oid)
    return "" if waiting is None else f"{human_bytes(waiting)} wait"


def _last_change(history: Sequence[SchemaStep], now: datetime) -> tuple[str, str]:
    """The newest schema change that was no copy, and when or where it was."""
    changed = [step for step in history if step.changes and step.changes[0].kind != COPY]
    if not changed:
        return "", ""
    step = changed[-1]
    at = _ago(step.outcome.at, now) if step.outcome else str(step.snapshot_id.commit_lsn)
    return printable(", ".join(change.public for change in step.changes)), at


def _pipeline_facts(seen: Observation, now: datetime) -> tuple[tuple[str, str], ...]:
    pulse, positions = seen.pulse, seen.pulse.positions
    loops = ", ".join(
        f"{loop.loop.value} waits for the {loop.waiting_for.value} ({human_seconds(loop.waiting_s)})"
        for loop in pulse.loops
        if loop.waiting_for is not None and loop.waiting_s >= 1
    )
    facts = [
        ("running for", human_seconds((now - pulse.started_at).total_seconds())),
        ("durable up to", str(positions.applied) if positions.applied else "nothing yet"),
        ("told to the server", str(positions.flushed) if positions.flushed else "nothing yet"),
    ]
    if seen.report is not None:
        facts += [("slot", seen.report.slot.name), ("run by", seen.report.holder or "nobody")]
    if loops:
        facts.append(("right now", loops))
    return tuple((name, printable(value)) for name, value in facts)


def _table_facts(table: TableStatus) -> tuple[tuple[str, str], ...]:
    facts = (
        ("mode", table.mode),
        ("at the destination", table.destination_table or ""),
        ("in this state since", human_time(table.since)),
        ("copy", f"{table.copy.finished} of {table.copy.ranges} ranges" if table.copy else ""),
        ("oid", str(table.oid)),
    )
    return tuple((name, printable(value)) for name, value in facts if value)


# --- schema versions ----------------------------------------------------------------------------------------------


def _version(step: SchemaStep) -> Version:
    outcome = step.outcome
    failed = outcome is not None and bool(outcome.error)
    status, tone = _STATUS.get("failed" if failed else step.status, (step.status, "busy"))
    return Version(
        key=str(step.snapshot_id),
        lsn="copy" if step.snapshot_id == SnapshotId.COPY else str(step.snapshot_id.commit_lsn),
        at=human_time(outcome.at) if outcome else "",
        status=status,
        tone=tone,
        changes=_changes(step, failed=failed),
        error=printable(redact(outcome.error)) if outcome else "",
        hint=printable(redact(outcome.hint)) if outcome else "",
    )


def _changes(step: SchemaStep, *, failed: bool) -> tuple[ChangeLine, ...]:
    skipped = list(step.outcome.skipped) if step.outcome else []
    lines = []
    for change in step.changes:
        skip = next((s for s in skipped if (s.attnum, s.change) == (change.attnum, change.kind)), None)
        text = printable(change.public)
        if skip is not None:
            skipped.remove(skip)
            by_rule = change.kind in _UNINTERPRETED
            outcome, tone = ("recorded", "idle") if by_rule else ("skipped", "warn")
            lines.append(ChangeLine(text, outcome, tone, skip.reason.value))
        elif failed:
            lines.append(ChangeLine(text, "failed", "bad"))
        elif change.kind in _UNINTERPRETED:
            lines.append(ChangeLine(text, "recorded", "idle", "detected, and not applied to the destination"))
        elif step.status == "pending":
            lines.append(ChangeLine(text, "waits for the next row", "busy"))
        else:
            lines.append(ChangeLine(text, "copied" if change.kind == COPY else "applied", "good"))
    lines += [
        ChangeLine(printable(f"{skip.change} of {skip.column}"), "skipped", "warn", skip.reason.value)
        for skip in skipped
    ]
    return tuple(lines) or (ChangeLine("no change of columns", "recorded", "idle"),)

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from etl.cli import output
from etl.config import figures
from etl.config.phases import phase_of, reason_of
from etl.config.reports import PHASES, CopyStatus, RequestReport, RequestState, TablePhase, TableStatus
from etl.store.base import TableState

Run = Callable[..., Any]
SINCE = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def table(phase: TablePhase = TablePhase.STREAMING, **more: Any) -> TableStatus:
    return TableStatus(1, "public.a", "ready", phase, "mirror", **more)


def test_every_state_has_a_word_for_people():
    assert set(PHASES) == {state.value for state in TableState} | {None}
    assert set(PHASES.values()) == set(TablePhase)


@pytest.mark.parametrize(
    ("row", "phase"),
    [
        (table(), "streaming"),
        (table(TablePhase.COPYING), "copying"),
        (table(TablePhase.COPYING, copy=CopyStatus(80, 12, 3_100_000)), "copying 12/80 ranges, 3.1M rows"),
        (table(TablePhase.CATCHING_UP, copy=CopyStatus(80, 80, 5)), "catching up"),
        (table(requested=("pause", "resync")), "streaming (pause, resync asked)"),
    ],
)
def test_a_phase_tells_how_far_a_copy_is_and_what_was_asked(row: TableStatus, phase: str):
    assert phase_of(row) == phase


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (table(), ""),
        (table(reason="disk full"), "disk full"),
        (
            table(reason="disk full", retry_at=SINCE, attempts=2),
            "disk full; attempt 3 at 2030-01-02 03:04:05 UTC",
        ),
        (table(copy=CopyStatus(8, 1, 2, note="copied from the beginning")), "copied from the beginning"),
    ],
)
def test_a_reason_tells_what_happens_by_itself_and_why_a_copy_started_over(row: TableStatus, reason: str):
    assert reason_of(row) == reason


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0"), (999, "999"), (1000, "1.0k"), (3_100_000, "3.1M"), (25_300_000_000, "25.3G")],
)
def test_counts_are_readable(count: int, text: str):
    assert figures.human_count(count) == text


def test_the_list_shows_every_table_since_when_and_why(run: Run, application: Any, pipeline: Path):
    application.tables = (
        table(since=SINCE, destination_table="public.a"),
        TableStatus(2, "public.b", "errored", TablePhase.ERROR, "mirror", reason="no key"),
    )
    outcome = run("tables", "list", "-p", pipeline)

    assert application.asked == [("tables", 7)]
    assert [line.split() for line in outcome.out.splitlines()] == [
        ["table", "state", "since", "destination", "reason"],
        ["public.a", "streaming", "2030-01-02", "03:04:05", "UTC", "public.a"],
        ["public.b", "error", "no", "key"],
    ]


def test_the_list_before_the_first_run_is_no_data(run: Run, application: Any, pipeline: Path):
    outcome = run("tables", "list", "-p", pipeline)

    assert (outcome.code, outcome.out, outcome.err) == (0, "", "no tables yet\n")


def test_the_list_as_json_has_the_state_and_its_word(run: Run, application: Any, pipeline: Path):
    application.tables = (table(since=SINCE, copy=CopyStatus(8, 1, 2)),)
    (row,) = json.loads(run("tables", "list", "-p", pipeline, "--json").out)

    assert (row["state"], row["phase"], row["since"]) == ("ready", "streaming", "2030-01-02T03:04:05+00:00")
    assert row["copy"] == {"ranges": 8, "finished": 1, "rows": 2, "started_at": None, "note": ""}


@pytest.mark.parametrize(
    ("arguments", "asked"),
    [
        (["pause", "public.a"], (["public.a"], "pause", 30.0)),
        (["resume", "public.a", "--no-wait"], (["public.a"], "resume", None)),
        (["resume", "--all"], ([], "resume", 30.0)),
        (["retry", "--all", "--timeout-s", "5"], ([], "retry", 5.0)),
        (["retry", "a.b", "c.d"], (["a.b", "c.d"], "retry", 30.0)),
        (["resync", "a.b", "--yes"], (["a.b"], "resync", 30.0)),
        (["drop", "a.b", "-y"], (["a.b"], "drop", 30.0)),
    ],
)
def test_what_is_asked_reaches_the_application(
    run: Run, application: Any, pipeline: Path, arguments: list[str], asked: tuple[object, ...]
):
    assert run("tables", *arguments, "-p", pipeline).code == 0
    assert application.asked == [("request", 7, *asked)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause"],
        ["drop", "--yes"],
        ["resync", "--all"],
        ["retry"],
        ["resume", "public.a", "--all"],
        ["retry", "public.a", "--timeout-s", "-1"],
        ["burn", "public.a"],
    ],
)
def test_incomplete_requests_are_wrong_usage(
    run: Run, application: Any, pipeline: Path, arguments: list[str]
):
    assert run("tables", *arguments, "-p", pipeline).code == 2
    assert application.asked == []


@pytest.mark.parametrize(
    ("state", "outcome", "code", "told"),
    [
        (RequestState.DONE, "paused at 0/64", 0, "paused at 0/64"),
        (RequestState.DONE, "", 0, "done"),
        (RequestState.REFUSED, "it is being copied", 1, "refused: it is being copied"),
        (
            RequestState.ASKED,
            None,
            0,
            "pause is asked for; `etl tables list` shows when it is done",
        ),
        (RequestState.LATE, None, 75, "pause is recorded, but the running pipeline has not answered yet"),
        (
            RequestState.RECORDED,
            None,
            0,
            "pause is recorded and done at the next start: the pipeline is not running",
        ),
    ],
)
def test_what_became_of_a_request_is_told_and_decides_the_exit_code(
    run: Run,
    application: Any,
    pipeline: Path,
    state: RequestState,
    outcome: str | None,
    code: int,
    told: str,
):
    application.requests = [RequestReport(5, "public.a", "pause", state, outcome)]
    ended = run("tables", "pause", "public.a", "-p", pipeline)

    assert (ended.code, ended.out, ended.err) == (code, f"public.a: {told}\n", "")


def test_one_refusal_among_many_is_the_exit_code(run: Run, application: Any, pipeline: Path):
    states = [RequestState.DONE, RequestState.LATE, RequestState.REFUSED]
    application.requests = [RequestReport(5, "public.a", "retry", state) for state in states]

    assert run("tables", "retry", "--all", "-p", pipeline).code == 1


def test_a_request_as_json_is_data_alone(run: Run, application: Any, pipeline: Path):
    application.requests = [RequestReport(5, "public.a", "pause", RequestState.REFUSED, "it is gone")]
    ended = run("tables", "pause", "public.a", "-p", pipeline, "--json")

    assert (ended.code, ended.err) == (1, "")
    assert json.loads(ended.out) == [
        {"id": 5, "table": "public.a", "verb": "pause", "state": "refused", "outcome": "it is gone"}
    ]


def test_all_of_none_is_nothing_to_do(run: Run, application: Any, pipeline: Path):
    ended = run("tables", "retry", "--all", "-p", pipeline)

    assert (ended.code, ended.out, ended.err) == (0, "", "nothing to retry\n")


@pytest.mark.parametrize("verb", ["drop", "resync"])
def test_nothing_is_asked_when_nobody_is_there_to_confirm(
    run: Run, application: Any, pipeline: Path, verb: str
):
    ended = run("tables", verb, "public.a", "-p", pipeline, stdin="y\n")

    assert ended.code == 2
    assert "--yes" in ended.err
    assert application.asked == []


@pytest.mark.parametrize(("answer", "code", "asked"), [("y\n", 0, 1), ("n\n", 1, 0)])
def test_a_person_confirms_what_costs_rows(
    run: Run,
    application: Any,
    pipeline: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    asked: int,
):
    monkeypatch.setattr(output, "_is_interactive", lambda: True)
    ended = run("tables", "drop", "public.a", "-p", pipeline, stdin=answer)

    assert "Delete public.a and all rows at the destination?" in ended.err
    assert (ended.code, len(application.asked)) == (code, asked)

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl.cli.output import say
from etl.errors import (
    ConfigError,
    DestinationTableError,
    EtlError,
    SlotLostError,
    SourceUnavailableError,
    StoreUnavailableError,
)
from etl.lsn import Lsn

Run = Callable[..., Any]

CANARY = "canary-4410"
VERBS = [
    ["replicate"],
    ["check"],
    ["init", "--yes"],
    ["destroy", "--yes"],
    ["status"],
    ["schema", "log", "public.t"],
]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong"), 78),
        (SourceUnavailableError("away"), 75),
        (StoreUnavailableError("away"), 75),
        (SlotLostError("lost"), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_verb_ends_with_the_exit_code_of_the_error(
    run: Run, application: Any, pipeline: Path, verb: list[str], error: EtlError, code: int
):
    application.error = error
    outcome = run(*verb, "-p", pipeline)

    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err == f"error: {error.message}\n"


def test_an_error_is_one_block_with_place_and_hint_and_no_traceback(
    run: Run, application: Any, pipeline: Path
):
    application.error = DestinationTableError(
        "no room", hint="make some", table="public.t", lsn=Lsn.parse("0/2A")
    )

    assert run("replicate", "-p", pipeline).err == (
        "error: no room\n  where: table public.t, at 0/2A\n  hint: make some\n"
    )


def test_at_debug_level_the_traceback_comes_first(run: Run, application: Any, pipeline: Path):
    application.error = DestinationTableError("no room")
    err = run("replicate", "-p", pipeline, "--log-level", "debug").err

    assert err.startswith("Traceback (most recent call last):")
    assert err.endswith("error: no room\n")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_an_unexpected_error_is_called_a_bug_and_does_not_repeat_its_message(
    run: Run, application: Any, pipeline: Path, verb: list[str]
):
    application.error = KeyError(CANARY)
    outcome = run(*verb, "-p", pipeline)

    assert outcome.code == 1
    assert "unexpected KeyError at" in outcome.err
    assert "this is a bug in etl" in outcome.err
    assert "--log-level debug" in outcome.err
    assert CANARY not in outcome.err
    assert "Traceback" not in outcome.err


def test_a_configuration_error_comes_before_anything_is_asked_of_the_application(
    run: Run, application: Any, tmp_path: Path
):
    outcome = run("replicate", "-p", tmp_path / "missing.yaml")

    assert outcome.code == 78
    assert "cannot read the configuration file" in outcome.err
    assert application.asked == []


@pytest.mark.parametrize("level", ["info", "debug"])
@pytest.mark.parametrize("error", [ConfigError, RuntimeError])
@pytest.mark.parametrize("source", ["password: {0}", "dsn: 'postgresql://u:{0}@localhost/d'"])
def test_a_secret_is_never_printed(
    run: Run, application: Any, tmp_path: Path, level: str, error: type[Exception], source: str
):
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        "pipeline: {id: 1, publication: p}\n"
        f"source: {{{source.format(CANARY)}}}\n"
        "destination: {type: duckdb, path: x}\n"
    )
    application.error = error(f"connection to postgresql://u:{CANARY}@h failed: {CANARY}")
    outcome = run("check", "-p", file, "--log-level", level)

    assert outcome.code in {1, 78}
    assert CANARY not in outcome.out + outcome.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_error_text_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.delenv("NO_COLOR", raising=False)
    say("table \x1b[2J\r", heading="error: ")

    assert terminal.getvalue() == "\x1b[31m\x1b[1merror: \x1b[0mtable \\x1b[2J\\r\n"

"""``etl check``: whether everything is there that a pipeline needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from etl.cli.options import (
    CONNECTING,
    Json,
    LogFormatOption,
    LogLevelOption,
    NoColor,
    PipelineFile,
    epilog,
)
from etl.cli.output import emit_json, emit_table, plain_table, say
from etl.cli.session import Terminal, application, open_pipeline
from etl.config.figures import printable
from etl.errors import ExitCode

if TYPE_CHECKING:
    from etl.config.checks import CheckResult

EPILOG = epilog(
    "etl check -p pipeline.yaml",
    "etl check -p pipeline.yaml --json | jq '.[] | select(.status != \"ok\")'",
    codes=(*CONNECTING, ExitCode.CHECK_FAILED),
)
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def check(
    pipeline: PipelineFile,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Check every prerequisite by name, without changing anything, and say how to fix what is missing."""
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    results = application().run_check(config)
    if as_json:
        emit_json(results)
    else:
        _show(results, no_color=no_color)
    if any(result.status == "fail" for result in results):
        raise typer.Exit(ExitCode.CHECK_FAILED)


def _show(results: list[CheckResult], *, no_color: bool) -> None:
    from rich.text import Text

    table = plain_table("", "check", "found")
    for result in results:
        status = Text(result.status.value, style=_STYLES[result.status])
        table.add_row(status, printable(result.name), printable(result.detail))
        if result.fix and result.status != "ok":
            table.add_row("", "", Text(printable(f"fix: {result.fix}", keep="\n"), style="italic"))
    emit_table(table, no_color=no_color)
    count = {status: sum(r.status == status for r in results) for status in _STYLES}
    say(f"{count['ok']} ok, {count['warn']} warnings, {count['fail']} blockers")

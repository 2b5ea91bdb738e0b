"""The options that verbs share, and the shape of their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from etl.config.choices import LogFormat, LogLevel
from etl.errors import ExitCode

_LOGS = "Logging"

_PIPELINE = typer.Option(
    "--pipeline",
    "-p",
    envvar="ETL_PIPELINE",
    metavar="FILE",
    show_default=False,
    help="The pipeline's YAML file.",
)
PipelineFile = Annotated[Path, _PIPELINE]
OptionalPipelineFile = Annotated[Path | None, _PIPELINE]
LogLevelOption = Annotated[
    LogLevel | None,
    typer.Option(
        "--log-level", show_default=False, rich_help_panel=_LOGS, help="Overrides log.level of the file."
    ),
]
LogFormatOption = Annotated[
    LogFormat | None,
    typer.Option(
        "--log-format", show_default=False, rich_help_panel=_LOGS, help="Overrides log.format of the file."
    ),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", rich_help_panel=_LOGS, help="Plain text; NO_COLOR does the same.")
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON to standard output.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_CODES = {
    ExitCode.OK: "done",
    ExitCode.UNEXPECTED: "unexpected error, or one that needs a person",
    ExitCode.USAGE: "wrong usage",
    ExitCode.CHECK_FAILED: "a blocker was found",
    ExitCode.UNAVAILABLE: "not reachable: start again later",
    ExitCode.CONFIGURATION: "configuration invalid: starting again does not help",
}
CONNECTING = (
    ExitCode.OK,
    ExitCode.UNEXPECTED,
    ExitCode.USAGE,
    ExitCode.UNAVAILABLE,
    ExitCode.CONFIGURATION,
)
LOCAL = (ExitCode.OK, ExitCode.UNEXPECTED, ExitCode.USAGE, ExitCode.CONFIGURATION)


def epilog(*examples: str, codes: tuple[int, ...]) -> str:
    """Examples and exit codes as the last part of a verb's help."""
    lines = ["[bold]Examples[/bold]", "", "\b", *(f"  {example}" for example in examples), ""]
    lines += ["[bold]Exit codes[/bold]", "", "\b", *(f"  {code:<4} {_CODES[code]}" for code in sorted(codes))]
    return "\n".join(lines)

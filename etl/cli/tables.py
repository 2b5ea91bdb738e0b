"""``etl tables``: the tables of a pipeline, and what a person may ask for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from etl.cli.options import (
    CONNECTING,
    Json,
    LogFormatOption,
    LogLevelOption,
    NoColor,
    PipelineFile,
    Yes,
    epilog,
)
from etl.cli.output import confirm, emit, emit_json, emit_table, plain_table, say
from etl.cli.session import Terminal, application, open_pipeline
from etl.config.figures import human_time, printable
from etl.config.phases import phase_of, reason_of
from etl.config.reports import RequestState
from etl.errors import ExitCode

if TYPE_CHECKING:
    from etl.config.reports import RequestReport, TableStatus

LIST_EPILOG = epilog(
    "etl tables list -p pipeline.yaml",
    "etl tables list -p pipeline.yaml --json | jq -r '.[] | select(.phase == \"error\") | .name'",
    codes=CONNECTING,
)
PAUSE_EPILOG = epilog("etl tables pause public.orders -p pipeline.yaml", codes=CONNECTING)
RESUME_EPILOG = epilog(
    "etl tables resume public.orders -p pipeline.yaml",
    "etl tables resume --all -p pipeline.yaml",
    codes=CONNECTING,
)
RESYNC_EPILOG = epilog(
    "etl tables resync public.orders -p pipeline.yaml",
    "etl tables resync public.orders public.items -p pipeline.yaml --yes --no-wait",
    codes=CONNECTING,
)
RETRY_EPILOG = epilog(
    "etl tables retry public.orders -p pipeline.yaml",
    "etl tables retry --all -p pipeline.yaml --timeout-s 300",
    codes=CONNECTING,
)
DROP_EPILOG = epilog(
    "psql -c 'ALTER PUBLICATION shop DROP TABLE public.orders'",
    "etl tables drop public.orders -p pipeline.yaml",
    codes=CONNECTING,
)

_TABLES = typer.Argument(
    metavar="TABLE", show_default=False, help="Source tables as schema.name, or their oids."
)
Tables = Annotated[list[str], _TABLES]
TablesOrAll = Annotated[list[str] | None, _TABLES]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer of the running pipeline.")]
Timeout = Annotated[
    float, typer.Option("--timeout-s", min=0, metavar="SECONDS", help="How long to wait for it.")
]


def list_tables(
    pipeline: PipelineFile,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Show every table: where it stands, since when, and why. Works while the pipeline runs."""
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    rows = application().load_tables(config)
    if as_json:
        emit_json(rows)
    elif rows:
        _show(rows, no_color=no_color)
    else:
        say("no tables yet")


def pause(  # noqa: PLR0913  # an option is an argument
    *,
    names: Tables,
    pipeline: PipelineFile,
    wait: Wait = True,
    timeout_s: Timeout = 30.0,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Stop writing a table. Its later changes are kept on local disk until it is resumed."""
    terminal = Terminal(log_level, log_format, no_color)
    _ask("pause", names, pipeline, terminal, wait_s=timeout_s if wait else None, as_json=as_json)


def resume(  # noqa: PLR0913  # an option is an argument
    *,
    pipeline: PipelineFile,
    names: TablesOrAll = None,
    every: Annotated[bool, typer.Option("--all", help="Every paused table.")] = False,
    wait: Wait = True,
    timeout_s: Timeout = 30.0,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Go on with a paused table, from where it stood."""
    terminal, chosen = Terminal(log_level, log_format, no_color), _named_or_all(names, every=every)
    _ask("resume", chosen, pipeline, terminal, wait_s=timeout_s if wait else None, as_json=as_json)


def retry(  # noqa: PLR0913  # an option is an argument
    *,
    pipeline: PipelineFile,
    names: TablesOrAll = None,
    every: Annotated[bool, typer.Option("--all", help="Every table in error.")] = False,
    wait: Wait = True,
    timeout_s: Timeout = 30.0,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Try a table in error again, once what broke it is repaired. A copy that was complete is not made anew."""
    terminal, chosen = Terminal(log_level, log_format, no_color), _named_or_all(names, every=every)
    _ask("retry", chosen, pipeline, terminal, wait_s=timeout_s if wait else None, as_json=as_json)


def resync(  # noqa: PLR0913  # an option is an argument
    *,
    names: Tables,
    pipeline: PipelineFile,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = 30.0,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Copy a table anew. The rows at the destination stay readable until the new copy is complete."""
    terminal = Terminal(log_level, log_format, no_color)
    confirm(f"Copy {_listed(names)} anew?", yes=yes)
    _ask("resync", names, pipeline, terminal, wait_s=timeout_s if wait else None, as_json=as_json)


def drop(  # noqa: PLR0913  # an option is an argument
    *,
    names: Tables,
    pipeline: PipelineFile,
    yes: Yes = False,
    wait: Wait = True,
    timeout_s: Timeout = 30.0,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Delete a table at the destination, with all its rows, and forget it. It must have left the publication.

    The source is not touched.
    """
    terminal = Terminal(log_level, log_format, no_color)
    confirm(f"Delete {_listed(names)} and all rows at the destination?", yes=yes)
    _ask("drop", names, pipeline, terminal, wait_s=timeout_s if wait else None, as_json=as_json)


def _ask(
    verb: str, names: list[str], pipeline: Path, terminal: Terminal, *, wait_s: float | None, as_json: bool
) -> None:
    """Record what was asked, say what became of it, and end with 1 when it was refused, with 75 when nobody answered."""
    from etl.store.base import TableVerb

    config = open_pipeline(pipeline, terminal)
    reports = application().request_table(config, names, TableVerb(verb), wait_s=wait_s)
    if as_json:
        emit_json(reports)
    elif not reports:
        say(f"nothing to {verb}")
    else:
        for report in reports:
            emit(printable(f"{report.table}: {_told(report)}"))
    states = {report.state for report in reports}
    if RequestState.REFUSED in states:
        raise typer.Exit(ExitCode.UNEXPECTED)
    if RequestState.LATE in states:
        raise typer.Exit(ExitCode.UNAVAILABLE)


def _told(report: RequestReport) -> str:
    match report.state:
        case RequestState.DONE:
            return report.outcome or "done"
        case RequestState.REFUSED:
            return f"refused: {report.outcome}"
        case RequestState.ASKED:
            return f"{report.verb} is asked for; `etl tables list` shows when it is done"
        case RequestState.LATE:
            return f"{report.verb} is recorded, but the running pipeline has not answered yet"
        case RequestState.RECORDED:
            return f"{report.verb} is recorded and done at the next start: the pipeline is not running"


def _named_or_all(names: list[str] | None, *, every: bool) -> list[str]:
    """The names, none for all. Raises a usage error unless exactly one of them is given."""
    if bool(names) == every:
        raise typer.BadParameter("name tables, or give --all")
    return names or []


def _listed(names: list[str]) -> str:
    return printable(", ".join(names))


def _show(rows: tuple[TableStatus, ...], *, no_color: bool) -> None:
    table = plain_table("table", "state", "since", "destination", "reason")
    for row in rows:
        cells = (row.name, phase_of(row), human_time(row.since), row.destination_table or "", reason_of(row))
        table.add_row(*map(printable, cells))
    emit_table(table, no_color=no_color)

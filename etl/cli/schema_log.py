"""``etl schema log``: how a table's schema came to be what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from etl.config.reports import SchemaLogEntry

EPILOG = epilog(
    "etl schema log public.orders -p pipeline.yaml",
    "etl schema log public.orders -p pipeline.yaml --json | jq '.[-1].columns'",
    codes=CONNECTING,
)


def schema_log(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="The source table as schema.name.")],
    pipeline: PipelineFile,
    as_json: Json = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Show every stored version of a table's schema: where in the log it begins, and what changed.

    Versions that no replay can need any more are pruned.
    """
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    entries = application().load_schema_log(config, table)
    if as_json:
        emit_json(entries)
    elif entries:
        _show(entries, no_color=no_color)
    else:
        say(f"no schema versions of {table} are stored")


def _show(entries: list[SchemaLogEntry], *, no_color: bool) -> None:
    table = plain_table("commit", "version", "status", "what changed")
    for entry in entries:
        changes = entry.changes or (f"columns: {', '.join(entry.columns)}",)
        cells = (str(entry.commit_lsn), str(entry.snapshot_id), entry.status)
        table.add_row(*map(printable, cells), "\n".join(map(printable, changes)))
    emit_table(table, no_color=no_color)

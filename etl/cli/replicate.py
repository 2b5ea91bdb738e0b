"""``etl replicate``: copy, then follow every change."""

from __future__ import annotations

from typing import Annotated

import typer

from etl.cli.options import (
    CONNECTING,
    LogFormatOption,
    LogLevelOption,
    NoColor,
    PipelineFile,
    epilog,
)
from etl.cli.progress import copy_bars
from etl.cli.session import Terminal, application, open_pipeline
from etl.lsn import Lsn

EPILOG = epilog(
    "etl replicate -p pipeline.yaml                        until SIGTERM or SIGINT",
    "etl replicate -p pipeline.yaml --once                 catch up with now, then exit",
    "etl replicate -p pipeline.yaml --until-lsn 0/16B3748  catch up with this position",
    "ETL__SOURCE__HOST=db2 etl replicate -p pipeline.yaml  one key from the environment",
    codes=CONNECTING,
)


def _parse_lsn(text: str) -> Lsn:
    try:
        return Lsn.parse(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a log position such as 0/16B3748") from None


def replicate(
    pipeline: PipelineFile,
    once: Annotated[
        bool, typer.Option("--once", help="Stop when everything written until now is durable.")
    ] = False,
    until_lsn: Annotated[
        Lsn | None,
        typer.Option(
            "--until-lsn",
            metavar="X/Y",
            parser=_parse_lsn,
            show_default=False,
            help="Stop when everything up to this log position is durable.",
        ),
    ] = None,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Copy the published tables, then stream every change, schema changes included.

    It continues where it stopped. SIGTERM or SIGINT finishes the batch in hand and exits with 0; a second one exits at once.
    """
    if once and until_lsn is not None:
        raise typer.BadParameter("--once and --until-lsn exclude each other")
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    bars = copy_bars(no_color=no_color)
    try:
        code = application().run_replicate(config, once=once, until_lsn=until_lsn, progress=bars)
    finally:
        if bars is not None:
            bars.close()
    raise typer.Exit(code)

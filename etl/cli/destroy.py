"""``etl destroy``: drop a pipeline's slot and state."""

from __future__ import annotations

from typing import Annotated

import typer

from etl.cli.actions import carry_out
from etl.cli.options import (
    CONNECTING,
    DryRun,
    LogFormatOption,
    LogLevelOption,
    NoColor,
    PipelineFile,
    Yes,
    epilog,
)
from etl.cli.session import Terminal, application, open_pipeline

EPILOG = epilog(
    "etl destroy -p pipeline.yaml --dry-run",
    "etl destroy -p pipeline.yaml --with-trigger --yes",
    codes=CONNECTING,
)


def destroy(
    *,
    pipeline: PipelineFile,
    with_trigger: Annotated[
        bool,
        typer.Option("--with-trigger", help="Also remove the event trigger; other pipelines need it."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Drop the pipeline's replication slot and its state. Rows at the destination are not touched.

    A slot that no one reads makes the server keep WAL for ever: destroy what you no longer run.
    """
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    carry_out(
        lambda planning: application().run_destroy(config, dry_run=planning, with_trigger=with_trigger),
        question=f"Destroy pipeline {config.pipeline.display_name}?",
        dry_run=dry_run,
        yes=yes,
    )

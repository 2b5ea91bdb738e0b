"""``etl init``: install the event trigger at the source and the state tables in the store."""

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
    OptionalPipelineFile,
    Yes,
    epilog,
)
from etl.cli.output import emit, say
from etl.cli.session import Terminal, application, open_pipeline

EPILOG = epilog(
    "etl init -p pipeline.yaml --dry-run            what would be done",
    "etl init -p pipeline.yaml --yes                do it without asking",
    "etl init --print-sql --role etl_user | psql    let an administrator do it",
    codes=CONNECTING,
)


def init(  # noqa: PLR0913  # an option is an argument
    *,
    pipeline: OptionalPipelineFile = None,
    print_sql: Annotated[
        bool,
        typer.Option("--print-sql", help="Print the SQL for an administrator and exit; connects to nothing."),
    ] = False,
    role: Annotated[
        str | None,
        typer.Option(
            "--role",
            metavar="NAME",
            show_default=False,
            help="With --print-sql: also grant what this role needs at run time.",
        ),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    log_level: LogLevelOption = None,
    log_format: LogFormatOption = None,
    no_color: NoColor = False,
) -> None:
    """Install the source's event trigger and the store's tables; what is there already is left alone.

    The publication stays yours: it decides which tables are replicated. The statement to create it is shown.
    """
    if print_sql:
        emit(application().render_init_sql(role))
        return
    if role is not None:
        raise typer.BadParameter("--role goes with --print-sql")
    if pipeline is None:
        raise typer.BadParameter("name the pipeline's file with --pipeline (or use --print-sql)")
    config = open_pipeline(pipeline, Terminal(log_level, log_format, no_color))
    carry_out(
        lambda planning: application().run_init(config, dry_run=planning),
        question=f"Do this at {config.source.describe()}?",
        dry_run=dry_run,
        yes=yes,
    )
    publication = config.pipeline.publication.replace('"', '""')
    say(
        "etl does not create the publication. If it does not exist yet:\n"
        f'  CREATE PUBLICATION "{publication}" FOR TABLE schema.name, ...;'
    )

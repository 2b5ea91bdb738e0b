"""The command line: one verb a file, errors told in one place.

Importing this module imports no engine and no driver: each verb does, when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from etl.cli import check, config, destroy, init, jars, replicate, schema_log, status, tables, version
from etl.cli.errors import ReportingGroup

_EPILOG = """\
[bold]Start here[/bold]

\b
  etl check     -p pipeline.yaml   what is missing, and how to add it
  etl init      -p pipeline.yaml   install the trigger and the state tables
  etl replicate -p pipeline.yaml   copy, then follow every change

[bold]Exit codes[/bold]

\b
  0    done, or stopped by SIGTERM or SIGINT
  1    unexpected error, or one that needs a person
  2    wrong usage of the command line
  3    check found a blocker
  75   source, store or destination not reachable: start again later
  78   configuration invalid: starting again does not help
"""

app = typer.Typer(
    cls=ReportingGroup,
    name="etl",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,  # they may show values
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Stream a Postgres database, schema changes included, into the places you analyse it."""


app.command("replicate", epilog=replicate.EPILOG)(replicate.replicate)
app.command("check", epilog=check.EPILOG)(check.check)
app.command("init", epilog=init.EPILOG)(init.init)
app.command("status", epilog=status.EPILOG)(status.status)

_tables = typer.Typer(no_args_is_help=True, help="Look at the tables, and pause, retry, recopy or drop them.")
_tables.command("list", epilog=tables.LIST_EPILOG)(tables.list_tables)
_tables.command("pause", epilog=tables.PAUSE_EPILOG)(tables.pause)
_tables.command("resume", epilog=tables.RESUME_EPILOG)(tables.resume)
_tables.command("resync", epilog=tables.RESYNC_EPILOG)(tables.resync)
_tables.command("retry", epilog=tables.RETRY_EPILOG)(tables.retry)
_tables.command("drop", epilog=tables.DROP_EPILOG)(tables.drop)
app.add_typer(_tables, name="tables")

_schema = typer.Typer(no_args_is_help=True, help="Look at the schema versions of a table.")
_schema.command("log", epilog=schema_log.EPILOG)(schema_log.schema_log)
app.add_typer(_schema, name="schema")

_config = typer.Typer(no_args_is_help=True, help="Look at the configuration.")
_config.command("show", epilog=config.SHOW_EPILOG)(config.show)
_config.command("schema", epilog=config.SCHEMA_EPILOG)(config.schema)
app.add_typer(_config, name="config")

_jars = typer.Typer(no_args_is_help=True, help="Look at the jars that Spark needs, and download them.")
_jars.command("fetch", epilog=jars.FETCH_EPILOG)(jars.fetch)
_jars.command("list", epilog=jars.LIST_EPILOG)(jars.list_jars)
app.add_typer(_jars, name="jars")

app.command("destroy", epilog=destroy.EPILOG)(destroy.destroy)
app.command("version", epilog=version.EPILOG)(version.version)

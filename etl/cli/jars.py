"""``etl jars fetch`` and ``etl jars list``: what Spark needs beside Python."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from etl.cli.options import CONNECTING, LOCAL, Json, NoColor, epilog
from etl.cli.output import emit, emit_json, emit_table, plain_table, say
from etl.cli.session import application
from etl.config.figures import printable

FETCH_EPILOG = epilog(
    "etl jars fetch                                     once, at set-up",
    "ETL_JARS_DIR=/opt/etl/jars etl jars fetch          elsewhere; replicate wants the variable too",
    "HTTPS_PROXY=http://proxy:3128 etl jars fetch       through a proxy",
    "ETL_IVY_SETTINGS=ivysettings.xml etl jars fetch    from a mirror",
    codes=CONNECTING,
)
LIST_EPILOG = epilog(
    "etl jars list",
    "etl jars list --json | jq '.[] | select(.state != \"present\")'",
    codes=LOCAL,
)
_STYLES = {"present": "green", "missing": "yellow", "corrupt": "bold red"}

JarsDirectory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        envvar="ETL_JARS_DIR",
        metavar="DIR",
        show_default=False,
        help="Where the jars are; otherwise in share/etl/jars of the Python environment.",
    ),
]


def fetch(directory: JarsDirectory = None) -> None:
    """Download the jars that Spark needs, where they are missing or corrupt, and verify them.

    They come from Maven Central, with the Ivy inside pyspark; this starts Java. With nothing to do it starts nothing.
    """
    fetched = application().run_jars_fetch(directory, say)
    for path in fetched:
        emit(printable(f"done: {path}"))
    if not fetched:
        say("nothing to do: every jar is there and whole")


def list_jars(directory: JarsDirectory = None, as_json: Json = False, no_color: NoColor = False) -> None:
    """List the jars that Spark needs: version, checksum, place, and whether each is there and whole."""
    reports = application().load_jars(directory)
    if as_json:
        emit_json([asdict(report) | {"path": str(report.path)} for report in reports])
        return
    from rich.text import Text

    table = plain_table("", "jar", "sha256", "path")
    for report in reports:
        state = Text(report.state.value, style=_STYLES[report.state])
        table.add_row(state, report.coordinate, f"{report.sha256[:12]}…", printable(str(report.path)))
    emit_table(table, no_color=no_color)

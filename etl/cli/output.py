"""Data goes to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import typer

from etl.config.figures import printable, to_plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

#: Wide enough that a line of a report stays a line where no terminal says otherwise.
_PIPE_WIDTH = 160


def say(text: str, *, heading: str = "") -> None:
    """Tell the person: standard error. `heading` stands before the text, in red where there are colours."""
    colored = sys.stderr.isatty() and "NO_COLOR" not in os.environ
    shown = typer.style(heading, fg=typer.colors.RED, bold=True) if heading and colored else heading
    typer.echo(shown + printable(text, keep="\n\t"), err=True)


def emit(text: str) -> None:
    """Give data: standard output."""
    typer.echo(text)


def emit_json(value: object) -> None:
    """Give data as JSON: LSNs and snapshot ids as their text, dataclasses as objects."""
    import orjson

    emit(orjson.dumps(to_plain(value), option=orjson.OPT_INDENT_2).decode())


def emit_table(table: Table, *, no_color: bool = False) -> None:
    """Give a table, as wide as the terminal."""
    console(no_color=no_color).print(table)


def console(*, no_color: bool = False, stderr: bool = False) -> Console:
    """A console that writes text as it is: no markup, no guessing of numbers and paths."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _PIPE_WIDTH
    return Console(stderr=stderr, markup=False, highlight=False, no_color=no_color or None, width=width)


def plain_table(*columns: str) -> Table:
    """A table without lines; the last column takes what is left."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def confirm(question: str, *, yes: bool) -> None:
    """Go on only when the person agrees. Raises a usage error when there is no one to ask."""
    if yes:
        return
    if not _is_interactive():
        raise typer.BadParameter("nobody is there to ask: add --yes")
    typer.confirm(question, abort=True, err=True)


def _is_interactive() -> bool:
    return sys.stdin.isatty()

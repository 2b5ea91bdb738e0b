"""Data goes to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING

import typer

from etl.lsn import Lsn, SnapshotId

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

    emit(orjson.dumps(_plain(value), option=orjson.OPT_INDENT_2).decode())


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


def printable(text: str, *, keep: str = "") -> str:
    """`text` with control characters spelled out: names come from a database and must not steer a terminal."""
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode("ascii") for c in text
    )


def human_bytes(count: int | None) -> str:
    """``12.3 MiB``; empty when unknown."""
    if count is None:
        return ""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def human_count(count: int) -> str:
    """``3.1M``."""
    size = float(count)
    for unit in ("", "k", "M"):
        if abs(size) < 1000:
            return f"{size:.1f}{unit}" if unit else str(count)
        size /= 1000
    return f"{size:,.1f}G"


def human_time(moment: datetime | None) -> str:
    """``2030-01-02 03:04:05 UTC``; empty when unknown."""
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _plain(value: object) -> object:
    if isinstance(value, Lsn | SnapshotId):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value

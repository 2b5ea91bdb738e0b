"""What the demo asks of a destination, whichever it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Look:
    """One side of the comparison: the newest orders under their column names, and totals of both tables."""

    names: Sequence[str]
    newest: Sequence[Sequence[Any]]
    totals: tuple[Any, ...]


class Warehouse(ABC):
    """A destination of the demo, in a folder of its own. It is looked at after the daemon has ended."""

    title: str
    pipeline: Path
    wait_s: float
    #: What to tell people who wait for the start; nothing where it is quick.
    notice: str = ""

    @abstractmethod
    def missing(self) -> str | None:
        """What this machine lacks for it and how to get it, in a line; None when nothing."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The variables by which the pipeline writes here."""

    @abstractmethod
    def look(self) -> Look:
        """This side of the comparison."""

    @abstractmethod
    def columns(self) -> Sequence[Sequence[Any]]:
        """Of every column of orders: name, type, default, identity tag."""

    def history(self, schema_log: Sequence[dict[str, Any]]) -> Table | None:
        """The destination's own versions of orders beside the versions of its schema; None where it keeps none."""
        del schema_log
        return None


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """Rows as the demo prints them."""
    printed = Table(title=title, title_justify="left", header_style="bold")
    for name in names:
        printed.add_column(name)
    for row in rows:
        printed.add_row(*("[dim]NULL[/dim]" if value is None else str(value) for value in row))
    return printed

"""Where an initial copy reports how far it is."""

from __future__ import annotations

from typing import Protocol


class CopyProgress(Protocol):
    """Told about every table that is copied; called from any thread, never blocks. `table` is ``schema.name``."""

    def start(self, table: str, estimated_rows: int) -> None:
        """A table's copy begins. `estimated_rows` is the planner's guess, negative when there is none."""

    def advance(self, table: str, rows: int, bytes: int) -> None:  # noqa: A002
        """`rows` more rows, `bytes` more bytes of them, are durable at the destination."""

    def finish(self, table: str) -> None:
        """The table's copy is complete."""

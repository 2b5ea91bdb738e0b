"""What a write to a table needs, handed from one function to the next."""

from __future__ import annotations

from dataclasses import dataclass

from etl.destinations.delta.commits import Commits
from etl.destinations.delta.session import Row, Session
from etl.destinations.delta.shape import TableShape
from etl.lsn import Position


@dataclass(frozen=True, slots=True)
class Write:
    """One write to one table: where, in what shape, and the watermark its commit carries (None while copying)."""

    session: Session
    commits: Commits
    shape: TableShape
    watermark: Position | None

    @property
    def name(self) -> str:
        """The table's printable name, for errors."""
        return self.shape.table.name

    @property
    def sql(self) -> str:
        """The table's name in SQL."""
        return self.shape.place.sql

    def commit(self, statement: str) -> list[Row]:
        """Execute a statement that writes rows, with the watermark in the same commit."""
        return self.commits.write(self.session, self.shape.table, statement, self.watermark)

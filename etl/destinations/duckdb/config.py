"""What a DuckDB destination is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from etl.schema.types import TypeOptions


@dataclass(frozen=True, slots=True)
class DuckDBSettings:
    """One database file.

    `threads` and `memory_limit` (``"2GB"``) are DuckDB's own settings of those names, its defaults when None; `types`
    the pipeline's choices about types, part of every table's shape.
    """

    path: Path
    threads: int | None = None
    memory_limit: str | None = None
    types: TypeOptions = field(default_factory=TypeOptions)

    def connection_config(self) -> dict[str, str | int]:
        """The configuration to connect with; equal for all connections of a process to one file."""
        config: dict[str, str | int] = {}
        if self.threads is not None:
            config["threads"] = self.threads
        if self.memory_limit is not None:
            config["memory_limit"] = self.memory_limit
        return config

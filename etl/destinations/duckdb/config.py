"""What a DuckDB destination is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from etl.schema.types import TypeOptions


@dataclass(frozen=True, slots=True)
class DuckDBSettings:
    """One database file.

    `threads` and `memory_limit` (``"2GB"``) are DuckDB's own settings of those names, its defaults when None.
    `checkpoint_threshold` is DuckDB's too: how large the write-ahead log grows before it is merged into the file. Its
    own 16 MB make a stream of updates cost twice the CPU; a larger log takes longer to replay after a crash. `types`
    are the pipeline's choices about types, part of every table's shape.
    """

    path: Path
    threads: int | None = None
    memory_limit: str | None = None
    checkpoint_threshold: str = "128MB"
    types: TypeOptions = field(default_factory=TypeOptions)

    def database_settings(self) -> Mapping[str, int | str]:
        """What is SET once, for all connections."""
        chosen = {
            "checkpoint_threshold": self.checkpoint_threshold,
            "threads": self.threads,
            "memory_limit": self.memory_limit,
        }
        return {name: value for name, value in chosen.items() if value is not None}

    def connection_settings(self) -> Mapping[str, str]:
        """What is SET on every connection; values are times in UTC whatever the machine's zone is."""
        return {"TimeZone": "UTC"}

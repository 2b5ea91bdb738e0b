"""One model per destination type, and the union of them by `type`.

To add a destination: a model with its own ``type: Literal[...]`` and one more member of `DestinationConfig`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from etl.config.values import ConfigModel, RelativePath


def _durable(path: RelativePath) -> RelativePath:
    if path.name.startswith(":") or "md:" in path.parts:
        raise PydanticCustomError(
            "duckdb_path", "must be a file: a database in memory forgets what Postgres was told is durable"
        )
    return path


class DuckDbDestinationConfig(ConfigModel):
    """A DuckDB database file."""

    type: Literal["duckdb"]
    """Which destination this is."""
    path: Annotated[RelativePath, AfterValidator(_durable)]
    """The database file; it is created when missing. Relative to the configuration file."""

    def describe(self) -> str:
        """Safe text for people."""
        return f"duckdb {self.path}"


# Members are told apart by `type`; with a second one this becomes
# Annotated[DuckDbDestinationConfig | OtherConfig, Field(discriminator="type")].
DestinationConfig = DuckDbDestinationConfig

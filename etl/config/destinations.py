"""One model per destination type, and the union of them by `type`.

To add a destination: a model with its own ``type: Literal[...]`` and one more member of `DestinationConfig`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from etl.config.values import NO_BOOL, ConfigModel, RelativePath, resolve_path


def _durable(path: RelativePath) -> RelativePath:
    if path.name.startswith(":") or "md:" in path.parts:
        raise PydanticCustomError(
            "duckdb_path", "must be a file: a database in memory forgets what Postgres was told is durable"
        )
    return path


class DuckDbDestinationConfig(ConfigModel):
    """A DuckDB database file."""

    default_max_fill_ms: ClassVar[int] = 1000
    has_executors: ClassVar[bool] = False

    type: Literal["duckdb"]
    """Which destination this is."""
    path: Annotated[RelativePath, AfterValidator(_durable)]
    """The database file; it is created when missing. Relative to the configuration file."""

    def describe(self) -> str:
        """Safe text for people."""
        return f"duckdb {self.path}"


def _as_spark_writes(value: object) -> object:
    """YAML reads 4 and true as what they look like; Spark takes text."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def _lake(path: str, info: ValidationInfo) -> str:
    return path.rstrip("/") if _ADDRESS.match(path) else str(resolve_path(Path(path), info.context))


def _properties(value: object) -> object:
    """From a variable of the environment they come as JSON."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            raise PydanticCustomError(
                "spark_conf", "must be a section of spark.* keys, in a variable as JSON"
            ) from None
    return value


def _connect_address(address: str) -> str:
    if not address.startswith("sc://"):
        raise PydanticCustomError("spark_remote", "must be an address that begins with sc://")
    return address


def _each_is_sparks(conf: dict[str, str]) -> dict[str, str]:
    if foreign := sorted(name for name in conf if not name.startswith("spark.")):
        raise PydanticCustomError(
            "spark_conf", "holds {names}: every key begins with spark.", {"names": ", ".join(foreign)}
        )
    return conf


SparkText = Annotated[
    str,
    BeforeValidator(_as_spark_writes),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]}),
]


class SparkConfig(ConfigModel):
    """Which Spark does the work."""

    master: Annotated[str, Field(min_length=1)] = "local[*]"
    """Spark's master: `local[*]`, `spark://host:7077`, `yarn`, `k8s://…`."""
    remote: (
        Annotated[
            str,
            AfterValidator(_connect_address),
            WithJsonSchema({"type": "string", "pattern": "^sc://"}),
        ]
        | None
    ) = None
    """A Spark Connect server, `sc://host:15002`, instead of `master`. It must run with Delta's jars."""
    conf: Annotated[
        dict[str, SparkText],
        BeforeValidator(_properties),
        AfterValidator(_each_is_sparks),
    ] = Field(default_factory=dict)
    """Any `spark.*` property, laid over etl's own: memory, executors, credentials of the storage. What its name calls a
    secret, password, token or key is shown masked."""


class MaintenanceConfig(ConfigModel):
    """Upkeep of tables that grow by small commits. Zero turns a part off."""

    optimize_commits: Annotated[int, Field(ge=0), NO_BOOL] = 200
    """Compact a table's small files after so many commits to it."""
    vacuum_hours: Annotated[int, Field(ge=0), NO_BOOL] = 24
    """How often files that no kept version needs are deleted, in hours."""
    retention_hours: Annotated[int, Field(ge=168), NO_BOOL] = 168
    """How long a table's versions stay readable, in hours; never below a week, which running readers may need."""


class DeltaDestinationConfig(ConfigModel):
    """Delta Lake tables, written by Spark."""

    default_max_fill_ms: ClassVar[int] = 5000

    type: Literal["delta"]
    """Which destination this is."""
    path: Annotated[str, Field(min_length=1), AfterValidator(_lake)] | None = None
    """Where the tables lie, `<path>/<schema>/<table>`: a folder (relative to the configuration file) or an address such as
    `s3a://bucket/lake`. Either this or `catalog`."""
    catalog: Annotated[str, Field(min_length=1)] | None = None
    """A catalog of Spark that keeps the tables as `<catalog>.<schema>.<table>`, such as `spark_catalog`."""
    staging: Annotated[str, Field(min_length=1), AfterValidator(_lake)] | None = None
    """Where batches wait for Spark; every executor must be able to read it. Default: a folder of `path`."""
    parallel_tables: Annotated[int, Field(ge=1), NO_BOOL] = 2
    """How many tables are written at once."""
    deletion_vectors: bool = False
    """Mark deleted rows instead of rewriting their files: cheaper changes, slower reads, newer readers only."""
    change_data_feed: bool = False
    """Record row changes for `table_changes`."""
    maintenance: MaintenanceConfig = MaintenanceConfig()
    """Upkeep of tables that grow by small commits."""
    spark: SparkConfig = SparkConfig()
    """Which Spark does the work."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.path is None) == (self.catalog is None):
            raise PydanticCustomError("delta_place", "needs either a path or a catalog")
        if self.path is None and self.staging is None:
            raise PydanticCustomError("delta_staging", "needs a staging folder beside a catalog")
        return self

    @property
    def has_executors(self) -> bool:
        """Whether code of ours can be sent to the executors, and tell of what it did."""
        return self.spark.remote is None

    def describe(self) -> str:
        """Safe text for people."""
        return f"delta {self.path or self.catalog}"


DestinationConfig = Annotated[DuckDbDestinationConfig | DeltaDestinationConfig, Field(discriminator="type")]

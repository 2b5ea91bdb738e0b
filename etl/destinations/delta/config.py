"""What a Delta destination is told."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from etl.schema.types import TypeOptions
from etl.spark.settings import SparkSettings

_WAREHOUSE: Final = "spark.sql.warehouse.dir"


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Upkeep of tables that grow by small commits; zero turns a part off.

    `optimize_commits`: small files are compacted after so many commits of a table. `vacuum_hours`: how often files that
    no version within the retention needs are deleted; `retention_hours` is that retention.
    """

    optimize_commits: int = 200
    vacuum_hours: int = 24
    retention_hours: int = 168


@dataclass(frozen=True, slots=True)
class DeltaSettings:
    """One lake: a root path, or a catalog of Spark; exactly one of `path` and `catalog` is given.

    `path` is an absolute path or a URI that both Spark and Arrow can write to. `staging` is where batches are handed to
    Spark, a folder of `path` when None: on a cluster it must be storage that every executor reads. `parallel_tables` is
    how many tables are written at once: much of a small commit is waiting.
    """

    path: str | None = None
    catalog: str | None = None
    staging: str | None = None
    parallel_tables: int = 2
    deletion_vectors: bool = False
    change_data_feed: bool = False
    maintenance: Maintenance = field(default_factory=Maintenance)
    types: TypeOptions = field(default_factory=TypeOptions)
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def place(self) -> str:
        """What this lake is called in messages."""
        return self.path if self.path is not None else f"catalog {self.catalog}"

    def with_own_warehouse(self) -> DeltaSettings:
        """The same, with the folder that Spark makes for its own catalog inside the lake, not where etl was started."""
        if self.path is None or _WAREHOUSE in self.spark.conf:
            return self
        conf = {_WAREHOUSE: f"{self.path}/_etl/warehouse", **self.spark.conf}
        return replace(self, spark=replace(self.spark, conf=conf))

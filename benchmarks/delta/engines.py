"""The engines: each makes a table, opens a copy of it, and applies one batch after another, durably.

`base` is made once per size of the table; every measurement works on a copy of its folder. The two peers start from
the same files, written by delta-rs batch by batch as our copy writes them.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from benchmarks.delta.stages import FOLD, StageClock, watch
from benchmarks.delta.workload import COPY_ROWS, SCHEMA, Batch, copied
from etl.destinations.base import CopyBatch, TableChanges, TableMode
from etl.destinations.delta.config import DeltaSettings, Maintenance
from etl.destinations.delta.destination import DeltaDestination
from etl.lsn import Position
from etl.spark.jars import find_jars, jars_directory
from etl.spark.java import find_java
from etl.spark.settings import SparkSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

_MASTER = "local[2]"


class Engine(ABC):
    """One engine in a process of its own."""

    #: The folder of the base; engines of one name share it.
    base_name: ClassVar[str]

    @abstractmethod
    def make(self, base: Path, rows: int) -> None:
        """Make the table in an empty folder."""

    @abstractmethod
    def table(self, folder: Path) -> Path:
        """Where in a base's folder the Delta table is."""

    @abstractmethod
    def open(self, folder: Path) -> None:
        """Work on this copy of a base from now on."""

    @abstractmethod
    def apply(self, batch: Batch) -> None:
        """Apply a batch; durable on return."""

    def stages(self) -> Mapping[str, float]:
        """Seconds by stage since the process began, where they are known."""
        return {}


class Etl(Engine):
    """Our destination with its own settings, from the changes as decoded; no upkeep, as for the others."""

    base_name = "etl"

    def __init__(self) -> None:
        self._clock = StageClock()
        self._epoch = 0
        self._destination: DeltaDestination | None = None
        watch(self._clock)

    def make(self, base: Path, rows: int) -> None:
        """Copy, as an initial copy does."""
        destination = self._opened(base)
        table = destination.destination_table(SCHEMA, TableMode.MIRROR)
        destination.create_table(table, SCHEMA)
        for batch in copied(rows):
            destination.write_table_rows(table, SCHEMA, CopyBatch(batch))
        destination.finish_copy(table, Position.ZERO, rows)
        destination.close()

    def table(self, folder: Path) -> Path:
        """Named after its source."""
        return folder / "public" / "orders"

    def open(self, folder: Path) -> None:
        """Take ownership and read the watermarks, as a start does."""
        if self._destination is not None:
            self._destination.close()
        self._destination = self._opened(folder)
        assert self._destination.watermarks() == {SCHEMA.oid: Position.ZERO}

    def apply(self, batch: Batch) -> None:
        """One write."""
        assert self._destination is not None
        table = self._destination.destination_table(SCHEMA, TableMode.MIRROR)
        with self._clock.stage(FOLD):
            missed = self._destination.write_changes(
                [TableChanges(table, (batch.changes,), batch.changes.last)]
            )
        assert not missed, missed

    def stages(self) -> Mapping[str, float]:
        """See `benchmarks.delta.stages`."""
        return dict(self._clock.seconds)

    def _opened(self, folder: Path) -> DeltaDestination:
        self._epoch += 1
        destination = DeltaDestination(
            DeltaSettings(
                path=str(folder),
                spark=SparkSettings(master=_MASTER),
                maintenance=Maintenance(optimize_commits=0, vacuum_hours=0),
            )
        )
        destination.open(1, self._epoch)
        return destination


class _Peer(Engine):
    """What the peers have in common."""

    base_name = "plain"

    def make(self, base: Path, rows: int) -> None:
        """One append per batch of the copy."""
        from deltalake import write_deltalake

        for batch in copied(rows):
            write_deltalake(self.table(base), batch, mode="append", target_file_size=COPY_ROWS << 10)

    def table(self, folder: Path) -> Path:
        """The one table."""
        return folder / "orders"


class DeltaRs(_Peer):
    """MERGE of delta-rs, of batches that are folded already; files are skipped by the range of the source's keys."""

    _table: DeltaTable

    def open(self, folder: Path) -> None:
        """Load the table."""
        from deltalake import DeltaTable

        self._table = DeltaTable(self.table(folder))

    def apply(self, batch: Batch) -> None:
        """One MERGE."""
        merge = self._table.merge(
            batch.net, "t.id = s.id", source_alias="s", target_alias="t", streamed_exec=False
        )
        (
            merge.when_matched_delete("s.op = 'D'")
            .when_matched_update_all(except_cols=["op"])
            .when_not_matched_insert_all("s.op <> 'D'", except_cols=["op"])
            .execute()
        )


class PlainSpark(_Peer):
    """What a `foreachBatch` with a MERGE does, under the settings that Spark and Delta come with.

    Batches are folded already and arrive by Arrow.
    """

    _spark: SparkSession
    _path: str

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        os.environ["JAVA_HOME"] = str(find_java(os.environ).resolve().parents[1])
        os.environ["PYSPARK_PYTHON"] = sys.executable
        jars = find_jars(jars_directory(os.environ))
        self._spark = (
            SparkSession.builder.master(_MASTER)
            .config("spark.jars", ",".join(map(str, jars)))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .getOrCreate()
        )

    def open(self, folder: Path) -> None:
        """Nothing is kept open."""
        self._path = str(self.table(folder))

    def apply(self, batch: Batch) -> None:
        """One MERGE."""
        from delta.tables import DeltaTable

        source = self._spark.createDataFrame(batch.net)
        (
            DeltaTable.forPath(self._spark, self._path)
            .alias("t")
            .merge(source.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'D'")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll("s.op <> 'D'")
            .execute()
        )


ENGINES: Mapping[str, type[Engine]] = {"etl": Etl, "delta-rs": DeltaRs, "spark": PlainSpark}

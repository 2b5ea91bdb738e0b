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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.delta.stages import FOLD, StageClock, watch
from benchmarks.delta.workload import COPY_ROWS, SCHEMA, Batch, copied
from etl.destinations.base import CopyBatch, TableChanges, TableMode
from etl.destinations.delta.config import DeltaSettings, Maintenance
from etl.destinations.delta.destination import DeltaDestination
from etl.events import OP_DELETE
from etl.lsn import Position
from etl.spark.jars import find_jars, jars_directory
from etl.spark.java import find_java
from etl.spark.settings import SparkSettings

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

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


class _DefaultSpark(_Peer):
    """Spark and Delta under the settings they come with."""

    def __init__(self) -> None:
        from pyspark.sql import SparkSession

        os.environ["JAVA_HOME"] = str(find_java(os.environ).resolve().parents[1])
        os.environ["PYSPARK_PYTHON"] = sys.executable
        jars = find_jars(jars_directory(os.environ))
        self._spark: SparkSession = (
            SparkSession.builder.master(_MASTER)
            .config("spark.jars", ",".join(map(str, jars)))
            .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
            .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
            .getOrCreate()
        )
        self._path = ""

    def _merge(self, source: DataFrame) -> None:
        """Rows of one change per key, with `op`."""
        from delta.tables import DeltaTable

        written = {name: f"s.{name}" for name in (column.name for column in SCHEMA.columns)}
        (
            DeltaTable.forPath(self._spark, self._path)
            .alias("t")
            .merge(source.alias("s"), "t.id = s.id")
            .whenMatchedDelete("s.op = 'D'")
            .whenMatchedUpdate(set=written)
            .whenNotMatchedInsert("s.op <> 'D'", values=written)
            .execute()
        )


class ForeachBatch(_DefaultSpark):
    """The job one would write: a stream of change files, of which each micro-batch is merged by `foreachBatch`.

    A micro-batch has several changes of one key, of which MERGE takes one: the last is chosen by a window, as the
    handbooks do it.
    """

    _query: StreamingQuery | None = None

    def open(self, folder: Path) -> None:
        """Start the stream."""
        if self._query is not None:
            self._query.stop()
        self._path = str(self.table(folder))
        self._incoming = folder / "incoming"
        self._incoming.mkdir()
        changes = self._spark.readStream.schema(_CHANGES).parquet(str(self._incoming))
        self._query = (
            changes.writeStream.foreachBatch(lambda batch, _: self._upsert(batch))
            .option("checkpointLocation", str(folder / "checkpoint"))
            .start()
        )
        self._written = 0

    def apply(self, batch: Batch) -> None:
        """One file, and the micro-batch that it becomes."""
        assert self._query is not None
        self._written += 1
        name = f"{self._written:06}.parquet"
        # readers of a folder take no file whose name begins so
        pq.write_table(_as_they_come(batch), self._incoming / f".{name}")
        (self._incoming / f".{name}").rename(self._incoming / name)
        self._query.processAllAvailable()

    def _upsert(self, changes: DataFrame) -> None:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        newest = Window.partitionBy("id").orderBy(f.col("lsn").desc(), f.col("ordinal").desc())
        self._merge(changes.withColumn("place", f.row_number().over(newest)).where("place = 1"))


class BareMerge(_DefaultSpark):
    """The MERGE alone, of batches that are folded already and arrive by Arrow: what no job gets below."""

    def open(self, folder: Path) -> None:
        """Nothing is kept open."""
        self._path = str(self.table(folder))

    def apply(self, batch: Batch) -> None:
        """One MERGE."""
        self._merge(self._spark.createDataFrame(batch.net))


_CHANGES = (
    "op string, lsn bigint, ordinal bigint, id bigint, n int, label string, amount decimal(12,2), at timestamp,"
    " doc string, flag boolean, score double"
)


def _as_they_come(batch: Batch) -> pa.Table:
    """Every change as a row; of a delete the key alone is set."""
    changes = batch.changes
    assert changes.old is not None
    deletes = changes.ops == OP_DELETE
    ids = pc.replace_with_mask(changes.new.column("id"), pa.array(deletes), changes.old.column("id"))
    letters = pa.array([chr(code) for code in changes.ops.tolist()], pa.string())
    places = [pa.array(array.astype(np.int64)) for array in (changes.commit_lsn, changes.ordinal)]
    rest = [changes.new.column(place) for place in range(1, changes.new.num_columns)]
    return pa.table([letters, *places, ids, *rest], names=["op", "lsn", "ordinal", *changes.new.schema.names])


ENGINES: Mapping[str, type[Engine]] = {
    "etl": Etl,
    "delta-rs": DeltaRs,
    "foreachBatch": ForeachBatch,
    "bare-merge": BareMerge,
}

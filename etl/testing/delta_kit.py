"""The Delta destination for the destination suite: one folder a kit, one Spark for all of them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from etl.destinations.base import Destination, DestinationTable
from etl.destinations.delta.config import DeltaSettings, Maintenance
from etl.destinations.delta.destination import DeltaDestination
from etl.destinations.delta.places import Places
from etl.spark.settings import SparkSettings
from etl.testing.builders import PlainRow
from etl.testing.destination_kit import DestinationKit

#: Tables of a few rows, each with a schema of its own: compiling for them costs more than interpreting.
TEST_SPARK = SparkSettings(
    master="local[2]",
    conf={
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
)


class DeltaKit(DestinationKit):
    """A lake in `directory`."""

    thorough = bool(os.environ.get("ETL_THOROUGH"))
    examples = 20 if thorough else 1

    def __init__(self, directory: Path, spark: SparkSettings = TEST_SPARK) -> None:
        self._directory = directory
        self._names = count()
        self.settings = DeltaSettings(
            path=str(directory / "lake"),
            spark=spark,
            maintenance=Maintenance(optimize_commits=0, vacuum_hours=0),
        )

    def connect(self) -> Destination:
        """One more destination over the folder."""
        lake = self._directory / "lake"
        if not lake.exists() and self.settings.spark is TEST_SPARK:
            shutil.copytree(_opened_once(), lake)
        return DeltaDestination(self.settings)

    def rows(self, table: DestinationTable) -> list[PlainRow]:
        """As a second engine reads them: what Spark wrote must mean the same to delta-rs."""
        place = Places(self.settings).table(table.name)
        engine = QueryBuilder()
        engine.register("wanted", DeltaTable(str(place.folder)))
        found: list[PlainRow] = pa.table(engine.execute("SELECT * FROM wanted").read_all()).to_pylist()
        return [{name: _aware(value) for name, value in row.items()} for row in found]

    def fresh(self) -> DestinationKit:
        """Another folder."""
        directory = self._directory / f"fresh{next(self._names)}"
        directory.mkdir()
        return DeltaKit(directory, self.settings.spark)


@cache
def _opened_once() -> Path:
    """A lake that a pipeline without tables has opened: making it anew for each kit would take as long as many a rule."""
    lake = Path(tempfile.mkdtemp(prefix="etl-lake-")) / "lake"
    atexit.register(shutil.rmtree, lake.parent, ignore_errors=True)
    destination = DeltaDestination(DeltaSettings(path=str(lake), spark=TEST_SPARK))
    destination.open(pipeline_id=0, epoch=1)
    destination.close()
    return lake


def _aware(value: object) -> object:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo is not None else value

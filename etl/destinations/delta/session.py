"""One Spark session: statements, commits that carry a stamp, staged rows in, Spark's errors out as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from etl.destinations.delta.dialect import type_of
from etl.destinations.delta.failures import Failure, failure_of, translated, unmarked
from etl.destinations.delta.places import Place
from etl.destinations.delta.stamp import Stamp
from etl.destinations.delta.storage import Staging
from etl.errors import DestinationUnavailableError
from etl.spark.session import is_alive, new_session
from etl.spark.settings import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

Row = tuple[Any, ...]
Result = TypeVar("Result")

_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_TXN_APP: Final = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION: Final = "spark.databricks.delta.write.txnVersion"
#: How often a commit that lost against another writer is tried again: it changed nothing, and its version is unused.
_ATTEMPTS: Final = 5
#: How long a JVM that failed without a reason is watched, in seconds: it may be about to end.
_DYING_S: Final = 5.0


class Session:
    """An open session. Several threads may read by one; only one at a time may commit."""

    def __init__(self, settings: SparkSettings, staging: Staging, place: str) -> None:
        """`place` names the lake in errors. Raises `SparkSetupError`, `DestinationUnavailableError`."""
        self._spark: SparkSession = new_session(settings)
        self._staging = staging
        self._place = place
        self._views = count()

    def rows(self, sql: str, table: str | None = None) -> list[Row]:
        """Execute one statement and fetch all rows.

        `table` is the destination table to blame for what is refused. Raises `DestinationError`.
        """
        with self._translating(table):
            return [tuple(row) for row in self._execute(sql)]

    def arrow(self, sql: str, schema: pa.Schema, table: str | None = None) -> pa.Table:
        """Execute one statement and fetch all rows as columns of `schema`. Raises `DestinationError`."""
        with self._translating(table):
            return self._spark.sql(sql).toArrow().cast(schema)

    def schema(self, sql_name: str) -> StructType | None:
        """The columns of a table as Spark reads them, None when there is no such table."""
        try:
            return self._spark.table(sql_name).schema
        except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
            if failure_of(error) is Failure.GONE:
                return None
            raise self._translated(error, None) from None

    def user_metadata(self, sql_name: str, limit: int | None) -> list[str | None]:
        """What the commits of a table say about themselves, the newest first."""
        newest = "" if limit is None else f" LIMIT {limit:d}"
        with self._translating():
            history = self._spark.sql(f"DESCRIBE HISTORY {sql_name}{newest}")
            return [row[0] for row in history.select("userMetadata").collect()]

    def commit(
        self,
        sql: str,
        stamp: Stamp,
        table: str | None = None,
        *,
        version: int | None = None,
    ) -> list[Row]:
        """Execute a statement that commits at most once to one table, and have the commit say `stamp`.

        With a `version` a commit that is repeated, or that a newer run has ruled out, is left out by Delta itself.
        A commit that lost against another writer is tried again.
        """
        return self._commit(lambda: [tuple(row) for row in self._execute(sql)], stamp, table, version=version)

    def replace(
        self, place: Place, source: Place, stamp: Stamp, table: str | None = None, *, version: int
    ) -> None:
        """Put the rows and the schema of `source` in the place of those of `place`, in one commit as of `commit`."""

        def overwrite() -> None:
            rows = self._spark.table(source.sql).write.format("delta").mode("overwrite")
            rows = rows.option("overwriteSchema", "true")
            if place.folder is not None:
                rows.save(place.folder)
            else:
                rows.saveAsTable(place.sql)

        self._commit(overwrite, stamp, table, version=version)

    def _commit(
        self, action: Callable[[], Result], stamp: Stamp, table: str | None, *, version: int | None
    ) -> Result:
        with self._confs(stamp, version):
            for attempt in range(_ATTEMPTS):
                try:
                    return action()
                except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
                    if failure_of(error) is not Failure.CONFLICT or attempt == _ATTEMPTS - 1:
                        raise self._translated(error, table) from None
        raise AssertionError

    @contextmanager
    def staged(self, data: pa.Table) -> Iterator[str]:
        """Make rows readable in SQL under the returned name, with the columns and types of `data`."""
        with self._staging.file(data) as file, self.staged_files([file], data.schema) as view:
            yield view

    @contextmanager
    def staging_folder(self) -> Iterator[str]:
        """The address of a folder that executors can write to; see `staged_files`."""
        with self._staging.folder() as address:
            yield address

    @contextmanager
    def staged_files(self, files: Sequence[str], schema: pa.Schema) -> Iterator[str]:
        """Make the rows of Parquet files readable in SQL under the returned name, with the columns of `schema`."""
        view = f"etl_staged_{next(self._views)}"
        fields = ", ".join(f"`{field.name}` {type_of(field.type)}" for field in schema)
        with self._translating():
            self._spark.read.schema(fields).parquet(*files).createOrReplaceTempView(view)
        try:
            yield view
        finally:
            self._drop_view(view)

    def run(
        self, numbers: range, partitions: int, task: Callable[[Iterable[int]], Iterable[Result]]
    ) -> list[Result]:
        """Have executors call `task`, each with a part of the numbers, and return all that they return.

        Raises the `EtlError` that a task told of by `failures.marked`, and `DestinationError`.
        """
        with self._translating():
            numbered = self._spark.sparkContext.parallelize(numbers, partitions)
            return numbered.mapPartitions(task).collect()

    @contextmanager
    def interruptible(self, name: str) -> Iterator[None]:
        """What the calling thread does inside is ended by `interrupt` with this name."""
        context = self._spark.sparkContext
        context.addJobTag(name)
        try:
            yield
        finally:
            if is_alive(self._spark):
                with self._translating():
                    context.removeJobTag(name)

    def interrupt(self, name: str) -> None:
        """End the work of this name; no error when there is none."""
        if is_alive(self._spark):
            with self._translating():
                self._spark.sparkContext.cancelJobsWithTag(name)

    def _drop_view(self, view: str) -> None:
        if is_alive(self._spark):
            with self._translating():
                self._spark.catalog.dropTempView(view)

    def _execute(self, sql: str) -> list[Any]:
        return self._spark.sql(sql).collect()

    @contextmanager
    def _confs(self, stamp: Stamp, version: int | None) -> Iterator[None]:
        confs = {_METADATA: stamp.text()}
        if version is not None:
            confs |= {_TXN_APP: f"etl-{stamp.pipeline_id}-{stamp.oid}", _TXN_VERSION: str(version)}
        try:
            with self._translating():
                for name, value in confs.items():
                    self._spark.conf.set(name, value)
            yield
        finally:
            if is_alive(self._spark):
                with self._translating():
                    for name in confs:
                        self._spark.conf.unset(name)

    @contextmanager
    def _translating(self, table: str | None = None) -> Iterator[None]:
        """Spark's errors as ours, whatever it is asked: a JVM that is about to end may still look alive."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- py4j, pyspark, grpc and sockets raise their own
            raise self._translated(error, table) from None

    def _translated(self, error: Exception, table: str | None) -> Exception:
        ours = unmarked(str(error))
        if ours is not None:
            return ours
        # what py4j says of a JVM that does not answer any more has many forms, that of a faulty call among them
        patience_s = _DYING_S if failure_of(error) is Failure.OTHER else 0.0
        if not is_alive(self._spark, patience_s):
            return DestinationUnavailableError(
                f"the JVM of Spark ended while it worked on {self._place}",
                hint="it is started again; if this comes back, see its log and raise spark.driver.memory",
            )
        if failure_of(error) is Failure.GONE and self._staging.address in str(error):
            return DestinationUnavailableError(
                f"rows staged in {self._staging.address} are gone before Spark read them",
                hint="on a cluster, staging must be storage that every executor reads; otherwise it is tried again",
            )
        return translated(error, self._place, table)

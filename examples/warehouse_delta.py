"""The demo's Delta Lake: a folder of tables, read by a Spark of the demo's own once the daemon's has ended."""

from __future__ import annotations

import json
import os
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from etl.errors import SparkSetupError
from etl.lsn import Lsn, Position
from etl.spark.session import check_spark, new_session
from etl.spark.settings import SparkSettings
from examples.warehouse import Look, Warehouse, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
_SCHEMA_OPERATIONS = ("ADD COLUMNS", "RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN")


class DeltaWarehouse(Warehouse):
    """A lake in a folder."""

    title = "Delta"
    pipeline = Path(__file__).with_name("delta.yaml")
    notice = "Spark starts first: ten to twenty seconds on an idle machine"
    wait_s = 600.0  # a JVM on a loaded machine starts in its own time

    def __init__(self, folder: Path) -> None:
        self._lake = folder / "lake"
        self._orders = f"delta.`{self._lake}/public/orders`"
        self._customers = f"delta.`{self._lake}/public/customers`"
        self._conf = {"spark.sql.warehouse.dir": str(folder / "spark-warehouse")}

    def missing(self) -> str | None:
        """Java, or the jars of Spark."""
        try:
            check_spark(SparkSettings())
        except SparkSetupError as error:
            return f"{error.message}; {error.hint}"
        return None

    def environment(self) -> dict[str, str]:
        """The folder, and what Spark needs from this process' environment."""
        jars = {name: os.environ[name] for name in ("ETL_JARS_DIR",) if name in os.environ}
        return jars | {
            "ETL__DESTINATION__PATH": str(self._lake),
            "ETL__DESTINATION__SPARK__CONF": json.dumps(self._conf),
        }

    def look(self) -> Look:
        """The newest orders, and totals."""
        newest = self._spark.sql(
            "SELECT id, customer_id, CAST(amount AS string) AS amount, status, remark"
            f" FROM {self._orders} ORDER BY id DESC LIMIT 7"
        )
        totals = self._spark.sql(
            "SELECT count(*), sum(id), CAST(sum(amount) AS string), (SELECT count(*)"
            f" FROM {self._customers}) FROM {self._orders}"
        )
        return Look(newest.columns, [tuple(row) for row in newest.collect()], tuple(totals.collect()[0]))

    def columns(self) -> list[tuple[Any, ...]]:
        """As Spark reads them: defaults and comments are metadata of the fields."""
        return [
            (
                field.name,
                field.dataType.simpleString(),
                field.metadata.get("CURRENT_DEFAULT"),
                field.metadata.get("comment"),
            )
            for field in self._spark.table(self._orders).schema.fields
        ]

    def history(self, schema_log: Sequence[dict[str, Any]]) -> Table | None:
        """Every commit of orders: its watermark, and the schema version that begins with it."""
        history = self._spark.sql(f"DESCRIBE HISTORY {self._orders}")
        commits = [
            Commit.of(*row)
            for row in history.select("version", "operation", "userMetadata").orderBy("version").collect()
        ]
        begun = schema_versions(commits, schema_log)
        shown = table(
            "Delta: DESCRIBE HISTORY of orders, beside the schema log",
            ["version", "operation", "watermark", "schema version", "what changed"],
            [
                (commit.version, commit.operation, commit.position, *begun.get(commit.version, ("", "")))
                for commit in commits
            ],
        )
        shown.caption = f"version {commits[-1].version} is the source up to {commits[-1].position}: equal"
        shown.caption_justify = "left"
        return shown

    @cached_property
    def _spark(self) -> SparkSession:
        with _quiet():
            return new_session(SparkSettings(conf=self._conf))


@dataclass(frozen=True, slots=True)
class Commit:
    """One version of a Delta table, with what etl says in it; `watermark` is None where it moves none."""

    version: int
    operation: str
    watermark: Position | None

    @classmethod
    def of(cls, version: int, operation: str, said: str | None) -> Commit:
        """From ``DESCRIBE HISTORY``; `said` is the user metadata."""
        watermark = json.loads(said)["etl"].get("watermark") if said else None
        return cls(version, operation, Position.parse(watermark) if watermark else None)

    @property
    def position(self) -> str:
        """The watermark for people."""
        if self.watermark is None:
            return ""
        at_end = self.watermark == Position.end_of(self.watermark.commit_lsn)
        return f"{self.watermark.commit_lsn}, end" if at_end else str(self.watermark)


def schema_versions(
    commits: Sequence[Commit], schema_log: Sequence[dict[str, Any]]
) -> dict[int, tuple[str, str]]:
    """Delta version → the schema version that begins with it, and what it changed.

    A schema change is one commit an operation, then one that moves the watermark to its place in the log.
    """
    waiting: dict[Lsn, deque[tuple[str, str]]] = defaultdict(deque)
    for entry in schema_log:
        waiting[Lsn.parse(entry["commit_lsn"])].append((entry["snapshot_id"], "; ".join(entry["changes"])))
    begun: dict[int, tuple[str, str]] = {}
    first = None
    for commit in commits:
        if commit.operation == "CREATE TABLE":
            begun[commit.version] = waiting[Lsn(0)].popleft()
        elif commit.operation in _SCHEMA_OPERATIONS:
            first = commit.version if first is None else first
        elif first is not None and commit.watermark is not None:
            begun[first] = waiting[commit.watermark.commit_lsn].popleft()
            first = None
    return begun


@contextmanager
def _quiet() -> Iterator[None]:
    """A JVM greets on standard error before its log is set up; what fails comes back as an error anyhow."""
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)

"""A pipeline whose Spark is a cluster: the configuration names its master, and nothing else is different.

A standalone master and two workers run on this machine, from the classes that pyspark ships.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from etl.spark.java import find_java
from etl.testing.cluster import free_port
from etl.testing.daemon import wait_until
from etl.testing.delta_reader import delta_settings
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WORKERS = 2
#: The driver listens where the executors are; both are small.
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """A master's address, and the folders in which each worker keeps its executors."""

    address: str
    workers: tuple[Path, ...]

    def finished_tasks(self) -> list[int]:
        """How many tasks the executors of each worker have finished, by their logs."""
        return [
            sum(log.read_text().count("Finished task ") for log in worker.glob("app-*/*/stderr"))
            for worker in self.workers
        ]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    master, web = free_port(), free_port()
    address = f"spark://127.0.0.1:{master}"
    folders = tuple(tmp_path / f"worker{number}" for number in range(WORKERS))
    at = ("--host", "127.0.0.1")
    with daemon(
        "master.Master", *at, "--port", str(master), "--webui-port", str(web), log=tmp_path / "master.log"
    ):
        wait_for_workers(web, 0)
        small = ("--cores", "1", "--memory", "1g")
        with (
            daemon(
                "worker.Worker", *at, *small, "--work-dir", str(folders[0]), address, log=tmp_path / "w0.log"
            ),
            daemon(
                "worker.Worker", *at, *small, "--work-dir", str(folders[1]), address, log=tmp_path / "w1.log"
            ),
        ):
            wait_for_workers(web, WORKERS)
            yield Cluster(address, folders)


@contextmanager
def daemon(name: str, *arguments: str, log: Path) -> Iterator[None]:
    """One of Spark's own daemons."""
    package = find_spec("pyspark")
    assert package is not None
    assert package.origin is not None
    home = Path(package.origin).parent
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(find_java(os.environ).resolve().parents[1]),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1",
    }
    command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            yield
        finally:
            process.terminate()


def wait_for_workers(web: int, count: int) -> None:
    """Wait until the master answers, and has so many workers."""
    wait_until(
        lambda: (state := master_state(web)) is not None and state["aliveworkers"] >= count,
        f"{count} workers",
        said=lambda: str(master_state(web)),
    )


def master_state(web: int) -> dict[str, Any] | None:
    try:
        with urlopen(f"http://127.0.0.1:{web}/json/", timeout=10) as answer:
            state: dict[str, Any] = json.load(answer)
            return state
    except (OSError, HTTPException, ValueError):
        # a page that is only just being served may break off
        return None


def test_a_cluster_does_the_work_when_the_configuration_names_its_master(
    database: Database, tmp_path: Path, cluster: Cluster, warm: WarmEtl
):
    destination = delta_settings(
        tmp_path / "lake",
        staging=str(tmp_path / "staging"),
        spark={"master": cluster.address, "conf": CONF},
    )
    settings = {"destination": destination, "table_sync": {"read_by": "executors", "range_bytes": "8KiB"}}
    pipeline = PipelineUnderTest(database, tmp_path, settings, warm=warm)
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        "INSERT INTO items SELECT n, 'copied' FROM generate_series(1, 1000) n",
    )
    pipeline.publish("items")
    pipeline.once()
    pipeline.transaction(
        "UPDATE items SET a = 'changed' WHERE id % 2 = 0",
        "DELETE FROM items WHERE id % 3 = 0",
        "ALTER TABLE items ADD COLUMN b int",
        "INSERT INTO items SELECT n, 'new', n FROM generate_series(1001, 1500) n",
    )
    pipeline.once()

    pipeline.assert_settled("public.items")
    assert all(count > 0 for count in cluster.finished_tasks()), cluster.finished_tasks()
    assert list((tmp_path / "staging").glob("*.parquet")) == []

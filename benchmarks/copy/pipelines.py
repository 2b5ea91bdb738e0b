"""The whole of an initial copy: `etl replicate` in a process of its own, from the first read to the table complete.

Run by `benchmarks.copy.run`. What came to the destination is counted by another engine than wrote it, or another process.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from benchmarks.copy.tree import ProcessTree
from etl.testing.daemon import Daemon
from etl.testing.harness import PUBLICATION, PipelineUnderTest
from etl.testing.postgres import Database

_CONNECTIONS: Final = {"connections": 4, "connections_per_table": 4}


@dataclass(slots=True)
class Copied:
    """`wall_s` from the first read until the table is complete; `rss_mb` of etl, and of it with its JVM and workers."""

    wall_s: float
    cpu_s: float
    rss_mb: float
    tree_rss_mb: float
    rows: int
    ids: int


@dataclass(frozen=True, slots=True)
class CopyPipeline:
    """One destination, and who reads."""

    destination: Callable[[Path], dict[str, Any]]
    table_sync: Mapping[str, Any] = field(default_factory=dict)

    def copy(self, database: Database) -> Copied:
        """Copy table ``t`` with four connections."""
        with tempfile.TemporaryDirectory(prefix="etl-bench-copy-") as folder:
            directory = Path(folder)
            settings = {
                "destination": self.destination(directory),
                "table_sync": {**_CONNECTIONS, **self.table_sync},
            }
            pipeline = PipelineUnderTest(database, directory, settings)
            pipeline.sql(f"DROP PUBLICATION IF EXISTS {PUBLICATION}")
            pipeline.publish("t")
            try:
                return _measured(pipeline)
            finally:
                pipeline.etl("destroy", "--yes")


def _measured(pipeline: PipelineUnderTest) -> Copied:
    with pipeline.running() as daemon:
        daemon.wait_for_log("streaming_started")
        tree = ProcessTree(daemon.process.pid)
        while not daemon.count_log("table_copied"):
            tree.look()
            if daemon.process.poll() is not None:
                raise SystemExit(daemon.log[-4000:])
        wall, cpu = _seconds(daemon), tree.cpu_s()
        daemon.terminate()
    ((rows, ids),) = pipeline.rows("public.t", "count(*), CAST(sum(id) AS BIGINT)")
    return Copied(wall, cpu, tree.root_mb, tree.all_mb, rows, ids)


def _seconds(daemon: Daemon) -> float:
    """Between the log's own times."""
    events = [line for line in _events(daemon) if line["event"] in ("table_state_changed", "table_copied")]
    begun = next(line for line in events if line.get("state") == "data_sync")
    ended = next(line for line in events if line["event"] == "table_copied")
    return (_time(ended) - _time(begun)).total_seconds()


def _events(daemon: Daemon) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.splitlines() if line.startswith("{")]


def _time(line: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])

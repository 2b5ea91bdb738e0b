"""What the life of tables costs the others: many small copies, a table that fails, tables that come and go.

Lag is the time from a commit at the source until the pipeline has recorded it as durable, seen by a probe that writes a
row, waits for it, and writes the next. Each figure stands beside the same without the disturbance, from the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from etl.testing.daemon import wait_until
from etl.testing.harness import PUBLICATION, PipelineUnderTest
from etl.testing.inprocess import Poisoned, running_here
from etl.testing.postgres import PostgresServer, start_postgres

OUT = Path("benchmarks/out/lifecycle.json")


@contextmanager
def pipeline_on(server: PostgresServer, **settings: Any) -> Iterator[PipelineUnderTest]:
    """A pipeline of its own database."""
    with server.database() as database, tempfile.TemporaryDirectory(prefix="etl-lifecycle-") as directory:
        yield PipelineUnderTest(database, Path(directory), settings)


def tables(pipeline: PipelineUnderTest, count: int, rows: int) -> list[str]:
    """Tables ``t0`` and so on, and the probe."""
    names = [f"t{number}" for number in range(count)]
    for name in (*names, "probe"):
        pipeline.sql(
            f"CREATE TABLE {name} (id bigint PRIMARY KEY, note text)",
            f"INSERT INTO {name} SELECT g, 'copied' FROM generate_series(1, {rows}) g",
        )
    return names


def wait_ready(pipeline: PipelineUnderTest, count: int) -> None:
    """Wait until so many tables stream."""
    wait_until(lambda: list(pipeline.states().values()).count("ready") == count, f"{count} tables")


class Load(threading.Thread):
    """Inserts a row into each table, round and round, in one transaction a round."""

    def __init__(self, pipeline: PipelineUnderTest, names: list[str], pause_s: float) -> None:
        super().__init__(daemon=True)
        self._pipeline, self._names, self._pause_s = pipeline, names, pause_s
        self._stop_asked = threading.Event()
        self.rows = 0

    def run(self) -> None:
        """Until `stop`."""
        number = 1_000_000
        with self._pipeline.database.connect() as connection:
            while not self._stop_asked.wait(self._pause_s):
                with connection.transaction():
                    for name in self._names:
                        connection.execute(f"INSERT INTO {name} VALUES (%s, 'load')".encode(), (number,))
                number += 1
                self.rows += len(self._names)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._stop_asked.set()
        self.join()


def lags(pipeline: PipelineUnderTest, seconds: float) -> list[float]:
    """Seconds from commit to durable, one probe after the other."""
    found: list[float] = []
    end = time.monotonic() + seconds
    with pipeline.database.connect() as connection:
        row = connection.execute("SELECT max(id) FROM probe").fetchone()
        number = int(row[0]) if row else 0
        while time.monotonic() < end:
            number += 1
            began = time.monotonic()
            connection.execute("INSERT INTO probe VALUES (%s, 'probe')", (number,))
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            while True:
                done = connection.execute(
                    "SELECT flush_lsn >= %s::pg_lsn FROM etl.replication_progress WHERE worker_type = 'apply'",
                    row,
                ).fetchone()
                if done == (True,):
                    break
                time.sleep(0.002)
            found.append(time.monotonic() - began)
    return found


def quantiles(found: list[float]) -> dict[str, float]:
    """Milliseconds."""
    return {f"p{q}_ms": float(np.percentile(found, q)) * 1000 for q in (50, 95, 99)} | {"probes": len(found)}


def many_tables(server: PostgresServer, count: int) -> dict[str, Any]:
    """From the start of a pipeline with so many small tables until all stream."""
    with pipeline_on(server) as pipeline:
        names = tables(pipeline, count - 1, 100)
        pipeline.publish(*names, "probe")
        most, began = 0, time.monotonic()
        with running_here(pipeline):
            while list(pipeline.states().values()).count("ready") < count:
                (row,) = pipeline.query(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'supabase_etl%%'"
                    " AND datname = current_database()"
                )
                most = max(most, int(row[0]))
                time.sleep(0.05)
            seconds = time.monotonic() - began
    return {"tables": count, "seconds": seconds, "most_connections": most}


def beside(
    server: PostgresServer,
    count: int,
    seconds: float,
    disturb: Callable[[PipelineUnderTest, Poisoned], Callable[[], None]],
) -> dict[str, Any]:
    """Lag of the others before and during a disturbance; `disturb` returns what ends it."""
    with pipeline_on(server) as pipeline:
        names = tables(pipeline, count - 1, 10)
        pipeline.publish(*names, "probe")
        with running_here(pipeline) as destination:
            wait_ready(pipeline, count)
            load = Load(pipeline, names, 0.05)
            load.start()
            calm = lags(pipeline, seconds)
            heal = disturb(pipeline, destination)
            disturbed = lags(pipeline, seconds)
            retained = int(
                pipeline.query(
                    "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn) FROM pg_replication_slots"
                )[0][0]
            )
            heal()
            load.stop()
            wait_until(lambda: set(pipeline.states().values()) == {"ready"}, "everything to stream")
            end = pipeline.written()
            pipeline.move_on()
            wait_until(lambda: pipeline.progress() >= end, "the end")
        for name in (*names, "probe"):
            pipeline.assert_equal(f"public.{name}")
    before, during = quantiles(calm), quantiles(disturbed)
    return {
        "tables": count,
        "rows": load.rows,
        "calm": before,
        "disturbed": during,
        "p99_ratio": during["p99_ms"] / before["p99_ms"],
        "unconfirmed_bytes": retained,
    }


def poison(_: PipelineUnderTest, destination: Poisoned) -> Callable[[], None]:
    """One table's rows are refused."""
    destination.poisoned = "public.t7"
    wait_until(lambda: destination.refused > 1, "the first refusals")
    return lambda: setattr(destination, "poisoned", None)


def come_and_go(pipeline: PipelineUnderTest, _: Poisoned) -> Callable[[], None]:
    """A table is taken out of the publication and put back, over and over."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE t3")
            wait_until(lambda: "public.t3" not in pipeline.states(), "the table to leave")
            pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE t3")
            wait_until(lambda: pipeline.states().get("public.t3") == "ready", "the table to stream")

    thread = threading.Thread(target=work, daemon=True)
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    return end


def main() -> None:
    """Run all three and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small-tables", type=int, default=200)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=600, help="of calm, and of disturbance")
    given = parser.parse_args()
    os.environ.setdefault("ETL_LOG_LEVEL", "warning")
    with start_postgres() as server:
        found = {
            "many_tables": many_tables(server, given.small_tables),
            "poisoned": beside(server, given.tables, given.seconds, poison),
            "come_and_go": beside(server, given.tables, given.seconds, come_and_go),
        }
    print(json.dumps(found, indent=2))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()

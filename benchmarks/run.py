"""``make bench``: how close we are to the limit of the server.

One server of our own, one workload at a time; every consumer reads the same WAL through a slot that stood at the same
place before the workload began. Repeats are interleaved. Ratios are rows per second of a consumer divided by those of
`pg_recvlogical` writing to /dev/null in the same round; figures in seconds are of this machine and mean nothing elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from psycopg.conninfo import conninfo_to_dict

from benchmarks.workloads import PUBLICATION, SCHEMA, Workload, workloads
from etl.testing.postgres import Database, start_postgres

OUT = Path(__file__).parent / "out" / "latest.json"
REFERENCE = "pg_recvlogical"
CONSUMERS = (REFERENCE, "decode", "duckdb")
_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "30min",
    "autovacuum": "off",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "synchronous_commit": "off",
    "logical_decoding_work_mem": "256MB",
}


@dataclass(frozen=True, slots=True)
class Sample:
    """One consumer, one round: seconds of wall time and CPU (client and walsender), peak memory of the client."""

    wall_s: float
    cpu_s: float
    server_cpu_s: float
    rss_mb: float


class Bench:
    """One database, one workload, all consumers."""

    def __init__(self, database: Database, directory: Path, repeats: int) -> None:
        self._database = database
        self._directory = directory
        self._repeats = repeats
        self._next_id = 100

    def run(self, workload: Workload) -> dict[str, list[Sample]]:
        """Prepare every slot, write the WAL once, then read it with every consumer, round by round."""
        rounds = [self._prepare(workload.name) for _ in range(self._repeats)]
        with self._database.connect() as connection:
            workload.run(connection)
            row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            connection.execute(
                "SELECT pg_log_standby_snapshot()"
                if connection.info.server_version >= 160000
                else "CHECKPOINT"
            )
        until = str(row[0]) if row else "0/0"
        consumers = [each for each in CONSUMERS if not (workload.has_ddl and each == "decode")]
        samples: dict[str, list[Sample]] = {consumer: [] for consumer in consumers}
        for pipeline_id, pipeline in rounds:
            for consumer in consumers:
                samples[consumer].append(self._measure(consumer, pipeline_id, pipeline, until, workload))
        for pipeline_id, _ in rounds:
            self._drop(pipeline_id)
        return samples

    def _prepare(self, name: str) -> tuple[int, Path]:
        """A pipeline that has copied what is there, and two more slots at the same place in the WAL."""
        self._next_id += 1
        pipeline = self._directory / f"{name}-{self._next_id}.yaml"
        known = conninfo_to_dict(self._database.dsn)
        source = {
            k: (int(v) if k == "port" else v)
            for k, v in known.items()
            if k in {"host", "port", "dbname", "user", "password"}
        }
        pipeline.write_text(
            yaml.safe_dump(
                {
                    "pipeline": {"id": self._next_id, "publication": PUBLICATION},
                    "source": source,
                    "destination": {"type": "duckdb", "path": str(pipeline.with_suffix(".duckdb"))},
                }
            )
        )
        self._etl("replicate", "--once", "--pipeline", str(pipeline))
        with self._database.connect() as connection:
            for consumer in (REFERENCE, "decode"):
                connection.execute(
                    "SELECT pg_copy_logical_replication_slot(%s, %s)",
                    (f"supabase_etl_apply_{self._next_id}", _slot(consumer, self._next_id)),
                )
        return self._next_id, pipeline

    def _measure(
        self, consumer: str, pipeline_id: int, pipeline: Path, until: str, workload: Workload
    ) -> Sample:
        with self._walsender_cpu() as server:
            if consumer == REFERENCE:
                sample = self._reference(pipeline_id, until)
            else:
                sample = self._ours(consumer, pipeline_id, pipeline, until)
        if consumer == "decode" and sample["rows"] != workload.rows:
            raise SystemExit(
                f"decode saw {sample['rows']} rows of {workload.rows}: a fast wrong answer is no answer"
            )
        if consumer == "duckdb":
            self._check_rows(pipeline, workload.table)
        return Sample(sample["wall_s"], sample["cpu_s"], server[0], sample["rss_mb"])

    def _reference(self, pipeline_id: int, until: str) -> dict[str, float]:
        tool = self._database.server.pg_tool("pg_recvlogical")
        if tool is None:
            raise SystemExit(
                "pg_recvlogical is not among this server's tools: install the Postgres client programs"
            )
        command = [str(tool), "-d", self._database.dsn, "--slot", _slot(REFERENCE, pipeline_id), "--start"]
        command += ["-f", "/dev/null", "--endpos", until, "-F", "0", "--no-loop"]
        command += ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}", "-o", "messages=true"]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        wall = time.perf_counter() - started
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        return {"wall_s": wall, "cpu_s": cpu, "rss_mb": 0.0, "rows": 0}

    def _ours(self, consumer: str, pipeline_id: int, pipeline: Path, until: str) -> dict[str, float]:
        command = [sys.executable, "-m", "benchmarks.consumers", consumer, "--until", until]
        if consumer == "decode":
            command += [
                "--dsn",
                self._database.dsn,
                "--slot",
                _slot(consumer, pipeline_id),
                "--publication",
                PUBLICATION,
            ]
        else:
            command += ["--pipeline", str(pipeline)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{consumer} failed:\n{done.stderr[-3000:]}")
        result: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
        return result

    def _check_rows(self, pipeline: Path, table: str) -> None:
        import duckdb

        total = f"SELECT count(*), sum(id) FROM public.{table}"
        with self._database.connect() as connection:
            expected = connection.execute(total.encode()).fetchone()
        with duckdb.connect(str(pipeline.with_suffix(".duckdb")), read_only=True) as warehouse:
            actual = warehouse.execute(total).fetchone()
        if expected != actual:
            raise SystemExit(
                f"DuckDB holds {actual}, the source {expected}: a fast wrong answer is no answer"
            )

    def _drop(self, pipeline_id: int) -> None:
        with self._database.connect() as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE %s",
                (f"%\\_{pipeline_id}",),
            )

    def _etl(self, *arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "etl.cli", *arguments], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"etl {arguments[0]} failed:\n{done.stderr[-3000:]}")

    @contextmanager
    def _walsender_cpu(self) -> Iterator[list[float]]:
        """CPU seconds of the walsender that serves the block, sampled from /proc while it lives."""
        spent, done = [0.0], threading.Event()

        def sample() -> None:
            with self._database.connect() as connection:
                while not done.wait(0.02):
                    rows = connection.execute("SELECT pid FROM pg_stat_replication").fetchall()
                    for (pid,) in rows:
                        spent[0] = max(spent[0], _cpu_of(pid))

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield spent
        finally:
            done.set()
            thread.join()


def _cpu_of(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _slot(consumer: str, pipeline_id: int) -> str:
    return f"bench_{consumer}_{pipeline_id}"


def _summary(samples: dict[str, list[Sample]], rows: int) -> dict[str, Any]:
    reference = samples[REFERENCE]
    summary: dict[str, Any] = {}
    for consumer, taken in samples.items():
        ratios = [
            ours.wall_s and theirs.wall_s / ours.wall_s for ours, theirs in zip(taken, reference, strict=True)
        ]
        summary[consumer] = {
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "cpu_us_per_row": 1e6 * statistics.median(s.cpu_s for s in taken) / rows,
            "server_cpu_us_per_row": 1e6 * statistics.median(s.server_cpu_s for s in taken) / rows,
            "rows_per_s": rows / statistics.median(s.wall_s for s in taken),
            "rss_mb": max(s.rss_mb for s in taken),
        }
    return summary


def _print(name: str, rows: int, summary: dict[str, Any]) -> None:
    print(f"\n{name}: {rows:,} rows")
    print(
        f"{'consumer':<16}{'ratio':>8}{'min-max':>14}{'rows/s':>12}{'client µs/row':>15}{'server µs/row':>15}{'RSS MB':>8}"
    )
    for consumer, s in summary.items():
        spread = f"{s['ratio_min']:.2f}-{s['ratio_max']:.2f}"
        print(
            f"{consumer:<16}{s['ratio']:>8.2f}{spread:>14}{s['rows_per_s']:>12,.0f}"
            f"{s['cpu_us_per_row']:>15.2f}{s['server_cpu_us_per_row']:>15.2f}{s['rss_mb']:>8.0f}"
        )


def main() -> None:
    """Run the workloads that are asked for and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workloads", default="insert,update,delete,small,large,wide,jsonb,ddl")
    given = parser.parse_args()
    results: dict[str, dict[str, Any]] = {}
    with (
        start_postgres(_SETTINGS, own=True) as server,
        server.database() as database,
        tempfile.TemporaryDirectory(prefix="etl-bench-") as directory,
    ):
        print(f"Postgres {server.provider}, {given.repeats} repeats, ratios to {REFERENCE} > /dev/null")
        with database.connect() as connection:
            connection.execute(SCHEMA.encode())
        bench = Bench(database, Path(directory), given.repeats)
        available = workloads(given.rows)
        for name in given.workloads.split(","):
            workload = available[name]
            results[name] = _summary(bench.run(workload), workload.rows)
            _print(name, workload.rows, results[name])
    _write(results)


def _write(results: dict[str, dict[str, Any]]) -> None:
    first = next(iter(results.values()))
    document = {
        "ratios": {consumer: first[consumer]["ratio"] for consumer in CONSUMERS if consumer != REFERENCE},
        "rss_mb": {
            consumer: max(summary[consumer]["rss_mb"] for summary in results.values() if consumer in summary)
            for consumer in CONSUMERS
            if consumer != REFERENCE
        },
        "workloads": results,
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(document, indent=2) + "\n")
    print(
        f"\nwritten: {OUT.relative_to(Path.cwd())}" if OUT.is_relative_to(Path.cwd()) else f"\nwritten: {OUT}"
    )


if __name__ == "__main__":
    main()

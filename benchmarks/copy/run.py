"""``make bench-copy``: reading a table for its initial copy, beside psql and other readers.

One server of our own, one table of eight columns, one reader at a time; repeats are interleaved. The reference is
``COPY t TO STDOUT`` in text format by psql into /dev/null: what one backend can print. Ours and the peers read the
table into Arrow and drop it; each must have seen every row. Figures in seconds are of this machine, ratios are of the
same round.

Then the whole of a copy, with four connections: ``etl replicate`` into DuckDB, into Delta, and into Delta with Spark's
executors as readers, beside Spark's own JDBC source where ``--peers`` brings a driver for it.

Peers are measured with ``--peers DIRECTORY``: each gets an environment of its own there, made by pip if it is not there.
A peer that cannot be installed or fails is told and left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from benchmarks.copy.pipelines import Copied, CopyPipeline
from etl.testing.postgres import Database, start_postgres


def _delta(folder: Path) -> dict[str, Any]:
    return {"type": "delta", "path": str(folder / "lake"), "spark": {"master": "local[2]"}}


_PIPELINES = {
    "etl into DuckDB": CopyPipeline(lambda folder: {"type": "duckdb", "path": str(folder / "t.duckdb")}),
    "etl into Delta": CopyPipeline(_delta),
    "etl into Delta, read by executors": CopyPipeline(_delta, {"read_by": "executors"}),
}
OUT = Path(__file__).parents[1] / "out" / "copy.json"
REFERENCE = "psql text"
_SETTINGS = {
    "shared_buffers": "512MB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "synchronous_commit": "off",
}
#: What the environment of each peer needs installed.
PEERS = {
    "duckdb": ["duckdb==1.4.4", "duckdb-ext-postgres==1.4.4.*", "pyarrow"],
    "adbc": ["adbc-driver-postgresql", "pyarrow"],
    "connectorx": ["connectorx", "pyarrow"],
}
_TABLE = """
CREATE TABLE t (id bigint PRIMARY KEY, n int, label text, amount numeric(12,2), at timestamptz, flag boolean,
                doc jsonb, ratio double precision)"""
_FILL = """
INSERT INTO t
SELECT i, i * 31 %% 1000003, md5(i::text), (i * 7919 %% 1000000000) / 100.0,
       '2024-01-01'::timestamptz + i * interval '1.001 s', i %% 2 = 0, jsonb_build_object('k', i, 'tag', 'x'), sin(i)
  FROM generate_series(1::bigint, %s) i"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reader, one round: seconds of wall time and of its own CPU, its peak memory."""

    wall_s: float
    cpu_s: float
    rss_mb: float


Reader = Callable[[], Sample]


class Bench:
    """One database with the table, and everything that can read it."""

    def __init__(self, database: Database, rows: int) -> None:
        self._database = database
        self._rows = rows
        with database.connect() as connection:
            connection.execute(_TABLE)
            connection.execute(_FILL, (rows,))
            connection.execute("VACUUM (FREEZE, ANALYZE) t")

    def readers(self, peers: Path | None) -> dict[str, Reader]:
        """By name, in the order of a round."""
        readers: dict[str, Reader] = {
            REFERENCE: lambda: self._psql("text"),
            "psql binary": lambda: self._psql("binary"),
            "etl, 1 connection": lambda: self._ours(1),
            "etl, 4 connections": lambda: self._ours(4),
        }
        if peers is not None:
            for name in PEERS:
                python = _installed(name, peers)
                if python is not None:
                    readers[name] = lambda name=name, python=python: self._peer(name, python)  # type: ignore[misc]
        return readers

    def copies(self, jdbc: Path | None) -> dict[str, Callable[[], Copied]]:
        """Whole copies by name, in the order of a round."""
        copies: dict[str, Callable[[], Copied]] = {
            name: lambda pipeline=pipeline: pipeline.copy(self._database)  # type: ignore[misc]
            for name, pipeline in _PIPELINES.items()
        }
        if jdbc is not None:
            copies["Spark's JDBC source into Delta"] = lambda: self._jdbc(jdbc)
        return copies

    def _jdbc(self, jar: Path) -> Copied:
        known = conninfo_to_dict(self._database.dsn)
        url = f"jdbc:postgresql://{known['host']}:{known['port']}/{known['dbname']}?user={known['user']}"
        with tempfile.TemporaryDirectory(prefix="etl-bench-jdbc-") as lake:
            command = [sys.executable, "-m", "benchmarks.copy.jdbc", url, str(jar), lake, str(self._rows)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReaderError(done.stderr.strip()[-2000:])
        return Copied(**json.loads(done.stdout.strip().splitlines()[-1]))

    def check(self, name: str, copied: Copied) -> Copied:
        """Raises `ReaderError` when something else came out than went in."""
        if (copied.rows, copied.ids) != (self._rows, self._rows * (self._rows + 1) // 2):
            raise ReaderError(f"{name} holds {copied.rows} rows of {self._rows}")
        return copied

    def _psql(self, form: str) -> Sample:
        tool = self._database.server.pg_tool("psql")
        if tool is None:
            raise SystemExit("psql is not among this server's tools: install the Postgres client programs")
        command = [str(tool), self._database.dsn, "-qXc", f"COPY t TO STDOUT (FORMAT {form})"]
        before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Sample(wall, cpu, 0.0)

    def _ours(self, connections: int) -> Sample:
        return self._reader(
            [sys.executable, "-m", "benchmarks.copy.ours", self._database.dsn, str(connections)]
        )

    def _peer(self, name: str, python: Path) -> Sample:
        known = conninfo_to_dict(self._database.dsn)
        uri = f"postgresql://{known['user']}@{known['host']}:{known['port']}/{known['dbname']}"
        return self._reader([str(python), str(Path(__file__).with_name("peers.py")), uri, name])

    def _reader(self, command: Sequence[str]) -> Sample:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise ReaderError(done.stderr.strip()[-2000:])
        said: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
        if (said["rows"], said["ids"]) != (self._rows, self._rows * (self._rows + 1) // 2):
            raise ReaderError(f"saw {said['rows']} rows of {self._rows}: a fast wrong answer is no answer")
        return Sample(said["wall_s"], said["cpu_s"], said["rss_mb"])


class ReaderError(Exception):
    """A reader failed, or did not read what is there."""


def _installed(name: str, peers: Path) -> Path | None:
    """The interpreter of the peer's environment; None, and a line that says so, where it cannot be made."""
    python = peers / name / "bin" / "python"
    commands = [
        [sys.executable, "-m", "venv", str(peers / name)],
        [str(python), "-m", "pip", "install", "--quiet", *PEERS[name]],
    ]
    for command in commands if not python.exists() else commands[1:]:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{name} is left out, it cannot be installed: {done.stderr.strip()[-300:]}")
            return None
    return python


def _measure(readers: dict[str, Reader], repeats: int) -> dict[str, list[Sample]]:
    """Round by round; a peer that fails is out, ours may not."""
    samples: dict[str, list[Sample]] = {name: [] for name in readers}
    for _ in range(repeats):
        for name in list(samples):
            try:
                samples[name].append(readers[name]())
            except ReaderError as error:
                if name not in PEERS:
                    raise SystemExit(f"{name} failed:\n{error}") from error
                print(f"{name} is left out, it failed: {error}")
                del samples[name]
    return samples


def _measure_copies(
    bench: Bench, jdbc: Path | None, repeats: int, reference_s: float
) -> dict[str, dict[str, float]]:
    """The same table into each destination, round by round."""
    copies = bench.copies(jdbc)
    taken: dict[str, list[Copied]] = {name: [] for name in copies}
    for _ in range(repeats):
        for name, copy in copies.items():
            taken[name].append(bench.check(name, copy()))
            print(f"{name}: {taken[name][-1].wall_s:.1f} s")
    return {
        name: {
            "ratio": reference_s / statistics.median(each.wall_s for each in samples),
            "rows_per_s": samples[0].rows / statistics.median(each.wall_s for each in samples),
            "cpu_us_per_row": 1e6 * statistics.median(each.cpu_s for each in samples) / samples[0].rows,
            "rss_mb": max(each.rss_mb for each in samples),
            "tree_rss_mb": max(each.tree_rss_mb for each in samples),
        }
        for name, samples in taken.items()
    }


def _summary(samples: dict[str, list[Sample]], rows: int) -> dict[str, dict[str, float]]:
    summary = {}
    for name, taken in samples.items():
        ratios = [theirs.wall_s / ours.wall_s for ours, theirs in zip(taken, samples[REFERENCE], strict=True)]
        summary[name] = {
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "cpu_us_per_row": 1e6 * statistics.median(sample.cpu_s for sample in taken) / rows,
            "rows_per_s": rows / statistics.median(sample.wall_s for sample in taken),
            "rss_mb": max(sample.rss_mb for sample in taken),
        }
    return summary


def _print(summary: dict[str, dict[str, float]]) -> None:
    print(f"\n{'reader':<20}{'ratio':>8}{'min-max':>14}{'rows/s':>13}{'client µs/row':>15}{'RSS MB':>8}")
    for name, s in summary.items():
        spread = f"{s['ratio_min']:.2f}-{s['ratio_max']:.2f}"
        rss = f"{s['rss_mb']:.0f}" if s["rss_mb"] else ""
        print(
            f"{name:<20}{s['ratio']:>8.2f}{spread:>14}{s['rows_per_s']:>13,.0f}{s['cpu_us_per_row']:>15.2f}{rss:>8}"
        )


def _print_copies(summary: dict[str, dict[str, float]]) -> None:
    print(f"\n{'whole copy':<34}{'ratio':>7}{'rows/s':>12}{'µs/row':>8}{'etl MB':>8}{'all MB':>8}")
    for name, s in summary.items():
        print(
            f"{name:<34}{s['ratio']:>7.2f}{s['rows_per_s']:>12,.0f}{s['cpu_us_per_row']:>8.2f}"
            f"{s['rss_mb']:>8.0f}{s['tree_rss_mb']:>8.0f}"
        )


def main() -> None:
    """Fill the table, let everything read it, and write the figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=Path, help="a directory for the environments of the peers")
    parser.add_argument("--copies", type=int, default=1, help="repeats of the whole copies; 0: none")
    parser.add_argument(
        "--jdbc", type=Path, help="the jar of a JDBC driver for Postgres, for Spark's own source"
    )
    given = parser.parse_args()
    with start_postgres(_SETTINGS, own=True) as server, server.database() as database:
        print(f"Postgres {server.provider}, {given.rows:,} rows, {given.repeats} repeats")
        bench = Bench(database, given.rows)
        samples = _measure(bench.readers(given.peers), given.repeats)
        summary = _summary(samples, given.rows)
        _print(summary)
        reference_s = statistics.median(sample.wall_s for sample in samples[REFERENCE])
        copies = _measure_copies(bench, given.jdbc, given.copies, reference_s) if given.copies else {}
        _print_copies(copies)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"rows": given.rows, "readers": summary, "copies": copies}, indent=2) + "\n")
    print(f"\nwritten: {OUT}")


if __name__ == "__main__":
    main()

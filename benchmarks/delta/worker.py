"""One engine in a process of its own, so that its JVM, CPU and memory are its own; prints a JSON line per step.

Run by `benchmarks.delta.run`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.delta.engines import ENGINES, Engine
from benchmarks.delta.workload import Kind, Model, Sums

_WARM_UPS, _WARM_UP_SIZE = 10, 1_000
_FEWEST = 3


class Worker:
    """Measures one engine on tables of one size."""

    def __init__(self, engine: str, directory: Path, rows: int, recent: int) -> None:
        self._directory = directory
        self._rows = rows
        self._recent = recent
        self._engine: Engine = ENGINES[engine]()
        self._base = directory / f"{self._engine.base_name}-{rows}"

    def prepare(self, seconds: float) -> None:
        """Make the table where no earlier worker did, and let the engine get warm: a JVM compiles what it runs often."""
        if not self._base.exists():
            making = self._base.with_suffix(".making")
            self._engine.make(making, self._rows)
            making.rename(self._base)
        for _ in self._writes(Kind.RECENT, _WARM_UP_SIZE, _WARM_UPS, seconds):
            pass

    def measure(self, kind: Kind, size: int, batches: int, seconds: float) -> None:
        """Apply batches until there are enough or the time is up; the first is not counted."""
        for number, sample in enumerate(self._writes(kind, size, batches + 1, seconds)):
            if number:
                _say("write", size=size, **sample)
        _say("done", size=size, rss_mb=_peak_rss_mb())

    def _writes(self, kind: Kind, size: int, batches: int, seconds: float) -> Iterator[dict[str, Any]]:
        folder = self._directory / "working"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._base, folder)
        self._engine.open(folder)
        table = self._engine.table(folder)
        model = Model(self._rows, kind, size, self._recent)
        until = time.monotonic() + seconds
        for number in range(batches):
            if number > _FEWEST and time.monotonic() > until:
                break
            batch = model.next()
            stages, cpu = self._engine.stages(), _cpu_seconds()
            given, began = time.time(), time.perf_counter()
            self._engine.apply(batch)
            wall = time.perf_counter() - began
            yield {
                "wall_s": wall,
                "visible_s": _committed_at(table) - given,
                "cpu_s": _cpu_seconds() - cpu,
                "stages": _difference(self._engine.stages(), stages),
            }
        self._check(table, model.expected())

    def _check(self, table: Path, expected: Sums) -> None:
        """Read with an engine that wrote none of ours."""
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(table)).execute(Sums.SQL).read_all()
        actual = Sums(*(int(found.column(place)[0].as_py()) for place in range(4)))
        if actual != expected:
            raise SystemExit(f"the table holds {actual} and not {expected}: a fast wrong answer is no answer")


def _committed_at(table: Path) -> float:
    """When the newest commit of a table was written, in seconds since 1970."""
    newest = max((table / "_delta_log").glob("*.json"), key=lambda file: file.name)
    return newest.stat().st_mtime


def _difference(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {stage: seconds - before[stage] for stage, seconds in now.items()}


def _family() -> list[int]:
    """This process and all that came from it."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    family = [os.getpid()]
    for pid in family:
        family += [child for child, parent in parents.items() if parent == pid]
    return family


def _cpu_seconds() -> float:
    """User and system time of this process and its JVM."""
    ticks = 0
    for pid in _family():
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _peak_rss_mb() -> float:
    total = 0
    for pid in _family():
        status = Path(f"/proc/{pid}/status").read_text()
        total += sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return total / 1024


def _say(what: str, **said: Any) -> None:
    print(json.dumps({"what": what, **said}), flush=True)


def main() -> None:
    """Prepare, then measure one workload at every size of a batch."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("kind", type=Kind, choices=list(Kind))
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--recent", type=int, required=True)
    parser.add_argument("--sizes", required=True)
    parser.add_argument("--batches", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    worker = Worker(given.engine, given.directory, given.rows, given.recent)
    worker.prepare(given.seconds)
    _say("ready")
    for size in map(int, given.sizes.split(",")):
        worker.measure(given.kind, size, given.batches, given.seconds)


if __name__ == "__main__":
    main()

"""``make bench-delta``: the Delta destination beside delta-rs and a plain PySpark job.

Every engine applies the same batches to equal tables: 60 % updates, 30 % inserts, 10 % deletes, eight columns. *recent*
changes the newest rows, *uniform* any. One engine runs at a time, in a process of its own, one after the other for each
workload. Afterwards every table is read with an engine that wrote none of it, and must hold what the batches make of it.

- changes/s: changes of all batches by the time their writes took, one after the other.
- visible: from a batch in hand until its commit stands in the table's log; with fewer than a hundred batches p99 is the
  slowest but for rounding.
- CPU: user and system time of the process and its JVM, the figure that other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.delta.report import Cell, print_report, summary
from benchmarks.delta.workload import Kind

OUT = Path(__file__).parents[1] / "out" / "delta.json"


def main() -> None:
    """Measure all cells and write the figures."""
    given = _arguments()
    sizes, tables = _numbers(given.sizes), _numbers(given.rows)
    kinds, engines = [Kind(kind) for kind in given.workloads.split(",")], given.engines.split(",")
    cells: list[Cell] = []
    console = Console()
    columns = (TextColumn("{task.description:48}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with ExitStack() as stack:
        directory = given.directory or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="etl-bench-delta-"))
        )
        progress = stack.enter_context(Progress(*columns, console=console))
        total = len(tables) * len(kinds) * len(engines) * len(sizes) * (given.batches)
        task = progress.add_task("starting", total=total)
        for rows in tables:
            for kind in kinds:
                for engine in engines:
                    progress.update(task, description=f"{engine}: {rows:,} rows, {kind}, making the table")
                    for cell in _measured(engine, kind, rows, sizes, given, directory):
                        cells.append(cell)
                        progress.update(task, advance=given.batches, description=_label(cell))
                        progress.console.print(_line(cell), highlight=False, soft_wrap=True)
    print_report(cells)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(summary(cells), indent=2) + "\n")
    print(f"\nwritten: {OUT}")


def _measured(
    engine: str, kind: Kind, rows: int, sizes: Sequence[int], given: argparse.Namespace, directory: Path
) -> Iterator[Cell]:
    """The cells of one process."""
    command = [sys.executable, "-m", "benchmarks.delta.worker", engine, kind, "--directory", str(directory)]
    command += ["--rows", str(rows), "--recent", str(given.recent), "--sizes", ",".join(map(str, sizes))]
    command += ["--batches", str(given.batches), "--seconds", str(given.seconds)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as worker,
    ):
        writes: list[dict[str, Any]] = []
        assert worker.stdout is not None
        for line in worker.stdout:
            said: dict[str, Any] = json.loads(line) if line.startswith("{") else {"what": ""}
            if said["what"] == "write":
                writes.append(said)
            elif said["what"] == "done":
                yield Cell(engine, kind, rows, said["size"], said["rss_mb"], tuple(writes))
                writes = []
        if worker.wait():
            errors.seek(0)
            raise SystemExit(f"{engine} failed:\n{errors.read()[-3000:]}")


def _label(cell: Cell) -> str:
    return f"{cell.engine}: {cell.rows:,} rows, {cell.kind}, {cell.size:,} a batch"


def _line(cell: Cell) -> str:
    return (
        f"{_label(cell):52} {cell.per_second:>10,.0f} changes/s {cell.cpu_s:>7.2f} s CPU a batch"
        f" {cell.visible(50):>7.2f} s visible, {len(cell.writes)} batches"
    )


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default="1000000,10000000", help="rows in the table before, one or several")
    parser.add_argument("--sizes", default="1000,10000,100000", help="changes a batch")
    parser.add_argument("--batches", type=int, default=20, help="batches of each size")
    parser.add_argument(
        "--seconds", type=float, default=60, help="a cell ends after so long, with three batches at least"
    )
    parser.add_argument("--workloads", default=",".join(Kind))
    parser.add_argument("--recent", type=int, default=50_000, help="how many of the newest rows are changed")
    parser.add_argument("--engines", default="etl,delta-rs,foreachBatch,bare-merge")
    parser.add_argument("--directory", type=Path, help="keep the tables here, for another run")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""A bar per table while its initial copy runs, on standard error and only on a terminal."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

from etl.cli.output import console
from etl.config.figures import human_bytes, printable

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID


class CopyBars:
    """`etl.config.progress.CopyProgress` as bars. They are on the screen only while a table is being copied."""

    def __init__(self, *, no_color: bool = False) -> None:
        self._console = console(no_color=no_color, stderr=True)
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._bytes: dict[str, int] = {}

    def start(self, table: str, estimated_rows: int) -> None:
        """Show a bar; without an estimate it only counts."""
        with self._lock:
            if self._progress is None:
                self._progress = self._new_progress()
                self._progress.start()
            if (old := self._tasks.pop(table, None)) is not None:
                self._progress.remove_task(old)
            total = estimated_rows if estimated_rows > 0 else None
            self._tasks[table] = self._progress.add_task(printable(table), total=total, size="")
            self._bytes[table] = 0

    def advance(self, table: str, rows: int, bytes: int) -> None:  # noqa: A002
        """Move the bar. An estimate that was too low grows."""
        with self._lock:
            task = self._tasks.get(table)
            if self._progress is None or task is None:
                return
            self._bytes[table] += bytes
            self._progress.update(task, advance=rows, size=human_bytes(self._bytes[table]))
            state = self._task(task)
            if state.total is not None and state.completed > state.total:
                self._progress.update(task, total=state.completed)

    def finish(self, table: str) -> None:
        """Take the bar away; with the last one the display goes too."""
        with self._lock:
            task = self._tasks.pop(table, None)
            if self._progress is not None and task is not None:
                self._progress.remove_task(task)
            if not self._tasks:
                self._stop()

    def snapshot(self) -> dict[str, tuple[float, float | None]]:
        """Table → rows so far and rows expected, of the tables being copied."""
        with self._lock:
            found = {table: self._task(task) for table, task in self._tasks.items()}
            return {table: (task.completed, task.total) for table, task in found.items()}

    def close(self) -> None:
        """Take everything from the screen; idempotent."""
        with self._lock:
            self._tasks.clear()
            self._stop()

    def _task(self, task: TaskID) -> Task:
        if self._progress is None:
            raise LookupError(task)
        return next(known for known in self._progress.tasks if known.id == task)

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _new_progress(self) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f} rows"),
            TextColumn("{task.fields[size]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )


def copy_bars(*, no_color: bool = False) -> CopyBars | None:
    """Bars when standard error is a terminal."""
    return CopyBars(no_color=no_color) if sys.stderr.isatty() else None

"""The JVM of a daemon, seen from outside: to stop it, to kill it, to keep it alive, and to catch it in the act."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from etl.testing.daemon import Daemon

_CLOSE_WAIT = "08"
_PARQUET_END = b"PAR1"


@dataclass(frozen=True, slots=True)
class Jvm:
    """A process by its id."""

    pid: int

    @classmethod
    def of(cls, daemon: Daemon) -> Jvm:
        """The JVM that a daemon has, once it has one."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = _java_children(daemon.process.pid)
            return bool(found)

        daemon.wait_until(is_there, "its JVM")
        return cls(found[0])

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return _state(self.pid) not in {"", "Z", "X"}

    @property
    def is_stopped(self) -> bool:
        """Whether SIGSTOP has reached it."""
        return _state(self.pid) == "T"

    @property
    def works_for_the_dead(self) -> bool:
        """Whether it still does something for a daemon that hung up: it reads that only when it is done."""
        mine = {_link(fd) for fd in _entries(f"/proc/{self.pid}/fd")}
        return any(f"socket:[{inode}]" in mine for inode in _hung_up())

    def send(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self.runs:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send(signal.SIGKILL)

    @contextmanager
    def outliving(self, daemon: Daemon) -> Iterator[None]:
        """Keep its input open beside the daemon, so that it does not end with it; it ends after the block."""
        pipe = _link(Path(f"/proc/{self.pid}/fd/0"))
        ends = [fd for fd in _entries(f"/proc/{daemon.process.pid}/fd") if _link(fd) == pipe]
        held = os.open(ends[0], os.O_WRONLY)
        try:
            yield
        finally:
            os.close(held)
            self.send(signal.SIGCONT)

    def stop_before_commit(self, daemon: Daemon, folder: Path, write: Callable[[], None]) -> None:
        """SIGSTOP it where it has written rows of a table and not committed them; `write` is repeated until caught."""
        while True:
            rows, commits = _data_files(folder), _commits(folder)
            write()
            daemon.wait_until(lambda rows=rows: _data_files(folder) > rows, "a new data file")
            self.send(signal.SIGSTOP)
            daemon.wait_until(lambda: self.is_stopped, "the JVM to stop")
            if _commits(folder) == commits:
                return
            self.send(signal.SIGCONT)
            daemon.wait_until(lambda: not list(staged_files(folder.parents[1])), "the end of the statement")


def staged_files(lake: Path) -> list[Path]:
    """The batches that Spark is reading now."""
    return list((lake / "_etl" / "staging").glob("*.parquet"))


def _data_files(folder: Path) -> set[Path]:
    """Those that are whole: the rows were read, and only the commit is left to do."""
    files = (path for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts)
    return {path for path in files if path.stat().st_size > 8 and path.read_bytes().endswith(_PARQUET_END)}


def _commits(folder: Path) -> set[str]:
    return {path.name for path in (folder / "_delta_log").glob("*.json")}


def _java_children(pid: int) -> list[int]:
    """Whichever of its threads started them."""
    children = [
        int(child) for task in _entries(f"/proc/{pid}/task") for child in _text(task / "children").split()
    ]
    return [child for child in children if _text(Path(f"/proc/{child}/comm")).strip() == "java"]


def _state(pid: int) -> str:
    """One letter, as ``ps`` shows it; empty when there is no such process."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].strip()[:1]


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _hung_up() -> set[str]:
    """The inodes of connections whose other end has closed."""
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    return {fields[9] for fields in map(str.split, lines) if fields[3] == _CLOSE_WAIT}


def _entries(directory: str) -> list[Path]:
    try:
        return list(Path(directory).iterdir())
    except OSError:
        return []


def _link(path: Path) -> str:
    try:
        return str(path.readlink())
    except OSError:
        return ""

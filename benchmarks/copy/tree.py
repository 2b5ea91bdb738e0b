"""A process and all below it: their memory, and the CPU they took."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import psutil

_EVERY_S: Final = 0.2


class ProcessTree:
    """Looked at again and again; remembers the peaks, and the CPU of processes that have ended."""

    def __init__(self, root: int) -> None:
        self._root = psutil.Process(root)
        self._cpu: dict[int, float] = {}
        self.root_mb = 0.0
        self.all_mb = 0.0
        self.look()
        self._before = sum(self._cpu.values())

    def look(self) -> None:
        """Take the figures of now, and wait a little."""
        sizes = {}
        for process in (self._root, *self._root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                self._cpu[process.pid] = times.user + times.system
                sizes[process.pid] = process.memory_info().rss / 1e6
        self.root_mb = max(self.root_mb, sizes.get(self._root.pid, 0.0))
        self.all_mb = max(self.all_mb, sum(sizes.values()))
        time.sleep(_EVERY_S)

    def cpu_s(self) -> float:
        """Seconds since the first look."""
        return sum(self._cpu.values()) - self._before

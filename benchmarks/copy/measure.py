"""What one process took to read a table. Needs the standard library only: peers run outside our environment."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from typing import NamedTuple


class Total(NamedTuple):
    """What was read: how many rows, and the sum of their ids. Totals add up field by field."""

    rows: int = 0
    ids: int = 0

    def __add__(self, other: object) -> Total:
        """The total of both."""
        assert isinstance(other, Total)
        return Total(self.rows + other.rows, self.ids + other.ids)


def measured(read: Callable[[], Total]) -> None:
    """Print what it read and took: wall and CPU seconds without the interpreter's start, peak memory of all."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    total = read()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    figures = {"wall_s": wall, "cpu_s": cpu, "rss_mb": after.ru_maxrss / 1024}
    print(json.dumps({**figures, "rows": total.rows, "ids": total.ids}))

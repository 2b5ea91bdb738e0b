"""When tables are tried again: later each time, and not all at the same moment."""

from __future__ import annotations

import random
from collections.abc import Callable

from etl.config.models import RetryConfig


class Retries:
    """Used by the pipeline's main thread only; what it knows ends with the process."""

    def __init__(self, config: RetryConfig, clock: Callable[[], float]) -> None:
        self._config = config
        self._clock = clock
        self._at: dict[int, float] = {}
        self._copies: dict[int, int] = {}

    def schedule(self, oid: int, attempts: int) -> float:
        """Try the table again after its `attempts` so far; returns in how many seconds."""
        doubled = self._config.initial_delay_ms * 2.0 ** min(attempts - 1, 30)
        delay = min(doubled, self._config.max_delay_ms) / 1000
        delay *= random.uniform(0.75, 1.25)  # noqa: S311 -- jitter, no secret
        self._at[oid] = self._clock() + delay
        return delay

    def is_due(self, oid: int) -> bool:
        """True when a retry is scheduled and its time has come."""
        return oid in self._at and self._at[oid] <= self._clock()

    def is_early(self, oid: int) -> bool:
        """True when a retry is scheduled for later."""
        return oid in self._at and not self.is_due(oid)

    def cancel(self, oid: int) -> None:
        """No retry by itself any more, or it has begun."""
        self._at.pop(oid, None)

    def copy_failed(self, oid: int) -> int:
        """How many copies of the table failed in a row."""
        self._copies[oid] = self._copies.get(oid, 0) + 1
        return self._copies[oid]

    def copied(self, oid: int) -> None:
        """A copy of the table was completed."""
        self._copies.pop(oid, None)

    def forget(self, oid: int) -> None:
        """The table is not the pipeline's any more."""
        self.cancel(oid)
        self.copied(oid)

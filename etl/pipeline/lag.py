"""How far behind a position is, in time.

The age of the last applied change says nothing while nothing changes, and the clocks of two machines differ. So the end of
the source's WAL is noted with our own clock each time it is looked at: a position is as far behind as the oldest note that
it has not reached. WAL that was written before the first look is older than that, by how much nobody knows.
"""

from __future__ import annotations

from collections import deque

from etl.lsn import Lsn

#: Beyond this many notes every other one is dropped: a long lag is told less exactly.
KEPT_NOTES = 4096


class LagClock:
    """Used by one thread. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._notes: deque[tuple[Lsn, float]] = deque()
        self._end = Lsn(0)

    @property
    def end(self) -> Lsn:
        """The end of the WAL when it was last looked at; 0 before the first time."""
        return self._end

    def note(self, end: Lsn, now: float) -> None:
        """The source's WAL ends at `end` now."""
        if end <= self._end:
            return
        self._end = end
        self._notes.append((end, now))
        if len(self._notes) > KEPT_NOTES:
            self._notes = deque(note for at, note in enumerate(self._notes) if not at % 2)

    def reached(self, position: Lsn) -> None:
        """No stage is before `position` any more: older notes can go."""
        while self._notes and self._notes[0][0] <= position:
            self._notes.popleft()

    def seconds(self, position: Lsn, now: float) -> float:
        """How long ago the oldest WAL that `position` has not reached was first seen; 0 when it has reached all."""
        for end, at in self._notes:
            if end > position:
                return max(now - at, 0.0)
        return 0.0

    def behind(self, position: Lsn) -> int:
        """Bytes of WAL after `position`."""
        return max(self._end - position, 0)

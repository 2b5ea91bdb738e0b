"""When to write: events are collected until they are many or old enough, and cut where a transaction ends.

How old is a matter of what a write costs: a destination that commits in 20 ms gets small batches soon, one that takes
seconds gets large ones, and a pipeline that is behind fills them to the brim.

A batch ends at a `Commit` whenever there is one in it, so that a destination with multi-table transactions shows whole
source transactions only. A single transaction larger than the budget is written in parts; its watermark tells how far.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from etl.events import Commit, Event, RowChanges, Truncate


@dataclass(frozen=True, slots=True)
class Batch:
    """Events to write now, and the last `Commit` among them, which the write makes durable."""

    events: tuple[Event, ...]
    commit: Commit | None
    rows: int
    nbytes: int

    @property
    def is_empty(self) -> bool:
        """True when nothing in it concerns a table of ours."""
        return all(isinstance(event, Commit) for event in self.events)


#: While the pipeline keeps up, writes take about one part of the time in so many.
_PARTS = 8


class Batcher:
    """Collects events; the caller supplies the time. Used by the apply worker only.

    `max_fill_s`: how long the oldest event may wait, and waits until it is known what a write takes.
    """

    def __init__(self, max_bytes: int, max_fill_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_fill_s = max_fill_s
        self._fill_s = max_fill_s
        self._events: list[Event] = []
        self._bytes = 0
        self._kept_bytes = 0
        self._last_commit = -1
        self._since: float | None = None

    def __len__(self) -> int:
        return len(self._events)

    @property
    def nbytes(self) -> int:
        """Bytes collected."""
        return self._bytes

    def add(self, events: list[Event], now: float, *, kept_bytes: int = 0) -> None:
        """Append events in stream order. `kept_bytes`: what the same chunk had for tables that are not applied now."""
        self._kept_bytes += kept_bytes
        for event in events:
            if isinstance(event, Commit):
                self._last_commit = len(self._events)
            elif isinstance(event, RowChanges):
                self._bytes += event.nbytes
            self._events.append(event)
        if self._events and self._since is None:
            self._since = now

    def wrote(self, seconds: float) -> None:
        """A batch took so long to be written and recorded: later ones wait in proportion."""
        self._fill_s = min(self._max_fill_s, (_PARTS - 1) * seconds)

    def deadline(self, *, is_behind: bool = False) -> float | None:
        """When the batch is due by age; None while it is empty or holds no complete transaction.

        `is_behind`: much more waits already, so that larger batches are worth more than early ones.
        """
        if self._since is None or self._last_commit < 0:
            return None
        return self._since + (self._max_fill_s if is_behind else self._fill_s)

    def is_due(self, now: float, *, is_behind: bool = False) -> bool:
        """True when the batch is large enough, or has a complete transaction and is old enough."""
        deadline = self.deadline(is_behind=is_behind)
        is_large = self._bytes >= self._max_bytes or (
            self._last_commit >= 0 and self._kept_bytes >= self._max_bytes
        )
        return is_large or (deadline is not None and now >= deadline)

    def take(self, now: float) -> Batch | None:
        """Remove what is to be written: up to the last commit, or all when one transaction alone fills the budget."""
        cut = self._last_commit + 1
        if cut == 0 and self._bytes >= self._max_bytes:
            cut = len(self._events)
        if cut == 0:
            return None
        events, rest = tuple(self._events[:cut]), self._events[cut:]
        commit = events[-1] if isinstance(events[-1], Commit) else None
        rows = [event for event in events if isinstance(event, RowChanges)]
        batch = Batch(events, commit, sum(map(len, rows)), sum(event.nbytes for event in rows))
        self._events, self._last_commit, self._since = rest, -1, (now if rest else None)
        self._bytes -= batch.nbytes
        self._kept_bytes = 0
        return batch

    def discard(self, oid: int) -> None:
        """Leave out what was collected of a table."""
        last = self._last_commit
        kept: list[Event] = []
        for at, event in enumerate(self._events):
            remains = _without(event, oid)
            if remains is None:
                self._last_commit -= at < last
            else:
                kept.append(remains)
        self._events = kept
        self._bytes = sum(event.nbytes for event in kept if isinstance(event, RowChanges))


def _without(event: Event, oid: int) -> Event | None:
    """The event as the other tables see it, None when it is the table's alone."""
    match event:
        case Commit():
            return event
        case Truncate():
            others = tuple(schema for schema in event.schemas if schema.oid != oid)
            return replace(event, schemas=others) if others else None
        case _:
            return None if event.schema.oid == oid else event

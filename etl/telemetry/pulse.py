"""What a running pipeline shows of itself: its threads tell it, whoever watches reads it, and neither waits for the other.

Theory of operation. A *loop* is a thread of ours that must come round again and again; it beats each time. What it waits
for outside of us (the source, the store, the destination, a disk) it says so with `waiting`, and is then allowed to take as
long as that takes: starting a process again does not make a slow destination faster. A loop that neither beats nor waits is
stuck in our own code. `waiting` finds the loop by its thread, so that code far below need not know of any pulse; in a thread
that is no loop it does nothing.

Everything told is a plain fact with a bounded size; derived figures (lags, rates, verdicts) are made by those who read.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

from etl.ddl.operations import SkippedChange
from etl.errors import EtlError
from etl.lsn import Lsn, SnapshotId

#: So many outcomes of schema changes are kept for those who ask, over all tables.
KEPT_OUTCOMES = 500


class Loop(StrEnum):
    """The loops of a pipeline. Main and apply share a thread."""

    MAIN = "main"
    APPLY = "apply"
    READER = "reader"


class Awaited(StrEnum):
    """What is outside of us and may take its time."""

    SOURCE = "source"
    STORE = "store"
    DESTINATION = "destination"
    DISK = "disk"
    COPIES = "copies"
    NEXT_ATTEMPT = "next attempt"


class RunPhase(StrEnum):
    """What the pipeline as a whole does."""

    STARTING = "starting"
    STREAMING = "streaming"
    RETRYING = "retrying"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class LoopState:
    """A loop as it is seen now: seconds since it last came round, and what it waits for since when."""

    loop: Loop
    quiet_s: float
    waiting_for: Awaited | None = None
    waiting_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that ended an attempt of the pipeline. Like every `EtlError` without row values and secrets."""

    kind: str
    message: str
    hint: str
    at: datetime
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Positions:
    """How far the stream has come: decoded, durable at the destination, and told to the server."""

    received: Lsn
    applied: Lsn
    flushed: Lsn


@dataclass(frozen=True, slots=True)
class SchemaOutcome:
    """What became of one schema version at the destination: `done` in words without literals, or the `error`."""

    oid: int
    snapshot_id: SnapshotId
    at: datetime
    done: tuple[str, ...] = ()
    skipped: tuple[SkippedChange, ...] = ()
    error: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PulseState:
    """One moment of a pulse; mappings are by table oid.

    `generation` grows whenever something about tables or schemas changed, `schemas` when it was schemas. `last_commit_at` is
    when the last durable transaction committed at the source. `rows`: row changes made durable in this process, by the
    stream. `estimates`: rows the planner expects of copies that began in this process.
    """

    started_at: datetime
    phase: RunPhase
    loops: tuple[LoopState, ...]
    positions: Positions
    fault: Fault | None
    last_commit_at: datetime | None
    rows: Mapping[int, int]
    changed_at: Mapping[int, datetime]
    backlogs: Mapping[int, int]
    estimates: Mapping[int, int]
    outcomes: tuple[SchemaOutcome, ...]
    generation: int
    schemas: int


class _Heart:
    """A thread's: what it waits for, since when, and when it last came back from there."""

    __slots__ = ("returned_at", "waiting")

    def __init__(self, now: float) -> None:
        self.returned_at = now
        self.waiting: tuple[Awaited, float] | None = None


_thread = threading.local()


@contextmanager
def waiting(awaited: Awaited) -> Iterator[None]:
    """The loop of this thread waits for something outside of us. Inside another one it does nothing."""
    heart: _Heart | None = getattr(_thread, "heart", None)
    if heart is None or heart.waiting is not None:
        yield
        return
    heart.waiting = (awaited, time.monotonic())
    try:
        yield
    finally:
        heart.returned_at = time.monotonic()
        heart.waiting = None


class Pulse:
    """Thread-safe. `clock` tells the time of day."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._hearts: dict[Loop, _Heart] = {}
        self._beats: dict[Loop, float] = {}
        self._outcomes: deque[SchemaOutcome] = deque(maxlen=KEPT_OUTCOMES)
        self._state = PulseState(
            started_at=clock(),
            phase=RunPhase.STARTING,
            loops=(),
            positions=Positions(Lsn(0), Lsn(0), Lsn(0)),
            fault=None,
            last_commit_at=None,
            rows={},
            changed_at={},
            backlogs={},
            estimates={},
            outcomes=(),
            generation=0,
            schemas=0,
        )
        self._rows: dict[int, int] = {}
        self._changed_at: dict[int, datetime] = {}
        self._estimates: dict[int, int] = {}

    def state(self) -> PulseState:
        """Everything as it is now."""
        now = time.monotonic()
        with self._lock:
            loops = tuple(self._loop_state(loop, now) for loop in Loop if loop in self._hearts)
            return replace(
                self._state,
                loops=loops,
                rows=dict(self._rows),
                changed_at=dict(self._changed_at),
                estimates=dict(self._estimates),
                outcomes=tuple(self._outcomes),
            )

    # --- loops --------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, loop: Loop) -> Iterator[None]:
        """This thread runs the loop while the context lasts."""
        now = time.monotonic()
        heart: _Heart | None = getattr(_thread, "heart", None)
        if heart is None:
            heart = _thread.heart = _Heart(now)
        with self._lock:
            self._hearts[loop], self._beats[loop] = heart, now
        try:
            yield
        finally:
            with self._lock:
                self._hearts.pop(loop, None)
                if heart not in self._hearts.values():
                    _thread.heart = None

    def beat(self, loop: Loop) -> None:
        """The loop came round."""
        self._beats[loop] = time.monotonic()

    def _loop_state(self, loop: Loop, now: float) -> LoopState:
        heart = self._hearts[loop]
        # read before the time of return, which is set first
        awaited = heart.waiting
        quiet = now - max(self._beats[loop], heart.returned_at)
        if awaited is None:
            return LoopState(loop, max(quiet, 0.0))
        return LoopState(loop, max(quiet, 0.0), awaited[0], max(now - awaited[1], 0.0))

    # --- the pipeline -------------------------------------------------------------------------------------------

    def enter(self, phase: RunPhase) -> None:
        """The pipeline does this from now on. What streams has no fault."""
        with self._lock:
            fault = None if phase is RunPhase.STREAMING else self._state.fault
            self._state = replace(self._state, phase=phase, fault=fault)

    def failed(self, error: EtlError) -> None:
        """An attempt ended with this error, and another one follows."""
        with self._lock:
            before = self._state.fault
            fault = Fault(
                error.kind,
                error.message,
                error.hint,
                self._clock(),
                before.attempts + 1 if before is not None else 1,
            )
            self._state = replace(self._state, phase=RunPhase.RETRYING, fault=fault)

    def moved(self, positions: Positions) -> None:
        """The stream has come this far."""
        if positions != self._state.positions:
            with self._lock:
                self._state = replace(self._state, positions=positions)

    def committed(self, timestamp: int) -> None:
        """A transaction that committed at `timestamp` (µs since 1970-01-01 UTC) is durable."""
        with self._lock:
            at = datetime.fromtimestamp(timestamp / 1_000_000, UTC)
            self._state = replace(self._state, last_commit_at=at)

    # --- tables -------------------------------------------------------------------------------------------------

    def tables_changed(self) -> None:
        """Something about the tables is another than before."""
        with self._lock:
            self._state = replace(self._state, generation=self._state.generation + 1)

    def schemas_changed(self) -> None:
        """There are other schema versions than before."""
        with self._lock:
            state = self._state
            self._state = replace(state, generation=state.generation + 1, schemas=state.schemas + 1)

    def wrote(self, rows: Mapping[int, int]) -> None:
        """So many row changes of each table are durable."""
        now = self._clock()
        with self._lock:
            for oid, count in rows.items():
                if count:
                    self._rows[oid] = self._rows.get(oid, 0) + count
                    self._changed_at[oid] = now

    def schema_outcome(self, outcome: SchemaOutcome) -> None:
        """The destination took a schema change, or did not."""
        with self._lock:
            self._outcomes.append(outcome)
        self.schemas_changed()

    def keeps(self, backlogs: Mapping[int, int]) -> None:
        """So many bytes wait for each table that is not applied now."""
        if backlogs != self._state.backlogs:
            with self._lock:
                self._state = replace(self._state, backlogs=dict(backlogs))

    def copy_planned(self, oid: int, estimated_rows: int) -> None:
        """A copy begins of about so many rows; negative where nobody knows."""
        with self._lock:
            self._estimates.pop(oid, None)
            if estimated_rows >= 0:
                self._estimates[oid] = estimated_rows
        self.tables_changed()

    def forget(self, oid: int) -> None:
        """The pipeline has nothing to do with the table any more."""
        with self._lock:
            for known in (self._rows, self._changed_at, self._estimates):
                known.pop(oid, None)

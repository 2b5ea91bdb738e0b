"""Replaying the backlogs of tables, slice by slice, beside the stream of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from etl.destinations.writer import EventWriter
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.kept import Kept
from etl.pipeline.reporting import Reporter
from etl.store.backlog import Backlog
from etl.store.base import StateStore
from etl.telemetry.failpoints import failpoint
from etl.telemetry.pulse import Awaited, waiting

#: Large enough for a write to be worth its commit, small enough for the others not to notice.
_SLICE_BYTES = 8 << 20
#: So long the stream waits for the slices of one step; a slice that is begun is finished.
_STEP_S = 0.2
#: Each has an assembler of its own, and what it knows.
_AT_ONCE = 8


class CatchUp:
    """Used by the pipeline's main thread only. After an error make a new one: the backlog still has everything."""

    def __init__(
        self,
        oid: int,
        backlog: Backlog | None,
        assembler: Assembler,
        *,
        writer: EventWriter,
        store: StateStore,
        reporter: Reporter,
    ) -> None:
        """`assembler` knows this table only, and where its copy ends. Without a backlog nothing was missed."""
        self._oid = oid
        self._backlog = backlog
        self.assembler = assembler
        self._writer = writer
        self._store = store
        self._reporter = reporter

    def step(self) -> bool:
        """Apply the oldest slice, durably; False when no complete transaction is left.

        Raises the error of the table when it fails; the slice then stays in the backlog.
        """
        kept = None if self._backlog is None else self._backlog.read(_SLICE_BYTES)
        if kept is not None:
            self._apply(kept)
        return kept is not None

    def finish(self) -> bool:
        """Apply what is left, up to the last frame that was decoded, be its transaction complete or not.

        False when that is too much at once: the transaction's end has to come first.
        """
        if self._backlog is None:
            return True
        if self._backlog.has_parts:
            return False
        kept = self._backlog.read_open()
        if kept is not None:
            self._apply(kept)
        return True

    def _apply(self, kept: Kept) -> None:
        assembled = self.assembler.replay(kept)
        for schema in assembled.new_schemas:
            self._store.save_schema(schema)
        for failure in assembled.failures:
            raise failure.error
        with waiting(Awaited.DESTINATION):
            report = self._writer.write(assembled.events)
        self._reporter.write_report(report)
        if self._oid in report.failed:
            raise report.failed[self._oid]
        if self._backlog is not None:
            self._backlog.release()


class CatchUps:
    """The tables that catch up, in turns. Used by the pipeline's main thread only."""

    def __init__(self, make: Callable[[int], CatchUp], clock: Callable[[], float]) -> None:
        """`make`: a `CatchUp` that begins with the oldest of the table's backlog."""
        self._make = make
        self._clock = clock
        self._tables: dict[int, CatchUp | None] = {}
        self._stuck: set[int] = set()

    def __len__(self) -> int:
        return len(self._tables)

    @property
    def has_room(self) -> bool:
        """True when another table may begin."""
        return len(self._tables) < _AT_ONCE

    @property
    def has_work(self) -> bool:
        """True unless each of them waits for the stream to bring the end of a long transaction."""
        return not self._stuck.issuperset(self._tables)

    def add(self, oid: int) -> None:
        """Begin with this table."""
        self._tables[oid] = None

    def drop(self, oid: int) -> None:
        """Nobody wants the table to go on; no error when it did not."""
        self._tables.pop(oid, None)

    def new_run(self) -> None:
        """The stream starts again: what the backlogs held of open transactions is gone, and comes again."""
        self._tables = dict.fromkeys(self._tables)

    def turns(self) -> Iterator[int]:
        """The tables whose turn it is in this step, which is as short as one slice allows."""
        until = self._clock() + _STEP_S
        for oid in list(self._tables):
            yield oid
            if oid in self._tables:
                self._tables[oid] = self._tables.pop(oid)
            if self._clock() >= until:
                return

    def replay(self, oid: int) -> Assembler | None:
        """Apply the table's next slice. Its assembler when nothing is left, and the table is none of these any more.

        Raises what the slice raises; it is then applied again from the start of the backlog, unless the table is dropped.
        """
        catch_up, self._tables[oid] = self._tables[oid] or self._make(oid), None
        self._stuck.discard(oid)
        replayed = catch_up.step()
        if replayed or not catch_up.finish():
            failpoint("handoff.mid")
            self._tables[oid] = catch_up
            if not replayed:
                self._stuck.add(oid)
            return None
        del self._tables[oid]
        return catch_up.assembler

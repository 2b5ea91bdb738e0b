"""Replaying the backlog of one table, slice by slice, beside the stream of the others."""

from __future__ import annotations

from etl.destinations.writer import EventWriter
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.kept import Kept
from etl.pipeline.reporting import Reporter
from etl.store.backlog import Backlog
from etl.store.base import StateStore

#: Large enough for a write to be worth its commit, small enough for the others not to notice.
_SLICE_BYTES = 8 << 20


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
        report = self._writer.write(assembled.events)
        self._reporter.write_report(report)
        if self._oid in report.failed:
            raise report.failed[self._oid]
        if self._backlog is not None:
            self._backlog.release()

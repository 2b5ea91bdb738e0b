"""The apply worker: decode, remember, write, record, acknowledge; in this order and nowhere else.

Theory of operation. Each step takes what waits in the hand-off and assembles it. What belongs to a table that is not
applied now is kept in its backlog. New schema versions are stored before anything that depends on them is handed on.
Events are collected into a batch; when it is due, it is written, the backlogs are made durable, and only then does the
position move: destination, store, server. A crash between any two of these repeats work that the destination's watermark
recognises.

When a table fails, nothing of the batch is acknowledged: the stream starts again at the durable position, with that
table's changes kept from there on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from etl.destinations.writer import EventWriter
from etl.errors import EtlError
from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, Commit, Event, Relation, RowChanges, Truncate
from etl.lsn import Lsn
from etl.pgoutput.assembled import Assembled
from etl.pgoutput.assembler import Assembler
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.batcher import Batcher
from etl.pipeline.handoff import HandOff
from etl.pipeline.keeping import Keeping
from etl.pipeline.reporting import Reporter
from etl.pipeline.tables import TableBook
from etl.store.base import StateStore
from etl.telemetry.failpoints import failpoint
from etl.telemetry.metric_names import BatchStep
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Awaited, Loop, Pulse, waiting

_WAIT_S = 0.1
#: When so much waits to be decoded, the stream is behind.
_BEHIND_BYTES = 1 << 20
_OP_NAMES = ((OP_INSERT, "insert"), (OP_UPDATE, "update"), (OP_DELETE, "delete"))


class TablesFailedError(Exception):
    """Tables cannot go on; nothing since the durable position was acknowledged. `errors`: by oid."""

    def __init__(self, errors: Mapping[int, EtlError]) -> None:
        super().__init__(f"{len(errors)} tables failed")
        self.errors = errors


class ApplyWorker:
    """Runs on the pipeline's main thread. `step` does one round and can be called without any thread."""

    def __init__(  # noqa: PLR0913 - the collaborators of one session, wired in one place
        self,
        *,
        handoff: HandOff,
        assembler: Assembler,
        batcher: Batcher,
        writer: EventWriter,
        store: StateStore,
        tables: TableBook,
        keeping: Keeping,
        acknowledger: Acknowledger,
        reporter: Reporter,
        metrics: Metrics,
        pulse: Pulse,
        clock: Callable[[], float],
    ) -> None:
        self._handoff = handoff
        self._assembler = assembler
        self._batcher = batcher
        self._writer = writer
        self._store = store
        self._tables = tables
        self._keeping = keeping
        self._acknowledger = acknowledger
        self._reporter = reporter
        self._metrics = metrics
        self._pulse = pulse
        self._clock = clock
        self._idle_lsn: Lsn | None = None
        self.position = acknowledger.flushed

    def step(self, wait_s: float = _WAIT_S) -> bool:
        """Take what waits, write what is due; False when nothing waited within `wait_s`.

        Raises `TablesFailedError`; then this worker has done all it can.
        """
        self._pulse.beat(Loop.APPLY)
        chunk = self._handoff.get(self._wait_s(wait_s))
        if chunk is not None:
            with self._metrics.batch_step(BatchStep.DECODE):
                assembled = self._assembler.feed(chunk)
                kept = self._keeping.take(assembled.frames, assembled.placement)
            self._remember(assembled)
            self._batcher.add(assembled.events, self._clock(), kept_bytes=kept)
        if self._batcher.is_due(self._clock(), is_behind=self._handoff.nbytes >= _BEHIND_BYTES):
            self.flush()
        self._settle_idle()
        return chunk is not None

    def flush(self) -> None:
        """Write every complete transaction that was collected, and acknowledge it. Raises `TablesFailedError`."""
        batch = self._batcher.take(self._clock())
        if batch is None:
            return
        if batch.is_empty and not self._keeping.is_unsynced:
            # Transactions of others, our own bookkeeping among them: a record of each would make the next one.
            self._idle_lsn = batch.commit.end_lsn if batch.commit is not None else None
            return
        began = self._clock()
        failpoint("stream.before_write")
        with self._metrics.batch_step(BatchStep.WRITE), waiting(Awaited.DESTINATION):
            report = self._writer.write(batch.events)
        failpoint("stream.after_write")
        self._metrics.batch(batch.rows, batch.nbytes)
        self._reporter.write_report(report)
        if report.failed:
            raise TablesFailedError(report.failed)
        if batch.commit is not None:
            with self._metrics.batch_step(BatchStep.RECORD):
                self._keeping.sync(batch.commit.commit_lsn)
                self._acknowledger.durable(batch.commit.end_lsn)
            failpoint("stream.after_ack")
            self._metrics.last_commit(batch.commit.timestamp / 1_000_000)
            self._pulse.committed(batch.commit.timestamp)
            self.position = max(self.position, batch.commit.end_lsn)
            self._tables.passed(self._acknowledger.flushed)
        self._batcher.wrote(self._clock() - began)

    def settle(self) -> None:
        """Write all that is complete and acknowledge the idle position, however small the step (at the end)."""
        self.flush()
        self._settle_idle(force=True)

    # --- tables join and leave the stream -------------------------------------------------------------------------

    @property
    def received(self) -> Lsn:
        """How far the stream was decoded."""
        return self._acknowledger.received

    def adopt(self, oid: int, assembler: Assembler) -> None:
        """Apply the table's changes from the next chunk on, as `assembler` would."""
        self._assembler.adopt(oid, assembler)

    def release(self, oid: int) -> None:
        """Forget the table, and what was collected of it and not written."""
        self._assembler.release([oid])
        self._batcher.discard(oid)

    # --- details --------------------------------------------------------------------------------------------------

    def _wait_s(self, longest_s: float) -> float:
        deadline = self._batcher.deadline()
        return longest_s if deadline is None else min(longest_s, max(deadline - self._clock(), 0.0))

    def _remember(self, assembled: Assembled) -> None:
        """Store new schema versions; tables that failed end this run of the stream."""
        if assembled.new_schemas:
            failpoint("schema.before_store")
            for schema in assembled.new_schemas:
                self._store.save_schema(schema)
            failpoint("schema.after_store")
            self._pulse.schemas_changed()
        for notice in assembled.notices:
            self._reporter.ddl_notice(notice)
        if assembled.failures:
            raise TablesFailedError({failure.oid: failure.error for failure in assembled.failures})
        self._acknowledger.receive(assembled.received_lsn)
        self._idle_lsn = assembled.idle_lsn
        self._count(assembled.events)

    def _settle_idle(self, *, force: bool = False) -> None:
        """With nothing collected and no transaction open, the server's own position is as good as durable."""
        quiet = (
            not len(self._batcher) and not self._keeping.is_unsynced and not self._assembler.in_transaction
        )
        if self._idle_lsn is not None and quiet:
            # a table that was handed over is ready once that point is durable: worth a record of its own
            self._acknowledger.idle(self._idle_lsn, force=force or self._tables.is_handing_over)
            self.position = max(self.position, self._idle_lsn)
            self._tables.passed(self._acknowledger.flushed)

    def _count(self, events: list[Event]) -> None:
        for event in events:
            match event:
                case RowChanges():
                    for op, name in _OP_NAMES:
                        if count := int(np.count_nonzero(event.ops == op)):
                            self._metrics.events(name, count)
                case Truncate():
                    self._metrics.events("truncate")
                case Relation():
                    self._metrics.events("relation")
                case Commit():
                    self._metrics.transactions(event.transactions)

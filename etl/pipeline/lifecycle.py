"""What happens to tables while the stream runs: they come, are copied, catch up, fail, are retried, and leave.

Theory of operation. Everything here happens on the main thread, between two steps of the apply worker, and takes little
time: the copies themselves run in threads and only report; a backlog is replayed a slice at a time. Whatever is decided
is recorded in the store before it is acted on, and each record alone says how a restart goes on:

- A table whose changes must be kept gets its backlog first, then the state that names it.
- A live table that fails or is paused is taken out of the stream by starting the stream again from the durable position
  (`StreamRestart`): everything not yet durable comes once more, and its part goes to the backlog.
- A table goes live between two chunks, when its backlog is replayed to the last frame that was decoded.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Protocol

import structlog

from etl.destinations.writer import EventWriter
from etl.errors import (
    BacklogLostError,
    BacklogOverflowError,
    DestinationTableError,
    DestinationTableLostError,
    EtlError,
    RetryPolicy,
    SchemaError,
    SnapshotOutdatedError,
    SourceUnavailableError,
    TableSourceError,
    ValueConversionError,
)
from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pipeline.assembling import make_assembler
from etl.pipeline.catchup import CatchUp
from etl.pipeline.context import PipelineContext
from etl.pipeline.copying import Copied, Copier, CopyBroken, CopyFailed
from etl.pipeline.journal import StoreJournal
from etl.pipeline.keeping import Keeping
from etl.pipeline.membership import Look, rows_may_be_missing, shown
from etl.pipeline.reporting import Reporter
from etl.pipeline.states import LIVE, NEEDS_COPY, TableEvent
from etl.pipeline.tables import TableBook
from etl.source.publication import PublishedTable
from etl.store.base import REFUSED, TableState

_log = structlog.get_logger()
#: Rounds of copies at once: a table that comes late need not wait for a long one.
_ROUNDS = 2
_PATIENCE_S = 0.1
TABLE_FAULTS = (DestinationTableError, ValueConversionError, SchemaError, TableSourceError)


class StreamRestart(Exception):  # noqa: N818 -- not an error: the stream begins again at the durable position
    """Tables were taken out of the stream, and what is not durable must come once more."""


class LiveStream(Protocol):
    """The apply worker, as far as tables join and leave it."""

    @property
    def received(self) -> Lsn:
        """How far the stream was decoded."""

    def adopt(self, oid: int, assembler: Assembler) -> None:
        """Apply the table's changes from the next chunk on, as `assembler` would."""

    def release(self, oid: int) -> None:
        """Forget the table, and what was collected of it and not written."""


class Lifecycle:
    """Made once for as long as the pipeline and the destination are ours."""

    def __init__(
        self,
        context: PipelineContext,
        book: TableBook,
        journal: StoreJournal,
        writer: EventWriter,
        keeping: Keeping,
        copier: Copier,
    ) -> None:
        self._context = context
        self._book = book
        self._journal = journal
        self._writer = writer
        self._keeping = keeping
        self._copier = copier
        self._reporter = Reporter(context.metrics, book.name)
        self._published: Mapping[int, PublishedTable] = {}
        self._catching_up: dict[int, CatchUp] = {}
        self._retry_at: dict[int, float] = {}
        self._attempts: dict[int, int] = {}

    # --- for the session ----------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True when every table streams or has failed: nothing is on its way."""
        return not self._book.is_syncing and self._copier.is_idle

    @property
    def patience_s(self) -> float:
        """How long the apply worker may wait for the stream before the next `step`."""
        if self._catching_up:
            return 0.0
        return _PATIENCE_S if self._copier.is_idle else _PATIENCE_S / 10

    def step(self, stream: LiveStream) -> None:
        """One round of everything that is due. Raises `StreamRestart`, and errors that are no table's."""
        self._take_results()
        self._retry_due()
        self._start_copies()
        self._await_catch_up()
        self._catch_up(stream)
        self._drop_overflowing()

    # --- start --------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take up what an earlier process left: copies begin anew, what has a backlog goes on from it."""
        for oid in self._book.oids():
            record = self._book.record(oid)
            if record.state is TableState.DATA_SYNC:
                self._copy_anew(oid, "the process that copied it has ended, and its snapshot with it")
            elif record.backlog and not self._keeping.resume(oid, record.backlog):
                self._lost(oid)
        for oid in self._book.in_state(TableState.ERRORED):
            self._retry(oid)

    def recover_destination(self) -> None:
        """Finish the schema changes that a crash left. Tables that cannot go on are set aside."""
        known = self._context.destination.watermarks()
        copied = [oid for oid in self._book.oids() if self._book.record(oid).sync_lsn is not None]
        failed: dict[int, EtlError] = {oid: _gone(self._book.name(oid)) for oid in copied if oid not in known}
        failed |= self._writer.recover(set(self._book.live()) - set(failed)).failed
        self.set_aside(failed)

    # --- who is published ---------------------------------------------------------------------------------------

    def reconcile(self, look: Look, stream: LiveStream | None = None) -> None:
        """Take up who is published now, see off who left, and copy anew what the publication shows more of."""
        left = {oid: self._book.name(oid) for oid in self._book.oids() if oid not in look.tables}
        by_name = {name: oid for oid, name in left.items()}
        for oid, table in look.tables.items():
            replaced = by_name.get(table.qualified_name)
            came_back, now = self._book.is_leaving(oid), shown(table)
            self._book.add(oid, table.qualified_name, now)
            self._book.rename(oid, table.qualified_name)
            if replaced is not None and self._book.state(oid) is not TableState.ERRORED:
                self._book.fail(oid, _swapped(table.qualified_name, replaced, oid))
            before = self._book.record(oid).shown
            if came_back or (before is not None and rows_may_be_missing(before, now)):
                _log.warning("published_rows_changed", table=table.qualified_name)
                self.resync(oid, stream)
            self._book.show(oid, now)
        taken = {table.qualified_name for table in look.tables.values()}
        for oid, name in left.items():
            if name not in taken and not self._book.is_leaving(oid):
                self._leave(oid, look.lsn)
        self._published = look.tables

    def _leave(self, oid: int, now: Lsn) -> None:
        _log.warning("table_left_publication", table=self._book.name(oid))
        self._copier.drop(oid)
        self._catching_up.pop(oid, None)
        self._book.leave(oid, now)
        if oid in self._keeping:
            self._keeping.end(oid)

    # --- copies -------------------------------------------------------------------------------------------------

    def _start_copies(self) -> None:
        now = self._context.clock()
        waiting = [
            oid
            for oid in self._book.in_state(TableState.INIT)
            if self._retry_at.get(oid, now) <= now and oid in self._published
        ]
        if not waiting or self._copier.running >= _ROUNDS:
            return
        for oid in waiting:
            self._book.move(oid, TableEvent.COPY_STARTED, backlog=self._keeping.begin(oid))
            self._journal.forget(oid)
        self._copier.start([self._published[oid] for oid in waiting])

    def _take_results(self) -> None:
        for result in self._copier.results():
            match result:
                case CopyBroken(error):
                    raise error
                case Copied(oid, consistent_point, _) if self._is_copying(oid):
                    self._attempts.pop(oid, None)
                    self._context.store.end_copy(oid)
                    self._book.move(oid, TableEvent.COPY_FINISHED, sync_lsn=consistent_point)
                case CopyFailed(oid, error) if self._is_copying(oid):
                    self._copy_failed(oid, error)
                case _:
                    pass

    def _is_copying(self, oid: int) -> bool:
        return oid in self._book and self._book.state(oid) is TableState.DATA_SYNC

    def _copy_failed(self, oid: int, error: EtlError) -> None:
        self._keeping.end(oid)
        attempts = self._attempts[oid] = self._attempts.get(oid, 0) + 1
        limit = self._context.config.retry.max_attempts
        passes_by_itself = isinstance(error, SnapshotOutdatedError | SourceUnavailableError)
        if passes_by_itself and (limit is None or attempts < limit):
            _log.warning("copy_failed", table=self._book.name(oid), error=error.message, hint=error.hint)
            self._context.metrics.retry("table_sync")
            self._copy_anew(oid, error.message)
            self._retry_at[oid] = self._context.clock() + self._delay_s(attempts)
        else:
            self._book.lose_copy(oid, error)
            self._schedule_retry(oid, error)

    def _copy_anew(self, oid: int, note: str) -> None:
        self._catching_up.pop(oid, None)
        self._keeping.end(oid)
        self._book.move(oid, TableEvent.RESET)
        _log.info("table_is_copied_anew", table=self._book.name(oid), reason=note)

    def copy_all_anew(self, note: str) -> None:
        """Changes of every table are missing."""
        for oid in self._book.oids():
            if self._book.state(oid) is not TableState.INIT:
                self._copier.drop(oid)
                self._copy_anew(oid, note)

    # --- catching up --------------------------------------------------------------------------------------------

    def _await_catch_up(self) -> None:
        finished = self._book.in_state(TableState.FINISHED_COPY)
        there = self._context.destination.watermarks() if finished else {}
        self.set_aside({oid: _gone(self._book.name(oid)) for oid in finished if oid not in there})
        for oid in self._book.in_state(TableState.FINISHED_COPY):
            self._book.move(oid, TableEvent.AWAITED)
            self._writer.retry(oid)
        for oid in self._book.in_state(TableState.SYNC_WAIT):
            self._book.move(oid, TableEvent.CAUGHT_BY_APPLY)
            self._catching_up[oid] = self._new_catch_up(oid)

    def _new_catch_up(self, oid: int) -> CatchUp:
        ends = {oid: self._book.record(oid).sync_lsn or Lsn(0)}
        backlog = self._keeping.tables.get(oid)
        if backlog is not None:
            # a new assembler has to see all from a RELATION on; what is applied already is dropped by the watermark
            backlog.reread()
        return CatchUp(
            oid,
            backlog,
            make_assembler(self._context, ends),
            writer=self._writer,
            store=self._context.store,
            reporter=self._reporter,
        )

    def _catch_up(self, stream: LiveStream) -> None:
        for oid, catch_up in list(self._catching_up.items()):
            try:
                if catch_up.step() or not catch_up.finish():
                    continue
            except TABLE_FAULTS as error:
                self.set_aside({oid: error})
                continue
            del self._catching_up[oid]
            stream.adopt(oid, catch_up.assembler)
            self._book.goes_live(oid, stream.received)
            self._keeping.end(oid)
            self._attempts.pop(oid, None)

    # --- failing and trying again -------------------------------------------------------------------------------

    def set_aside(self, failed: Mapping[int, EtlError]) -> bool:
        """These tables cannot go on; True when the stream has to start again, so that their changes are kept."""
        restart = False
        for oid, error in failed.items():
            if oid not in self._book:
                continue
            live = self._book.state(oid) in LIVE
            self._catching_up.pop(oid, None)
            backlog = self._keeping.begin(oid) if live else None
            self._book.fail(oid, error, backlog=backlog)
            self._schedule_retry(oid, error)
            restart = restart or live
        return restart

    def _schedule_retry(self, oid: int, error: EtlError) -> None:
        if error.retry is not RetryPolicy.TIMED:
            return
        delay = self._delay_s(self._book.record(oid).attempts)
        self._retry_at[oid] = self._context.clock() + delay
        _log.info("table_retry_scheduled", table=self._book.name(oid), delay_s=round(delay, 1))

    def _delay_s(self, attempts: int) -> float:
        retry = self._context.config.retry
        delay = min(retry.initial_delay_ms * 2.0 ** min(attempts - 1, 30), retry.max_delay_ms) / 1000
        return delay * random.uniform(0.75, 1.25)  # noqa: S311 -- jitter, no secret

    def _retry_due(self) -> None:
        now = self._context.clock()
        for oid in self._book.in_state(TableState.ERRORED):
            if self._retry_at.get(oid, now + 1) <= now:
                self._context.metrics.retry("table")
                self._retry(oid)

    def _retry(self, oid: int) -> None:
        """Go on from the copy where there is one, else from the beginning."""
        self._retry_at.pop(oid, None)
        if self._book.record(oid).sync_lsn is None:
            self._copy_anew(oid, "it failed before its copy was complete")
        else:
            self._book.move(oid, TableEvent.RETRIED)

    def _lost(self, oid: int) -> None:
        name = self._book.name(oid)
        error = BacklogLostError(
            "the backlog that kept the table's changes is not where it was",
            hint="the table is copied anew; keep backlog.path on a disk that outlives the process",
            table=name,
        )
        _log.warning("backlog_lost", table=name, error=error.message, hint=error.hint)
        if self._book.state(oid) is TableState.PAUSED:
            self._book.without_copy(oid)
        else:
            self._copy_anew(oid, error.message)

    def _drop_overflowing(self) -> None:
        for oid in self._keeping.overflowing():
            error = BacklogOverflowError(
                "more changes wait for the table than backlog.max_bytes allows",
                hint="they were given up, and the table is copied anew; raise backlog.max_bytes to keep more",
                table=self._book.name(oid),
            )
            self._copier.drop(oid)
            self._catching_up.pop(oid, None)
            self._keeping.end(oid)
            if self._book.state(oid) is TableState.PAUSED:
                self._book.without_copy(oid)
                continue
            self._book.lose_copy(oid, error)
            self._schedule_retry(oid, error)

    # --- what people ask for ------------------------------------------------------------------------------------

    def pause(self, oid: int) -> str:
        """Stop applying the table's changes and keep them. Raises `StreamRestart` when it was live."""
        state = self._book.state(oid)
        if state is TableState.PAUSED:
            return "it is paused already"
        if state in NEEDS_COPY:
            self._copier.drop(oid)
            self._keeping.end(oid)
        self._catching_up.pop(oid, None)
        self._retry_at.pop(oid, None)
        backlog = self._keeping.begin(oid) if state in LIVE else None
        self._book.move(oid, TableEvent.PAUSED, backlog=backlog)
        if state in LIVE:
            raise StreamRestart
        return "done"

    def resume(self, oid: int) -> str:
        """Go on where the table was paused."""
        if self._book.state(oid) is not TableState.PAUSED:
            return REFUSED + "it is not paused"
        self._retry(oid)
        return "done"

    def retry(self, oid: int) -> str:
        """Try a failed table again, now."""
        if self._book.state(oid) is not TableState.ERRORED:
            return REFUSED + "it has not failed"
        self._retry(oid)
        return "done"

    def resync(self, oid: int, stream: LiveStream | None) -> str:
        """Copy the table anew beside what is there; that stays as it is until the new copy is complete."""
        if self._book.state(oid) is TableState.INIT:
            return "it waits for its copy already"
        self._copier.drop(oid)
        if stream is not None and self._book.state(oid) in LIVE:
            stream.release(oid)
        self._writer.retry(oid)
        self._copy_anew(oid, "a new copy was asked for")
        return "done"


def _gone(name: str) -> DestinationTableLostError:
    return DestinationTableLostError(
        "the destination does not have the table any more, though it was copied there",
        hint="was it deleted, or replaced by another? Restore it, or `etl tables resync` it",
        table=name,
    )


def _swapped(name: str, replaced: int, oid: int) -> TableSourceError:
    return TableSourceError(
        f"table {name} with oid {replaced} was replaced by another table with oid {oid}",
        hint="its destination table keeps the rows of the old one; `etl destroy` the pipeline and replicate anew",
        table=name,
    )

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

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import structlog

from etl.destinations.writer import EventWriter
from etl.errors import (
    BacklogDamagedError,
    DestinationTableError,
    EtlError,
    RetryPolicy,
    SchemaError,
    SlotActiveError,
    SourceUnavailableError,
    TableSourceError,
    ValueConversionError,
)
from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pipeline.assembling import replay_assembler
from etl.pipeline.catchup import CatchUp, CatchUps
from etl.pipeline.context import PipelineContext
from etl.pipeline.copying import Copied, Copier, CopyBroken, CopyFailed
from etl.pipeline.journal import StoreJournal
from etl.pipeline.keeping import Keeping
from etl.pipeline.live import LiveStream, StreamRestart
from etl.pipeline.membership import Look, rows_may_be_missing, shown
from etl.pipeline.reporting import Reporter
from etl.pipeline.retries import Retries
from etl.pipeline.setbacks import backlog_lost, backlog_overflow, gone, swapped
from etl.pipeline.states import LIVE, NEEDS_COPY, TableEvent
from etl.pipeline.tables import TableBook
from etl.source.publication import PublishedTable
from etl.store.base import REFUSED, TableState
from etl.telemetry.failpoints import failpoint
from etl.telemetry.pulse import Awaited, waiting

_log = structlog.get_logger()
#: Rounds of copies at once: a table that comes late need not wait for a long one.
_ROUNDS = 2
_PATIENCE_S = 0.1
TABLE_FAULTS = (DestinationTableError, ValueConversionError, SchemaError, TableSourceError)


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
        *,
        copy_attempts: int | None,
    ) -> None:
        self._context = context
        self._book = book
        self._journal = journal
        self._writer = writer
        self._keeping = keeping
        self._copier = copier
        self._copy_attempts = copy_attempts
        self._reporter = Reporter(context.metrics, context.pulse, book.name)
        self._published: Mapping[int, PublishedTable] = {}
        self._catch_ups = CatchUps(self._new_catch_up, context.clock)
        self._notes: dict[int, str] = {}
        self._retries = Retries(context.config.retry, context.clock)

    # --- for the session ----------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True when every table streams or has failed: nothing is on its way."""
        return not self._book.is_syncing and self._copier.is_idle

    @property
    def patience_s(self) -> float:
        """How long the apply worker may wait for the stream before the next `step`."""
        if self._catch_ups.has_work:
            return 0.0
        return _PATIENCE_S if self._copier.is_idle else _PATIENCE_S / 10

    def new_run(self) -> None:
        """The stream starts again at the durable position."""
        self._keeping.new_run()
        self._catch_ups.new_run()

    def step(self, stream: LiveStream) -> None:
        """One round of everything that is due. Raises `StreamRestart`, and errors that are no table's."""
        self._take_results()
        self._retry_due()
        self._start_copies()
        self._await_catch_up()
        self._catch_up(stream)
        self._see_to_backlogs()

    # --- start --------------------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Take up what an earlier process left: copies that are not whole begin anew, what has a backlog goes on from it."""
        for oid in self._book.oids():
            record = self._book.record(oid)
            if record.state is TableState.DATA_SYNC and not self._take_up_copy(oid):
                self._copy_anew(oid, "the process that copied it has ended, and its snapshot with it")
            elif record.backlog:
                self._resume_backlog(oid, record.backlog)
        for oid in self._book.in_state(TableState.ERRORED):
            self._retry(oid)

    def _take_up_copy(self, oid: int) -> bool:
        consistent_point = self._copier.finished_before(oid)
        if consistent_point is None:
            return False
        self._copied(oid, consistent_point)
        return True

    def _copied(self, oid: int, consistent_point: Lsn) -> None:
        """In this order: a ledger that outlives its copy is harmless, a whole copy without one would be made again."""
        self._book.move(oid, TableEvent.COPY_FINISHED, sync_lsn=consistent_point)
        self._context.store.end_copy(oid)

    def _resume_backlog(self, oid: int, identity: str) -> None:
        try:
            if not self._keeping.resume(oid, identity):
                self._lost(oid, "the backlog that kept the table's changes is not where it was")
        except BacklogDamagedError as error:
            self._lost(oid, error.message)

    def recover_destination(self) -> None:
        """Finish the schema changes that a crash left. Tables that cannot go on are set aside."""
        with waiting(Awaited.DESTINATION):
            known = self._context.destination.watermarks()
        copied = [oid for oid in self._book.oids() if self._book.record(oid).sync_lsn is not None]
        failed: dict[int, EtlError] = {oid: gone(self._book.name(oid)) for oid in copied if oid not in known}
        with waiting(Awaited.DESTINATION):
            recovered = self._writer.recover(set(self._book.live()) - set(failed))
        self._reporter.write_report(recovered)
        failed |= recovered.failed
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
                self._book.fail(oid, swapped(table.qualified_name, replaced, oid))
            before = self._book.record(oid).shown
            if came_back or (before is not None and rows_may_be_missing(before, now)):
                _log.warning("published_rows_changed", table=table.qualified_name)
                self._show_more(oid, stream)
            self._book.show(oid, now)
        taken = {table.qualified_name for table in look.tables.values()}
        for oid, name in left.items():
            if name not in taken and not self._book.is_leaving(oid):
                self._leave(oid, look.lsn)
        self._published = look.tables

    def _show_more(self, oid: int, stream: LiveStream | None) -> None:
        note = "the publication shows other rows of it"
        if self._book.state(oid) is TableState.PAUSED:
            self._copy_anew(oid, note)
        else:
            self.resync(oid, stream, note)

    def _leave(self, oid: int, now: Lsn) -> None:
        _log.warning("table_left_publication", table=self._book.name(oid))
        self._copier.drop(oid)
        self._catch_ups.drop(oid)
        self._retries.forget(oid)
        self._notes.pop(oid, None)
        self._book.leave(oid, now)
        if oid in self._keeping:
            self._keeping.end(oid)

    # --- copies -------------------------------------------------------------------------------------------------

    def _start_copies(self) -> None:
        waiting = [
            oid
            for oid in self._book.in_state(TableState.INIT)
            if oid in self._published
            and not self._retries.is_early(oid)
            # the last copy may have been dropped in the midst of a write
            and not self._copier.is_busy(oid)
        ]
        if not waiting or self._copier.running >= _ROUNDS:
            return
        for oid in waiting:
            self._book.move(oid, TableEvent.COPY_STARTED, backlog=self._keeping.begin(oid))
            self._journal.forget(oid)
            self._retries.cancel(oid)
        notes = {oid: self._notes.pop(oid) for oid in waiting if oid in self._notes}
        self._copier.start([self._published[oid] for oid in waiting], notes)

    def _take_results(self) -> None:
        for result in self._copier.results():
            match result:
                case CopyBroken(error):
                    raise error
                case Copied(oid, consistent_point, _) if self._is_copying(oid):
                    failpoint("copy.before_state_finished")
                    self._retries.copied(oid)
                    self._copied(oid, consistent_point)
                case CopyFailed(oid, error) if self._is_copying(oid):
                    self._copy_failed(oid, error)
                case _:
                    pass

    def _is_copying(self, oid: int) -> bool:
        return oid in self._book and self._book.state(oid) is TableState.DATA_SYNC

    def _copy_failed(self, oid: int, error: EtlError) -> None:
        self._keeping.end(oid)
        attempts, limit = self._retries.copy_failed(oid), self._copy_attempts
        passes_by_itself = isinstance(error, SourceUnavailableError | SlotActiveError)
        if passes_by_itself and (limit is None or attempts < limit):
            _log.warning("copy_failed", table=self._book.name(oid), error=error.message, hint=error.hint)
            self._context.metrics.retry("table_sync")
            self._copy_anew(oid, error.message)
            self._retries.schedule(oid, attempts)
        else:
            self._book.lose_copy(oid, error, retry_at=self._schedule_retry(oid, error))

    def _copy_anew(self, oid: int, note: str) -> None:
        """Changes of the table are missing. A paused one is copied anew when it goes on."""
        if self._book.state(oid) is TableState.PAUSED:
            self._keeping.end(oid)
            self._book.without_copy(oid)
        else:
            self._reset(oid, note)

    def _reset(self, oid: int, note: str) -> None:
        self._catch_ups.drop(oid)
        self._keeping.end(oid)
        self._book.move(oid, TableEvent.RESET)
        self._notes[oid] = note
        _log.info("table_is_copied_anew", table=self._book.name(oid), reason=note)

    def copy_all_anew(self, note: str) -> None:
        """Changes of every table are missing."""
        for oid in self._book.oids():
            self._copier.drop(oid)
            if self._book.state(oid) is not TableState.INIT:
                self._copy_anew(oid, note)

    # --- catching up --------------------------------------------------------------------------------------------

    def _await_catch_up(self) -> None:
        finished = self._book.in_state(TableState.FINISHED_COPY) if self._catch_ups.has_room else []
        there = self._context.destination.watermarks() if finished else {}
        self.set_aside({oid: gone(self._book.name(oid)) for oid in finished if oid not in there})
        for oid in self._book.in_state(TableState.FINISHED_COPY):
            if not self._catch_ups.has_room:
                return
            failpoint("handoff.before_catchup")
            self._book.move(oid, TableEvent.AWAITED)
            self._writer.retry(oid)
            self._book.move(oid, TableEvent.CAUGHT_BY_APPLY)
            self._catch_ups.add(oid)

    def _new_catch_up(self, oid: int) -> CatchUp:
        backlog = self._keeping.tables.get(oid)
        if backlog is not None:
            # a new assembler has to see all from a RELATION on; what is applied already is dropped by the watermark
            backlog.reread()
        return CatchUp(
            oid,
            backlog,
            replay_assembler(self._context, oid, self._book.record(oid).sync_lsn or Lsn(0)),
            writer=self._writer,
            store=self._context.store,
            reporter=self._reporter,
        )

    def _catch_up(self, stream: LiveStream) -> None:
        for oid in self._catch_ups.turns():
            try:
                assembler = self._catch_ups.replay(oid)
            except TABLE_FAULTS as error:
                self.set_aside({oid: error})
            except BacklogDamagedError as error:
                self._lost(oid, error.message)
            else:
                if assembler is not None:
                    self._go_live(oid, assembler, stream)

    def _go_live(self, oid: int, assembler: Assembler, stream: LiveStream) -> None:
        failpoint("handoff.before_live")
        stream.adopt(oid, assembler)
        failpoint("handoff.after_live")
        self._book.goes_live(oid, stream.received)
        failpoint("handoff.before_backlog_dropped")
        self._keeping.end(oid)

    # --- failing and trying again -------------------------------------------------------------------------------

    def set_aside(self, failed: Mapping[int, EtlError]) -> None:
        """These tables cannot go on. If they were live, the stream has to start again, so that their changes are kept."""
        for oid, error in failed.items():
            if oid not in self._book:
                continue
            self._catch_ups.drop(oid)
            backlog = self._keeping.begin(oid) if self._book.state(oid) in LIVE else None
            self._book.fail(oid, error, backlog=backlog, retry_at=self._schedule_retry(oid, error))

    def _schedule_retry(self, oid: int, error: EtlError) -> datetime | None:
        """When the table, which is failing now, is tried again by itself."""
        self._retries.cancel(oid)
        if error.retry is not RetryPolicy.TIMED:
            return None
        delay = self._retries.schedule(oid, self._book.record(oid).attempts + 1)
        _log.info("table_retry_scheduled", table=self._book.name(oid), delay_s=round(delay, 1))
        return datetime.now(UTC) + timedelta(seconds=delay)

    def _retry_due(self) -> None:
        for oid in self._book.in_state(TableState.ERRORED):
            if self._retries.is_due(oid):
                self._context.metrics.retry("table")
                self._retry(oid)

    def _retry(self, oid: int) -> None:
        """Go on from the copy where there is one, else from the beginning."""
        self._retries.cancel(oid)
        record = self._book.record(oid)
        if record.sync_lsn is None:
            self._reset(oid, record.reason or "its last copy was not completed")
        elif oid not in self._keeping:
            self._reset(oid, "nothing kept the changes that came since it was set aside")
        else:
            self._book.move(oid, TableEvent.RETRIED)

    def _lost(self, oid: int, reason: str) -> None:
        """The backlog cannot be gone on from."""
        error = backlog_lost(self._book.name(oid), reason)
        _log.warning("backlog_lost", table=error.table, error=error.message, hint=error.hint)
        self._copy_anew(oid, error.message)

    def _see_to_backlogs(self) -> None:
        for oid in [oid for oid in self._keeping.tables if oid not in self._book]:
            self._keeping.end(oid)
        for oid in self._keeping.overflowing():
            self._lose(oid, backlog_overflow(self._book.name(oid)))

    def lose_all(self, error: EtlError) -> None:
        """Changes of every table are missing, and something has to be done before they can be copied anew."""
        for oid in self._book.oids():
            if self._book.state(oid) is not TableState.INIT:
                self._lose(oid, error)

    def _lose(self, oid: int, error: EtlError) -> None:
        """Changes of the table are missing. A paused one is copied anew when it goes on."""
        self._copier.drop(oid)
        self._catch_ups.drop(oid)
        self._keeping.end(oid)
        if self._book.state(oid) is TableState.PAUSED:
            self._book.without_copy(oid)
        else:
            self._book.lose_copy(oid, error, retry_at=self._schedule_retry(oid, error))

    # --- what people ask for ------------------------------------------------------------------------------------

    def pause(self, oid: int) -> str:
        """Stop applying the table's changes and keep them. Raises `StreamRestart` when it was live."""
        state = self._book.state(oid)
        if state is TableState.PAUSED:
            return "it is paused already"
        if state in NEEDS_COPY:
            self._copier.drop(oid)
            self._keeping.end(oid)
        self._catch_ups.drop(oid)
        self._retries.cancel(oid)
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

    def resync(self, oid: int, stream: LiveStream | None, note: str = "a new copy was asked for") -> str:
        """Copy the table anew beside what is there; that stays as it is until the new copy is complete."""
        if self._book.state(oid) is TableState.INIT:
            return "it waits for its copy already"
        self._copier.drop(oid)
        if stream is not None and self._book.state(oid) in LIVE:
            stream.release(oid)
        self._writer.retry(oid)
        self._reset(oid, note)
        return "done"

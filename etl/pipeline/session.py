"""One run of the stream, from START_REPLICATION to the first error or the asked-for end."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from etl.destinations.writer import WriteInterruptedError
from etl.errors import EtlError
from etl.lsn import Lsn
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.apply import ApplyWorker, TablesFailedError
from etl.pipeline.assembling import stream_assembler
from etl.pipeline.batcher import Batcher
from etl.pipeline.context import PipelineContext
from etl.pipeline.handoff import HandOff
from etl.pipeline.live import StreamRestart
from etl.pipeline.membership import PublicationReplacedError
from etl.pipeline.ownership import Ownership
from etl.pipeline.pruning import Pruner
from etl.pipeline.reader import Reader
from etl.pipeline.reporting import Reporter
from etl.source.connection import connect_query, connect_replication, translated
from etl.source.replication import ReplicationStream
from etl.source.slots import apply_slot_name
from etl.telemetry.failpoints import failpoint
from etl.telemetry.pulse import Awaited, Loop, Positions, RunPhase, waiting

_log = structlog.get_logger()
_PROBE_S = 0.2
_REPORTS_PER_TIMEOUT = 3
_DEFAULT_SENDER_TIMEOUT_S = 60.0
_LONGEST_REPORT_INTERVAL_S = 10.0


class Session:
    """Streams from `start`. `target`, asked once nothing is on its way to the stream: end when it is applied."""

    def __init__(
        self,
        context: PipelineContext,
        ownership: Ownership,
        start: Lsn,
        target: Callable[[], Lsn] | None,
    ) -> None:
        self._context = context
        self._ownership = ownership
        self._tables = ownership.tables
        self._lifecycle = ownership.lifecycle
        self._start = start
        self._target = target
        self._settled = False
        self._acknowledger = Acknowledger(start, self._save_progress)
        self._handoff = HandOff(context.config.handoff.max_bytes)
        self._pruner = Pruner(context.store, lambda: list(self._tables.live()), context.clock)

    @property
    def advanced(self) -> bool:
        """True when this session made durable progress."""
        return self._acknowledger.flushed > self._start

    def run(self) -> None:
        """Stream until the target, a stop, or an error, which is raised. Raises `StreamRestart`."""
        self._lifecycle.new_run()
        worker = self._worker()
        reader = self._reader()
        reader.start()
        self._context.pulse.enter(RunPhase.STREAMING)
        _log.info("streaming_started", lsn=str(self._start), bounded=self._target is not None)
        try:
            with self._context.pulse.loop(Loop.APPLY):
                self._loop(worker, reader)
                reader.stop_reading()
                worker.settle()
        except WriteInterruptedError:
            _log.info("batch_left_to_next_start")
        except TablesFailedError as failed:
            self._lifecycle.set_aside(failed.errors)
            raise StreamRestart from failed
        except PublicationReplacedError as error:
            self._lifecycle.lose_all(error)
            raise
        finally:
            reader.finish()
            with waiting(Awaited.SOURCE):
                reader.join()
        if reader.error is not None and not self._reached(worker):
            raise reader.error
        _log.info("streaming_stopped", lsn=str(self._acknowledger.flushed))

    def _loop(self, worker: ApplyWorker, reader: Reader) -> None:
        self._ownership.requests.serve(worker)
        while not self._context.stop.is_set() and not self._reached(worker):
            worked = worker.step(self._lifecycle.patience_s)
            self._show(worker)
            self._pruner.run_if_due(self._acknowledger.flushed)
            self._look_around(worker)
            self._lifecycle.step(worker)
            self._tell_settled()
            if not worked and not reader.is_alive():
                worker.flush()
                if reader.error is not None:
                    raise reader.error
                return
            if self._target is not None and not worked:
                worker.flush()

    def _show(self, worker: ApplyWorker) -> None:
        """Tell those who watch that the loop came round, and how far it is."""
        pulse, acknowledger = self._context.pulse, self._acknowledger
        pulse.beat(Loop.MAIN)
        pulse.moved(Positions(acknowledger.received, worker.position, acknowledger.flushed))
        pulse.keeps({oid: backlog.nbytes for oid, backlog in self._ownership.keeping.tables.items()})
        self._context.metrics.handoff_queue(self._handoff.nbytes)

    def _tell_settled(self) -> None:
        """Once a run: every table streams, or is set aside."""
        if not self._settled and self._lifecycle.is_settled:
            self._settled = True
            live = len(self._tables.live())
            _log.info("tables_settled", streaming=live, set_aside=len(self._tables.oids()) - live)

    def _look_around(self, worker: ApplyWorker) -> None:
        """Who is published, and what people ask for, every few moments."""
        look = self._ownership.membership.look_if_due()
        if look is not None:
            self._lifecycle.reconcile(look, worker)
            self._ownership.copier.hold(
                held=look.retained_wal > self._context.config.table_sync.max_retained_wal
            )
            self._ownership.requests.serve(worker)

    def _reached(self, worker: ApplyWorker) -> bool:
        if self._target is None or not self._lifecycle.is_settled:
            return False
        return worker.position >= self._target()

    def _save_progress(self, lsn: Lsn) -> None:
        self._ownership.membership.check_if_silent()
        self._context.store.save_progress(lsn)
        failpoint("stream.after_progress")

    # --- wiring ---------------------------------------------------------------------------------------------------

    def _worker(self) -> ApplyWorker:
        context = self._context
        return ApplyWorker(
            handoff=self._handoff,
            assembler=stream_assembler(context, self._tables.live()),
            batcher=Batcher(context.config.batch.max_bytes, context.config.max_fill_s),
            writer=self._ownership.writer,
            store=context.store,
            tables=self._tables,
            keeping=self._ownership.keeping,
            acknowledger=self._acknowledger,
            reporter=Reporter(context.metrics, context.pulse, self._tables.name),
            metrics=context.metrics,
            pulse=context.pulse,
            clock=context.clock,
        )

    def _reader(self) -> Reader:
        context = self._context
        interval = self._report_interval_s()
        connection = connect_replication(context.parameters, f"replication:apply:{context.pipeline_id}")
        try:
            stream = ReplicationStream(
                connection,
                context.parameters,
                slot=apply_slot_name(context.pipeline_id),
                publication=context.config.pipeline.publication,
                start=self._start,
            )
        except EtlError:
            connection.close()
            raise
        return Reader(
            stream,
            self._handoff,
            self._acknowledger,
            context.metrics,
            context.pulse,
            clock=context.clock,
            report_interval_s=interval,
            probe_interval_s=_PROBE_S if self._target is not None else None,
        )

    def _report_interval_s(self) -> float:
        parameters = self._context.parameters
        with (
            connect_query(parameters, f"apply:{self._context.pipeline_id}") as connection,
            translated(parameters),
        ):
            row = connection.execute(
                "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
            ).fetchone()
        timeout_s = (row[0] / 1000 if row else 0) or _DEFAULT_SENDER_TIMEOUT_S
        return min(timeout_s / _REPORTS_PER_TIMEOUT, _LONGEST_REPORT_INTERVAL_S)

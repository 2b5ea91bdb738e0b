"""One run of the stream, from START_REPLICATION to the first error or the asked-for end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import structlog

from etl.destinations.writer import WriteInterruptedError
from etl.errors import EtlError
from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.apply import ApplyWorker
from etl.pipeline.batcher import Batcher
from etl.pipeline.bootstrap import Prepared
from etl.pipeline.context import PipelineContext
from etl.pipeline.handoff import HandOff
from etl.pipeline.pruning import Pruner
from etl.pipeline.publication_watch import PublicationReplacedError, PublicationWatch
from etl.pipeline.reader import Reader
from etl.pipeline.reporting import Reporter
from etl.schema.catalog import SchemaCatalog
from etl.schema.drift import Ambiguous, explain_drift
from etl.schema.relation import RelationShape
from etl.schema.table import TableSchema
from etl.source.catalog import catalog_columns
from etl.source.connection import connect_query, connect_replication, translated
from etl.source.install import load_signing_keys
from etl.source.publication import published_tables
from etl.source.replication import ReplicationStream
from etl.source.slots import apply_slot_name
from etl.telemetry.failpoints import failpoint

_log = structlog.get_logger()
_PROBE_S = 0.2
_REPORTS_PER_TIMEOUT = 3
_DEFAULT_SENDER_TIMEOUT_S = 60.0
_LONGEST_REPORT_INTERVAL_S = 10.0


class Session:
    """Streams from `prepared.start`. `target`: end when everything up to it is applied."""

    def __init__(self, context: PipelineContext, prepared: Prepared, target: Lsn | None) -> None:
        self._context = context
        self._prepared = prepared
        self._target = target
        self._acknowledger = Acknowledger(prepared.start, self._save_progress)
        if prepared.held:
            self._acknowledger.hold(prepared.start)
        self._watch = PublicationWatch(context)
        self._handoff = HandOff(context.config.handoff.max_bytes)
        self._pruner = Pruner(context.store, list(prepared.tables.streaming()), context.clock)

    @property
    def advanced(self) -> bool:
        """True when this session made durable progress."""
        return self._acknowledger.flushed > self._prepared.start

    def run(self) -> None:
        """Stream until the target, a stop, or an error, which is raised."""
        with closing(self._watch):
            self._watch.open()
            self._stream()

    def _stream(self) -> None:
        worker = self._worker()
        reader = self._reader()
        reader.start()
        _log.info("streaming_started", lsn=str(self._prepared.start), until=str(self._target or "stopped"))
        try:
            self._loop(worker, reader)
            reader.stop_reading()
            worker.settle()
        except WriteInterruptedError:
            _log.info("batch_left_to_next_start")
        except PublicationReplacedError as error:
            self._prepared.tables.copy_anew(error)
            raise
        finally:
            reader.finish()
            reader.join()
        if reader.error is not None and not self._reached(worker):
            raise reader.error
        _log.info("streaming_stopped", lsn=str(self._acknowledger.flushed))

    def _loop(self, worker: ApplyWorker, reader: Reader) -> None:
        while not self._context.stop.is_set() and not self._reached(worker):
            worked = worker.step()
            self._context.metrics.handoff_queue(self._handoff.nbytes)
            self._pruner.run_if_due(self._acknowledger.flushed)
            self._watch.check_if_due()
            if not worked and not reader.is_alive():
                worker.flush()
                if reader.error is not None:
                    raise reader.error
                return
            if self._target is not None and not worked:
                worker.flush()

    def _reached(self, worker: ApplyWorker) -> bool:
        return self._target is not None and worker.position >= self._target

    def _save_progress(self, lsn: Lsn) -> None:
        self._watch.check()
        self._context.store.save_progress(lsn)
        failpoint("stream.after_progress")

    # --- wiring ---------------------------------------------------------------------------------------------------

    def _worker(self) -> ApplyWorker:
        context, tables = self._context, self._prepared.tables
        names = tables.names()
        return ApplyWorker(
            handoff=self._handoff,
            assembler=self._assembler(),
            batcher=Batcher(context.config.batch.max_bytes, context.config.max_fill_s),
            writer=self._prepared.writer,
            store=context.store,
            tables=tables,
            acknowledger=self._acknowledger,
            reporter=Reporter(context.metrics, lambda oid: names.get(oid, f"oid {oid}")),
            metrics=context.metrics,
            clock=context.clock,
        )

    def _assembler(self) -> Assembler:
        context = self._context
        return Assembler(
            self._prepared.tables.streaming(),
            SchemaCatalog(context.store.schemas()),
            DdlMessages(
                self._signing_keys(),
                allow_unsigned=context.config.source.allow_unsigned_ddl,
                reload=self._signing_keys,
            ),
            explainer(context),
            context.type_options,
        )

    def _signing_keys(self) -> dict[int, bytes]:
        context = self._context
        with connect_query(context.parameters, f"apply:{context.pipeline_id}") as connection:
            return load_signing_keys(connection)

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
                start=self._prepared.start,
            )
        except EtlError:
            connection.close()
            raise
        return Reader(
            stream,
            self._handoff,
            self._acknowledger,
            context.metrics,
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


def explainer(context: PipelineContext) -> Callable[[TableSchema, RelationShape], TableSchema | str]:
    """Explain a RELATION that contradicts the stored version by the source's catalog of today."""

    def explain(version: TableSchema, shape: RelationShape) -> TableSchema | str:
        with connect_query(context.parameters, f"apply:{context.pipeline_id}") as connection:
            publication = context.config.pipeline.publication
            tables = {t.oid: t for t in published_tables(connection, context.parameters, publication)}
            listed = tables[version.oid].column_names if version.oid in tables else None
            columns = catalog_columns(connection, context.parameters, version.oid, listed)
        explained = explain_drift(version, shape, columns)
        if isinstance(explained, Ambiguous):
            return explained.reason
        _log.warning("schema_drift_healed", table=version.qualified_name)
        return explained

    return explain

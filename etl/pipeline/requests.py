"""What people ask for with `etl tables`, done by the process that owns the pipeline."""

from __future__ import annotations

import structlog

from etl.destinations.base import DestinationTable, TableMode
from etl.errors import EtlError, StoreError
from etl.pipeline.context import PipelineContext
from etl.pipeline.lifecycle import Lifecycle
from etl.pipeline.live import LiveStream, StreamRestart
from etl.pipeline.tables import TableBook
from etl.store.base import REFUSED, TableRequest, TableVerb

_log = structlog.get_logger()


class Requests:
    """Used by the pipeline's main thread only."""

    def __init__(self, context: PipelineContext, tables: TableBook, lifecycle: Lifecycle) -> None:
        self._context = context
        self._tables = tables
        self._lifecycle = lifecycle

    def serve(self, stream: LiveStream) -> None:
        """Do what was asked since the last time. Raises `StreamRestart` when a table has left the stream."""
        for request in self._context.store.requests():
            restart: StreamRestart | None = None
            try:
                outcome = self._do(request, stream)
            except StreamRestart as asked:
                outcome, restart = "done", asked
            except EtlError as error:
                if not isinstance(error, StoreError) and request.verb is TableVerb.DROP:
                    raise
                outcome = REFUSED + error.message
            self._context.store.settle_request(request.id, outcome)
            _log.info(
                "table_request_served",
                table=self._tables.name(request.oid),
                verb=request.verb.value,
                outcome=outcome,
            )
            if restart is not None:
                raise restart

    def _do(self, request: TableRequest, stream: LiveStream) -> str:
        oid = request.oid
        if request.verb is TableVerb.DROP:
            return self._drop(oid)
        if oid not in self._tables:
            return REFUSED + "the pipeline does not know the table any more"
        match request.verb:
            case TableVerb.PAUSE:
                return self._lifecycle.pause(oid)
            case TableVerb.RESUME:
                return self._lifecycle.resume(oid)
            case TableVerb.RETRY:
                return self._lifecycle.retry(oid)
            case TableVerb.RESYNC:
                return self._lifecycle.resync(oid, stream)

    def _drop(self, oid: int) -> str:
        if oid in self._tables:
            return (
                REFUSED + "the table is still published, or the stream has not passed the point where it left"
            )
        record = self._context.store.destination_records().get(oid)
        if record is None:
            return REFUSED + "the destination has no such table"
        self._context.destination.drop_table(
            DestinationTable(oid, record.destination_table, TableMode(record.mode))
        )
        self._context.store.delete_table(oid)
        return "done"

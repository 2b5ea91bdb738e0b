"""What lives as long as the pipeline and its destination are ours, over any number of runs of the stream."""

from __future__ import annotations

from etl.destinations.base import TableMode
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.writer import EventWriter
from etl.pipeline.context import PipelineContext
from etl.pipeline.copying import Copier
from etl.pipeline.journal import StoreJournal
from etl.pipeline.keeping import Keeping
from etl.pipeline.lifecycle import Lifecycle
from etl.pipeline.membership import Membership
from etl.pipeline.requests import Requests
from etl.pipeline.tables import TableBook
from etl.schema.table import ReplicatedTableSchema
from etl.store.backlog import Backlogs


class Ownership:
    """Made after the store and the destination were opened under one epoch; closed before either is."""

    def __init__(self, context: PipelineContext, copy_attempts: int | None) -> None:
        """`copy_attempts`: how often in a row a copy is tried before its table has failed; None for ever."""
        self._context = context
        self.tables = TableBook(context.store, context.metrics, context.pulse)
        self.journal = StoreJournal(context.store)
        measure = context.metrics.destination_call
        self.writer = EventWriter(
            context.destination, self.journal, is_stopping=context.stop.is_set, measure=measure
        )
        backlogs = Backlogs(context.config.backlog_path)
        self.keeping = Keeping(backlogs, context.config.backlog.max_bytes)
        self.copier = Copier(context, CopyWriter(context.destination, self.journal, self._mode_of, measure))
        self.lifecycle = Lifecycle(
            context,
            self.tables,
            self.journal,
            self.writer,
            self.keeping,
            self.copier,
            copy_attempts=copy_attempts,
        )
        self.membership = Membership(context)
        self.requests = Requests(context, self.tables, self.lifecycle)
        self.tables.load({schema.oid: schema.qualified_name for schema in context.store.schemas()})
        try:
            self.lifecycle.recover()
            backlogs.drop_unknown(self.keeping.tables.keys())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the copies and close the backlogs. What is there stays for the next owner."""
        self.copier.close()
        self.membership.close()
        self.keeping.close()

    def _mode_of(self, schema: ReplicatedTableSchema) -> TableMode:
        return TableMode(self._context.config.mode_of(schema.qualified_name))

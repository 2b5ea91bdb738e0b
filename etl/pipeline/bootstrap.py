"""From nothing, or from what a crash left, to the point where streaming can start.

The order matters and every step is safe to repeat: own the pipeline, make sure schema changes are being logged, own the
slot, own the destination, take up the published tables, copy those that need it.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from etl.destinations.base import TableMode
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.writer import EventWriter
from etl.errors import DestinationTableError, PublicationError, SlotLostError, TableSourceError
from etl.lsn import Lsn
from etl.pipeline.context import PipelineContext
from etl.pipeline.journal import StoreJournal
from etl.pipeline.states import NEEDS_COPY
from etl.pipeline.table_sync import TableSync
from etl.pipeline.tables import TableBook
from etl.schema.table import ReplicatedTableSchema
from etl.source.connection import Connection, connect_query, connect_replication
from etl.source.publication import PublishedTable, load_publication, published_tables
from etl.source.slots import (
    CreatedSlot,
    SlotState,
    apply_slot_name,
    check_usable,
    copy_slot_name,
    create_slot,
    current_lsn,
    slot_state,
)
from etl.telemetry.failpoints import failpoint

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Ready to stream from `start`; `held`: some table cannot go on from there, and its changes must stay in the slot."""

    start: Lsn
    held: bool
    tables: TableBook
    writer: EventWriter
    journal: StoreJournal


class Bootstrap:
    """One attempt; made anew for each session."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._tables = TableBook(context.store, context.metrics)
        self._journal = StoreJournal(context.store)
        self._writer = EventWriter(
            context.destination, self._journal, self._mode_of, is_stopping=context.stop.is_set
        )

    def run(self) -> Prepared:
        """Copy what needs copying and return where the stream starts. Raises any `EtlError`."""
        parameters = self._context.parameters
        with connect_query(parameters, f"apply:{self._context.pipeline_id}") as connection:
            name = self._context.config.pipeline.publication
            load_publication(connection, parameters, name)
            published = published_tables(connection, parameters, name)
            if not published:
                raise PublicationError(
                    f"publication {name} has no tables",
                    hint=f'on the source: ALTER PUBLICATION "{name}" ADD TABLE …',
                )
            self._reconcile(connection, published)
            start = self._slot(connection)
        self._tables.hand_to_stream()
        held = self._recover()
        return Prepared(start, held, self._tables, self._writer, self._journal)

    def _recover(self) -> bool:
        """Finish the schema changes that a crash left; True when a copied table cannot go on."""
        known, names = self._context.destination.watermarks(), self._tables.names()
        failed = {oid: _lost_error(names[oid]) for oid in self._tables.streaming() if oid not in known}
        failed |= self._writer.recover(set(self._tables.streaming()) - set(failed)).failed
        for oid, error in failed.items():
            self._tables.fail(oid, error)
        return bool(failed)

    def _mode_of(self, schema: ReplicatedTableSchema) -> TableMode:
        return TableMode(self._context.config.mode_of(schema.qualified_name))

    # --- membership -----------------------------------------------------------------------------------------------

    def _reconcile(self, connection: Connection, published: list[PublishedTable]) -> None:
        """Take up the published tables; see off those that left, unless another table took the name of one."""
        known = {schema.oid: schema.qualified_name for schema in self._context.store.schemas()}
        left = {
            oid: known.get(oid, f"oid {oid}")
            for oid in self._tables.load({table.oid: table.qualified_name for table in published})
        }
        by_name = {name: oid for oid, name in left.items()}
        swapped = {
            table.oid: by_name[table.qualified_name] for table in published if table.qualified_name in by_name
        }
        for oid, replaced in swapped.items():
            self._tables.fail(oid, _swap_error(self._tables.names()[oid], replaced, oid))
        if left:
            now = current_lsn(connection, self._context.parameters)
            self._tables.see_off(left, now, keep=swapped.values())
        gone = [name for oid, name in left.items() if oid not in swapped.values()]
        if gone:
            _log.warning("tables_left_publication", tables=", ".join(gone))

    # --- slot -----------------------------------------------------------------------------------------------------

    def _slot(self, connection: Connection) -> Lsn:
        """Use or create the slot, and copy under its snapshot, or under that of a temporary one."""
        name = apply_slot_name(self._context.pipeline_id)
        state = slot_state(connection, self._context.parameters, name)
        if state is None:
            return self._create(name, connection)
        check_usable(state, connection.info.dbname)
        start = self._start_of(state)
        if self._tables.needing_copy():
            with connect_replication(
                self._context.parameters, f"table_sync:{self._context.pipeline_id}"
            ) as replication:
                copy_name = copy_slot_name(self._context.pipeline_id)
                slot = create_slot(replication, self._context.parameters, copy_name, temporary=True)
                self._copy(connection, slot)
        return start

    def _create(self, name: str, connection: Connection) -> Lsn:
        store = self._context.store
        lost = [r.oid for r in store.table_states().values() if r.sync_lsn is not None]
        if lost or store.progress() is not None:
            raise SlotLostError(
                f"slot {name} is gone, but the pipeline has progress that depends on it",
                hint="changes since it was dropped are missing: `etl destroy` the pipeline and replicate anew",
            )
        with connect_replication(
            self._context.parameters, f"apply:{self._context.pipeline_id}"
        ) as replication:
            slot = create_slot(replication, self._context.parameters, name)
            failpoint("start.after_slot_create")
            store.save_progress(slot.consistent_point)
            _log.info("slot_created", slot=name, lsn=str(slot.consistent_point))
            self._copy(connection, slot)
        return slot.consistent_point

    def _start_of(self, state: SlotState) -> Lsn:
        """The stored progress; the slot cannot know more, because the store is always told first."""
        confirmed = state.confirmed_flush_lsn or Lsn(0)
        progress = self._context.store.progress()
        if progress is None:
            untouched = all(r.state in NEEDS_COPY for r in self._context.store.table_states().values())
            if not untouched:
                raise SlotLostError(
                    f"the state store has no progress for slot {state.name}, though tables were copied",
                    hint="the state store was changed or restored in part: restore it, or `etl destroy` the pipeline",
                )
            self._context.store.save_progress(confirmed)
            return confirmed
        if confirmed > progress:
            raise SlotLostError(
                f"slot {state.name} stands at {confirmed}, beyond our recorded progress {progress}:"
                " it was recreated or advanced by somebody else, or the state store is an old copy",
                hint="changes between the two may be missing: `etl destroy` the pipeline and replicate anew",
            )
        return progress

    def _copy(self, connection: Connection, slot: CreatedSlot) -> None:
        """Copy what needs it, as it is published now: a slot may have waited long for others' transactions."""
        needed = set(self._tables.needing_copy())
        publication = self._context.config.pipeline.publication
        published = published_tables(connection, self._context.parameters, publication)
        copies = CopyWriter(self._context.destination, self._journal, self._mode_of)
        sync = TableSync(self._context, self._tables, self._writer, copies, self._journal)
        sync.run([table for table in published if table.oid in needed], slot)


def _lost_error(name: str) -> DestinationTableError:
    return DestinationTableError(
        "the destination does not have the table any more, though it was copied there",
        hint="was it deleted, or replaced by another? Restore it, or `etl destroy` the pipeline and replicate anew",
        table=name,
    )


def _swap_error(name: str, replaced: int, oid: int) -> TableSourceError:
    return TableSourceError(
        f"table {name} with oid {replaced} was replaced by another table with oid {oid}",
        hint="its destination table keeps the rows of the old one; `etl destroy` the pipeline and replicate anew",
        table=name,
    )

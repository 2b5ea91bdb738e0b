"""From nothing, or from what a crash left, to the point where streaming can start.

Every step is safe to repeat: take up the published tables, own the slot, finish what the destination was left with.
"""

from __future__ import annotations

import structlog

from etl.errors import PublicationError, SlotLostError
from etl.lsn import Lsn
from etl.pipeline.context import PipelineContext
from etl.pipeline.ownership import Ownership
from etl.source.connection import Connection, connect_query, connect_replication
from etl.source.publication import load_publication
from etl.source.slots import (
    SlotState,
    apply_slot_name,
    check_ours,
    check_usable,
    create_slot,
    drop_slot,
    orphaned_slots,
    slot_state,
)
from etl.store.base import TableState
from etl.telemetry.failpoints import failpoint

_log = structlog.get_logger()


class Bootstrap:
    """One attempt."""

    def __init__(self, context: PipelineContext, ownership: Ownership) -> None:
        self._context = context
        self._ownership = ownership

    def run(self) -> Lsn:
        """Make everything ready and return where the stream starts. Raises any `EtlError`."""
        parameters = self._context.parameters
        with connect_query(parameters, f"apply:{self._context.pipeline_id}") as connection:
            load_publication(connection, parameters, self._context.config.pipeline.publication)
            start = self._slot(connection)
        look = self._ownership.membership.open()
        if not look.tables and not self._ownership.tables.oids():
            name = self._context.config.pipeline.publication
            raise PublicationError(
                f"publication {name} has no tables",
                hint=f'on the source: ALTER PUBLICATION "{name}" ADD TABLE …',
            )
        self._ownership.lifecycle.reconcile(look)
        self._ownership.lifecycle.recover_destination()
        return start

    def _slot(self, connection: Connection) -> Lsn:
        """Where the stream of our slot continues; a pipeline that never ran gets its slot here."""
        name, parameters = apply_slot_name(self._context.pipeline_id), self._context.parameters
        for orphan in orphaned_slots(connection, parameters, self._context.pipeline_id):
            drop_slot(connection, parameters, orphan)
            _log.warning("orphaned_slot_dropped", slot=orphan)
        state = slot_state(connection, parameters, name)
        if state is not None:
            check_ours(state, connection.info.dbname)
        try:
            if state is None:
                self._refuse_gap(name)
                return self._create(name)
            check_usable(state)
            return self._start_of(state)
        except SlotLostError as error:
            if self._context.config.invalidated_slot_behavior != "recreate":
                raise
            return self._recreate(connection, name, error)

    def _recreate(self, connection: Connection, name: str, error: SlotLostError) -> Lsn:
        """Begin anew with a new slot: changes are missing, so every table is copied again, beside what is there."""
        _log.error("slot_recreated", slot=name, reason=error.message)
        self._ownership.lifecycle.copy_all_anew(error.message)
        # before the new slot is there: a crash in between must not leave a position that skips changes
        self._context.store.reset_progress()
        drop_slot(connection, self._context.parameters, name)
        return self._create(name)

    def _refuse_gap(self, name: str) -> None:
        store = self._context.store
        copied = [record.oid for record in store.table_states().values() if record.sync_lsn is not None]
        if copied or store.progress() is not None:
            raise SlotLostError(
                f"slot {name} is gone, but the pipeline has progress that depends on it",
                hint="changes since it was dropped are missing: `etl destroy` the pipeline and replicate anew, or set"
                " invalidated_slot_behavior: recreate",
            )

    def _create(self, name: str) -> Lsn:
        context = self._context
        with connect_replication(
            context.parameters, f"replication:apply:{context.pipeline_id}"
        ) as replication:
            slot = create_slot(
                replication, context.parameters, name, failover=context.config.source.failover_slot
            )
        failpoint("start.after_slot_create")
        context.store.save_progress(slot.consistent_point)
        _log.info("slot_created", slot=name, lsn=str(slot.consistent_point))
        return slot.consistent_point

    def _start_of(self, state: SlotState) -> Lsn:
        """The stored progress; the slot cannot know more, because the store is always told first."""
        confirmed = state.confirmed_flush_lsn or Lsn(0)
        progress = self._context.store.progress()
        if progress is None:
            begun = self._ownership.tables.in_state(*(set(TableState) - {TableState.INIT}))
            if begun:
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

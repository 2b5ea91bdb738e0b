"""The life of a table in a pipeline, as one literal transition table.

Theory of operation. A published table starts in INIT. Its rows are read under the snapshot of a replication slot
(DATA_SYNC) and are durable at the destination in FINISHED_COPY; together with that state the slot's consistent point is
recorded as `sync_lsn`: transactions that commit below it are in the copy, the others come through the stream. The apply
worker owns the table from SYNC_DONE on and calls it READY once its own durable position has passed `sync_lsn`. Any
state can become ERRORED, which keeps the reason, the solution and the retry policy.

A crash in INIT or DATA_SYNC starts the copy again from nothing: the half copy is replaced, never continued. A crash in
FINISHED_COPY or later continues with the stream.

What is absent from the table is illegal, raises, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from etl.errors import StoreError
from etl.store.base import TableState


class TableEvent(StrEnum):
    """What moves a table from one state to the next."""

    COPY_STARTED = "copy_started"
    COPY_FINISHED = "copy_finished"
    STREAM_OWNS = "stream_owns"
    STREAM_PASSED = "stream_passed"
    FAILED = "failed"
    RETRIED = "retried"
    RESET = "reset"


TRANSITIONS: Mapping[tuple[TableState, TableEvent], TableState] = {
    (TableState.INIT, TableEvent.COPY_STARTED): TableState.DATA_SYNC,
    (TableState.DATA_SYNC, TableEvent.COPY_STARTED): TableState.DATA_SYNC,
    (TableState.DATA_SYNC, TableEvent.COPY_FINISHED): TableState.FINISHED_COPY,
    (TableState.FINISHED_COPY, TableEvent.STREAM_OWNS): TableState.SYNC_DONE,
    (TableState.SYNC_DONE, TableEvent.STREAM_PASSED): TableState.READY,
    (TableState.INIT, TableEvent.FAILED): TableState.ERRORED,
    (TableState.DATA_SYNC, TableEvent.FAILED): TableState.ERRORED,
    (TableState.FINISHED_COPY, TableEvent.FAILED): TableState.ERRORED,
    (TableState.SYNC_DONE, TableEvent.FAILED): TableState.ERRORED,
    (TableState.READY, TableEvent.FAILED): TableState.ERRORED,
    (TableState.ERRORED, TableEvent.FAILED): TableState.ERRORED,
    # A table that failed after its copy goes on where it stood; one that failed before is copied anew.
    (TableState.ERRORED, TableEvent.RETRIED): TableState.SYNC_DONE,
    (TableState.ERRORED, TableEvent.RESET): TableState.INIT,
    (TableState.DATA_SYNC, TableEvent.RESET): TableState.INIT,
}

#: A restart copies these from the beginning.
NEEDS_COPY = frozenset({TableState.INIT, TableState.DATA_SYNC})

#: The stream leaves these alone.
NOT_STREAMED = NEEDS_COPY | {TableState.ERRORED}


def transition(state: TableState, event: TableEvent) -> TableState:
    """The next state. Raises `StoreError` for an illegal move."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise StoreError(
            f"a table in state {state} cannot take {event}",
            hint="report this: the pipeline's bookkeeping is wrong",
        ) from None

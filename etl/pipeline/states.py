"""The life of a table in a pipeline, as one literal transition table.

Theory of operation. A published table starts in INIT: it waits for its copy. From DATA_SYNC on its changes are kept in a
backlog, and its rows are read under a snapshot whose consistent point S is recorded as `sync_lsn`: transactions that
commit below S are in the copy, the others in the backlog. FINISHED_COPY: the rows are durable at the destination.
SYNC_WAIT: the apply worker has heard of it. CATCHUP: it replays the backlog, beside the stream. SYNC_DONE: the backlog is
empty and the stream owns the table; READY: the durable position has passed that point as well.

A table that fails goes to ERRORED with reason, solution and retry policy, one that a person stops to PAUSED. Both keep
what is at the destination, and their later changes in a backlog, so that a retry continues with FINISHED_COPY instead of
a new copy. RESET asks for a new copy; the old one stays readable until the new one is complete.

SYNC_WAIT and CATCHUP live in memory only: a restart finds FINISHED_COPY. A restart in DATA_SYNC copies from the
beginning, because the snapshot ended with the process.

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
    AWAITED = "awaited"
    CAUGHT_BY_APPLY = "caught_by_apply"
    STREAM_OWNS = "stream_owns"
    STREAM_PASSED = "stream_passed"
    FAILED = "failed"
    PAUSED = "paused"
    RETRIED = "retried"
    RESET = "reset"


_COPIED = (
    TableState.FINISHED_COPY,
    TableState.SYNC_WAIT,
    TableState.CATCHUP,
    TableState.SYNC_DONE,
    TableState.READY,
)

TRANSITIONS: Mapping[tuple[TableState, TableEvent], TableState] = {
    (TableState.INIT, TableEvent.COPY_STARTED): TableState.DATA_SYNC,
    (TableState.DATA_SYNC, TableEvent.COPY_FINISHED): TableState.FINISHED_COPY,
    (TableState.FINISHED_COPY, TableEvent.AWAITED): TableState.SYNC_WAIT,
    (TableState.SYNC_WAIT, TableEvent.CAUGHT_BY_APPLY): TableState.CATCHUP,
    (TableState.CATCHUP, TableEvent.STREAM_OWNS): TableState.SYNC_DONE,
    (TableState.SYNC_DONE, TableEvent.STREAM_PASSED): TableState.READY,
    # a table may fail anywhere, and again
    **{(state, TableEvent.FAILED): TableState.ERRORED for state in TableState},
    # what is paused or failed and has a copy goes on from it
    **{(state, TableEvent.PAUSED): TableState.PAUSED for state in _COPIED},
    (TableState.INIT, TableEvent.PAUSED): TableState.PAUSED,
    (TableState.DATA_SYNC, TableEvent.PAUSED): TableState.PAUSED,
    (TableState.ERRORED, TableEvent.PAUSED): TableState.PAUSED,
    (TableState.ERRORED, TableEvent.RETRIED): TableState.FINISHED_COPY,
    (TableState.PAUSED, TableEvent.RETRIED): TableState.FINISHED_COPY,
    # a new copy
    **{(state, TableEvent.RESET): TableState.INIT for state in (*_COPIED, TableState.DATA_SYNC)},
    (TableState.ERRORED, TableEvent.RESET): TableState.INIT,
    (TableState.PAUSED, TableEvent.RESET): TableState.INIT,
}

#: The stream's rows of these are applied as they come.
LIVE = frozenset({TableState.SYNC_DONE, TableState.READY})

#: Their copy is not complete.
NEEDS_COPY = frozenset({TableState.INIT, TableState.DATA_SYNC})

#: On the way to the stream.
SYNCING = frozenset(
    {
        TableState.INIT,
        TableState.DATA_SYNC,
        TableState.FINISHED_COPY,
        TableState.SYNC_WAIT,
        TableState.CATCHUP,
    }
)


def transition(state: TableState, event: TableEvent) -> TableState:
    """The next state. Raises `StoreError` for an illegal move."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise StoreError(
            f"a table in state {state} cannot take {event}",
            hint="report this: the pipeline's bookkeeping is wrong",
        ) from None

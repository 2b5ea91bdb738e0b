"""The tables of a pipeline over a real store: every move is recorded, and a restart takes up what it finds."""

from __future__ import annotations

import pytest

from etl.errors import DestinationTableError, RetryPolicy
from etl.lsn import Lsn
from etl.pipeline.states import TableEvent
from etl.pipeline.tables import TableBook
from etl.store.base import TableState
from etl.store.memory import MemoryStore
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse

A, B = 1, 2
NAMES = {A: "public.a", B: "public.b"}
SYNC = Lsn(500)
LIVE_AT = Lsn(700)
FAILURE = DestinationTableError("cannot", hint="do this", table="public.a")


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.acquire()
    return store


def book(store: MemoryStore) -> TableBook:
    """A fresh start of the pipeline."""
    tables = TableBook(store, Metrics("p"), Pulse())
    tables.load(NAMES)
    for oid, name in NAMES.items():
        tables.add(oid, name)
    return tables


def copy(tables: TableBook, *oids: int, backlog: str = "b") -> None:
    for oid in oids:
        tables.move(oid, TableEvent.COPY_STARTED, backlog=backlog)
        tables.move(oid, TableEvent.COPY_FINISHED, sync_lsn=SYNC)


def go_live(tables: TableBook, *oids: int, at: Lsn = LIVE_AT) -> None:
    for oid in oids:
        tables.move(oid, TableEvent.AWAITED)
        tables.move(oid, TableEvent.CAUGHT_BY_APPLY)
        tables.goes_live(oid, at)


def states(store: MemoryStore) -> dict[int, TableState]:
    return {oid: record.state for oid, record in store.table_states().items()}


def test_a_new_table_is_recorded_and_waits_for_its_copy(store: MemoryStore):
    tables = book(store)

    assert states(store) == {A: TableState.INIT, B: TableState.INIT}
    assert tables.in_state(TableState.INIT) == [A, B]
    assert tables.live() == {}
    assert tables.is_syncing


def test_a_table_whose_backlog_is_replayed_is_the_streams_and_ready_once_that_point_is_durable(
    store: MemoryStore,
):
    tables = book(store)
    copy(tables, A, B)
    go_live(tables, A, B)

    assert tables.live() == {A: SYNC, B: SYNC}
    tables.passed(Lsn(LIVE_AT - 1))
    assert states(store) == {A: TableState.SYNC_DONE, B: TableState.SYNC_DONE}
    tables.passed(LIVE_AT)
    assert states(store) == {A: TableState.READY, B: TableState.READY}
    assert not tables.is_syncing


def test_what_lives_in_memory_only_is_not_recorded(store: MemoryStore):
    tables = book(store)
    copy(tables, A)
    tables.move(A, TableEvent.AWAITED)
    tables.move(A, TableEvent.CAUGHT_BY_APPLY)

    assert tables.state(A) is TableState.CATCHUP
    assert states(store)[A] is TableState.FINISHED_COPY
    assert book(store).state(A) is TableState.FINISHED_COPY


def test_the_backlog_is_named_from_the_start_of_the_copy_until_the_stream_owns_the_table(store: MemoryStore):
    tables = book(store)
    copy(tables, A, backlog="first")
    assert book(store).record(A).backlog == "first"
    go_live(tables, A)
    assert book(store).record(A).backlog is None


def test_a_failure_is_recorded_with_its_reason_and_the_way_out_and_the_others_go_on(store: MemoryStore):
    tables = book(store)
    copy(tables, A, B)
    go_live(tables, A, B)
    tables.fail(A, FAILURE, backlog="kept")

    record = store.table_states()[A]
    assert (record.state, record.reason, record.solution) == (TableState.ERRORED, "cannot", "do this")
    assert (record.retry, record.sync_lsn, record.backlog) == (RetryPolicy.TIMED, SYNC, "kept")
    assert record.attempts == 1
    assert tables.errors == {A: FAILURE}
    assert tables.live() == {B: SYNC}


def test_attempts_are_counted_until_the_durable_position_has_passed_the_hand_over(store: MemoryStore):
    tables = book(store)
    copy(tables, A)
    for _ in range(3):
        tables.fail(A, FAILURE)
        tables.move(A, TableEvent.RETRIED)
    assert tables.record(A).attempts == 3
    assert tables.errors == {}
    tables.move(A, TableEvent.RESET)
    copy(tables, A)
    go_live(tables, A)
    assert tables.record(A).attempts == 3
    tables.passed(LIVE_AT)
    assert tables.record(A).attempts == 0


def test_a_table_whose_changes_are_missing_has_no_copy_to_go_on_from(store: MemoryStore):
    tables = book(store)
    copy(tables, A)
    go_live(tables, A)
    tables.lose_copy(A, FAILURE)

    record = store.table_states()[A]
    assert (record.state, record.sync_lsn, record.backlog) == (TableState.ERRORED, None, None)


def test_a_table_that_left_the_publication_is_streamed_up_to_where_it_left_and_then_forgotten(
    store: MemoryStore,
):
    tables = book(store)
    copy(tables, A, B)
    go_live(tables, A, B)
    tables.leave(B, Lsn(900))

    assert set(tables.live()) == {A, B}
    tables.passed(Lsn(899))
    assert set(states(store)) == {A, B}
    tables.passed(Lsn(900))
    assert set(states(store)) == {A}
    assert B not in tables


def test_a_table_that_left_before_it_was_live_is_forgotten_at_once(store: MemoryStore):
    tables = book(store)
    tables.leave(B, Lsn(900))

    assert set(states(store)) == {A}

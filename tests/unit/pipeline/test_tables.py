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

A, B = 1, 2
NAMES = {A: "public.a", B: "public.b"}
SYNC = Lsn(500)
FAILURE = DestinationTableError("cannot", hint="do this", table="public.a")


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.acquire()
    return store


def book(store: MemoryStore, names: dict[int, str] | None = None) -> TableBook:
    """A fresh start of the pipeline."""
    tables = TableBook(store, Metrics("p"))
    tables.load(NAMES if names is None else names)
    return tables


def copy(tables: TableBook, *oids: int) -> None:
    for oid in oids:
        tables.move(oid, TableEvent.COPY_STARTED)
        tables.move(oid, TableEvent.COPY_FINISHED, sync_lsn=SYNC)


def states(store: MemoryStore) -> dict[int, TableState]:
    return {oid: record.state for oid, record in store.table_states().items()}


def test_a_new_table_is_recorded_and_needs_a_copy(store: MemoryStore):
    tables = book(store)

    assert states(store) == {A: TableState.INIT, B: TableState.INIT}
    assert tables.needing_copy() == [A, B]
    assert tables.streaming() == {}


def test_a_copied_table_is_the_streams_and_ready_once_the_stream_has_passed_its_copy(store: MemoryStore):
    tables = book(store)
    copy(tables, A, B)
    tables.hand_to_stream()

    assert tables.streaming() == {A: SYNC, B: SYNC}
    tables.passed(Lsn(SYNC - 1))
    assert states(store) == {A: TableState.SYNC_DONE, B: TableState.SYNC_DONE}
    tables.passed(SYNC)
    assert states(store) == {A: TableState.READY, B: TableState.READY}
    assert tables.streaming() == {A: SYNC, B: SYNC}


@pytest.mark.parametrize(
    ("events", "needs_copy"),
    [
        ([], True),
        ([TableEvent.COPY_STARTED], True),
        ([TableEvent.COPY_STARTED, TableEvent.COPY_FINISHED], False),
        ([TableEvent.COPY_STARTED, TableEvent.COPY_FINISHED, TableEvent.STREAM_OWNS], False),
    ],
)
def test_a_restart_copies_anew_what_was_not_copied_whole(
    store: MemoryStore, events: list[TableEvent], needs_copy: bool
):
    before = book(store, {A: "public.a"})
    for event in events:
        before.move(A, event, sync_lsn=SYNC if event is TableEvent.COPY_FINISHED else None)
    after = book(store, {A: "public.a"})

    assert after.needing_copy() == ([A] if needs_copy else [])
    after.hand_to_stream()
    assert after.streaming() == ({} if needs_copy else {A: SYNC})


def test_a_failure_is_recorded_with_its_reason_and_the_way_out_and_the_others_go_on(store: MemoryStore):
    tables = book(store)
    copy(tables, A, B)
    tables.hand_to_stream()
    tables.fail(A, FAILURE)

    record = store.table_states()[A]
    assert (record.state, record.reason, record.solution) == (TableState.ERRORED, "cannot", "do this")
    assert (record.retry, record.sync_lsn) == (RetryPolicy.MANUAL, SYNC)
    assert tables.errors == {A: FAILURE}
    assert tables.streaming() == {B: SYNC}
    tables.passed(SYNC)
    assert states(store) == {A: TableState.ERRORED, B: TableState.READY}


def test_a_restart_tries_a_failed_table_again_where_it_stood_or_from_its_copy(store: MemoryStore):
    before = book(store)
    copy(before, A)
    before.hand_to_stream()
    before.fail(A, FAILURE)
    before.fail(B, FAILURE)
    after = book(store)

    assert after.streaming() == {A: SYNC}
    assert after.needing_copy() == [B]
    assert after.errors == {}


def test_tables_whose_changes_are_missing_are_copied_anew_by_the_next_start(store: MemoryStore):
    before = book(store)
    copy(before, A)
    before.hand_to_stream()
    before.copy_anew(FAILURE)

    assert states(store) == {A: TableState.ERRORED, B: TableState.INIT}
    assert store.table_states()[A].reason == "cannot"
    assert book(store).needing_copy() == [A, B]


def test_a_table_that_left_the_publication_is_streamed_up_to_where_it_left_and_then_forgotten(
    store: MemoryStore,
):
    before = book(store)
    copy(before, A, B)
    before.hand_to_stream()
    after = TableBook(store, Metrics("p"))
    left = after.load({A: "public.a"})
    assert left == [B]
    after.see_off({B: "public.b"}, Lsn(900), keep=[])
    after.hand_to_stream()

    assert set(after.streaming()) == {A, B}
    after.passed(Lsn(899))
    assert set(states(store)) == {A, B}
    after.passed(Lsn(900))
    assert set(states(store)) == {A}


def test_a_table_that_left_before_it_was_copied_is_forgotten_at_once(store: MemoryStore):
    book(store)
    after = TableBook(store, Metrics("p"))
    after.see_off(dict.fromkeys(after.load({A: "public.a"}), "public.b"), Lsn(900), keep=[])

    assert set(states(store)) == {A}

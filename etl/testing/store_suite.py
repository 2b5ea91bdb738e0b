"""The rules every state store keeps.

To test a store of your own, subclass `StoreSuite` and override its fixture `open_store`: how one more store is opened
over the test's database, which is empty at first, and closed at the end.
"""

# a rule's name is its specification

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from etl.errors import PipelineActiveError, RetryPolicy, StoreError
from etl.lsn import Lsn
from etl.store.base import NEVER_RECORDED, PipelineOwner, StateStore, TableState, TableStateRecord
from etl.testing.store_copy_rules import CopyRules, RequestRules
from etl.testing.store_samples import (
    HIGHEST_LSN,
    HIGHEST_OID,
    ODD_NAMES,
    OID,
    SHOWN,
    StoreOpener,
    copy,
    fill,
    metadata,
    open_copies,
    snapshot,
    table,
)
from etl.testing.store_schema_rules import DestinationRules, SchemaRules

__all__ = ["StoreOpener", "StoreSuite"]

WRITES: dict[str, Callable[[StateStore], object]] = {
    "set_table_state": lambda store: store.set_table_state(TableStateRecord(OID, TableState.INIT)),
    "save_schema": lambda store: store.save_schema(table("a")),
    "prune_schemas": lambda store: store.prune_schemas(OID, snapshot(1)),
    "save_destination_record": lambda store: store.save_destination_record(metadata()),
    "save_progress": lambda store: store.save_progress(Lsn(1)),
    "begin_copy": lambda store: store.begin_copy(copy()),
    "finish_range": lambda store: store.finish_range(OID, 3, 10),
    "end_copy": lambda store: store.end_copy(OID),
    "settle_request": lambda store: [
        store.settle_request(request.id, "done") for request in store.requests()
    ],
    "prepare_for_copy": lambda store: store.prepare_for_copy(OID),
    "reset_progress": lambda store: store.reset_progress(),
    "forget_table": lambda store: store.forget_table(OID),
    "delete_table": lambda store: store.delete_table(OID),
    "destroy": lambda store: store.destroy(),
}
LATER = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
each_write = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
each_write_but_the_last = pytest.mark.parametrize(
    "write", list(WRITES.values())[:-1], ids=list(WRITES.keys())[:-1]
)


#: The contents of a pipeline that never ran.
NOTHING: tuple[object, ...] = ({}, [], {}, None, {}, [])


def contents(store: StateStore) -> tuple[object, ...]:
    """Everything a store remembers, but for times."""
    states = {oid: replace(record, updated_at=None) for oid, record in store.table_states().items()}
    return (
        states,
        store.schemas(),
        dict(store.destination_records()),
        store.progress(),
        open_copies(store),
        [(request.id, request.oid, request.verb) for request in store.requests()],
    )


class OwnershipRules:
    """Who may write, and since when."""

    def test_acquiring_gives_a_greater_epoch_every_time(self, open_store: StoreOpener) -> None:
        epochs = []
        for _ in range(3):
            store = open_store()
            epochs += [store.acquire(), store.acquire()]
            store.close()
        assert epochs == sorted(set(epochs))
        assert epochs[0] > 0
        assert epochs[-1] < 2**53

    def test_the_epoch_does_not_go_back_when_all_state_is_destroyed(self, open_store: StoreOpener) -> None:
        store = open_store()
        before = store.acquire()
        store.destroy()
        assert store.acquire() > before

    def test_a_second_acquire_is_refused_and_names_the_holder(self, open_store: StoreOpener) -> None:
        open_store(7).acquire()
        with pytest.raises(PipelineActiveError) as refused:
            open_store(7).acquire()
        assert "pipeline 7" in refused.value.message
        assert socket.gethostname() in refused.value.message
        assert str(os.getpid()) in refused.value.message
        assert refused.value.hint

    def test_a_refused_store_leaves_the_holder_its_epoch(self, open_store: StoreOpener) -> None:
        holder = open_store()
        holder.acquire()
        with pytest.raises(PipelineActiveError):
            open_store().acquire()
        fill(holder)

    def test_closing_hands_the_pipeline_to_the_next(self, open_store: StoreOpener) -> None:
        first = open_store()
        epoch = first.acquire()
        first.close()
        assert open_store().acquire() > epoch

    def test_closing_twice_or_unused_is_harmless(self, open_store: StoreOpener) -> None:
        used = open_store()
        used.acquire()
        for store in (used, used, open_store()):
            store.close()

    def test_anyone_may_ask_who_runs_the_pipeline(self, open_store: StoreOpener) -> None:
        holder, other, asking = open_store(1), open_store(2), open_store(1)
        assert asking.owner() is None
        epoch = holder.acquire()
        other.acquire()
        owner = asking.owner()
        assert owner is not None
        assert owner.epoch == epoch
        assert owner.holder is not None
        assert f"process {os.getpid()} on {socket.gethostname()}" in owner.holder

    def test_a_pipeline_that_was_given_back_has_an_epoch_and_no_holder(self, open_store: StoreOpener) -> None:
        store = open_store()
        epoch = store.acquire()
        store.close()
        assert open_store().owner() == PipelineOwner(epoch, None)

    def test_two_pipelines_are_acquired_side_by_side(self, open_store: StoreOpener) -> None:
        for pipeline_id in (0, 1, 2**31, 2**63 - 1):
            open_store(pipeline_id).acquire()

    @each_write
    def test_nothing_is_written_without_acquiring(
        self, open_store: StoreOpener, write: Callable[[StateStore], object]
    ) -> None:
        owner = open_store()
        owner.acquire()
        fill(owner)
        with pytest.raises(StoreError, match=r"acquire"):
            write(open_store())
        assert contents(owner) == contents(open_store())

    @each_write_but_the_last
    def test_a_write_of_unknown_outcome_may_be_repeated(
        self, open_store: StoreOpener, write: Callable[[StateStore], object]
    ) -> None:
        store = open_store()
        store.acquire()
        fill(store)
        write(store)
        once, history = contents(store), len(store.table_state_history(OID))
        write(store)
        assert (contents(store), len(store.table_state_history(OID))) == (once, history)

    def test_anyone_may_read(self, open_store: StoreOpener) -> None:
        owner = open_store()
        owner.acquire()
        fill(owner)
        assert contents(open_store()) == contents(owner)

    def test_a_closed_store_is_of_no_use_until_it_is_acquired_again(self, open_store: StoreOpener) -> None:
        store = open_store()
        store.acquire()
        fill(store)
        before = contents(store)
        store.close()
        for use in (store.progress, lambda: store.save_progress(Lsn(1))):
            with pytest.raises(StoreError, match="closed"):
                use()
        store.acquire()
        assert contents(store) == before

    def test_threads_share_a_store(self, open_store: StoreOpener) -> None:
        store = open_store()
        store.acquire()

        def work(oid: int) -> None:
            store.set_table_state(TableStateRecord(oid, TableState.INIT))
            store.save_schema(table("a", oid=oid))
            store.save_progress(Lsn(oid))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(work, range(1, 41)))
        assert sorted(store.table_states()) == [schema.oid for schema in store.schemas()]
        assert store.progress() == 40


class TableStateRules:
    """The states of tables and their history."""

    def test_a_new_pipeline_knows_no_table(self, store: StateStore) -> None:
        assert not store.table_states()
        assert not store.table_state_history(OID)

    def test_the_present_state_is_the_last_one_and_history_rolls(self, store: StateStore) -> None:
        life = [TableState.INIT, TableState.DATA_SYNC, TableState.ERRORED, TableState.DATA_SYNC]
        for state in life:
            store.set_table_state(TableStateRecord(OID, state))
            store.set_table_state(TableStateRecord(OID + 1, TableState.INIT))
        assert store.table_states()[OID].state is life[-1]
        assert [record.state for record in store.table_state_history(OID)] == life
        assert len(store.table_state_history(OID + 1)) == 1

    @pytest.mark.parametrize(
        "record",
        [
            TableStateRecord(HIGHEST_OID, state, sync_lsn=HIGHEST_LSN)
            for state in TableState
            if state not in NEVER_RECORDED
        ]
        + [TableStateRecord(OID, TableState.ERRORED, Lsn(0), "", "", policy) for policy in RetryPolicy]
        + [TableStateRecord(OID, TableState.ERRORED, reason=name, solution=name) for name in ODD_NAMES]
        + [TableStateRecord(OID, TableState.PAUSED, Lsn(7), backlog=name) for name in ODD_NAMES]
        + [TableStateRecord(OID, TableState.ERRORED, retry_at=LATER, attempts=3, retry=RetryPolicy.TIMED)]
        + [TableStateRecord(OID, TableState.READY, shown=shown) for shown in SHOWN],
        ids=repr,
    )
    def test_a_state_is_kept_whole(self, store: StateStore, record: TableStateRecord) -> None:
        store.set_table_state(record)
        for kept in (store.table_states()[record.oid], *store.table_state_history(record.oid)):
            assert replace(kept, updated_at=None) == record

    @pytest.mark.parametrize("state", sorted(NEVER_RECORDED))
    def test_a_state_that_a_restart_cannot_find_is_not_recorded(
        self, store: StateStore, state: TableState
    ) -> None:
        with pytest.raises(StoreError, match=f"state {state} of the table with oid {OID}"):
            store.set_table_state(TableStateRecord(OID, state))
        assert not store.table_states()

    def test_a_state_carries_the_time_it_was_recorded(self, store: StateStore) -> None:
        store.set_table_state(TableStateRecord(OID, TableState.INIT))
        store.set_table_state(store.table_states()[OID])
        store.set_table_state(TableStateRecord(OID, TableState.READY))
        times = [record.updated_at for record in store.table_state_history(OID)]
        assert all(time is not None and time.tzinfo is not None for time in times)
        assert times == sorted(times, key=str)

    def test_the_present_state_once_more_is_no_news(self, store: StateStore) -> None:
        record = TableStateRecord(
            OID, TableState.ERRORED, Lsn(5), "disk full", "make room", RetryPolicy.TIMED
        )
        store.set_table_state(record)
        store.set_table_state(record)
        assert len(store.table_state_history(OID)) == 1
        store.set_table_state(replace(record, reason="disk full again"))
        assert len(store.table_state_history(OID)) == 2

    @pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "half a character"])
    def test_an_error_is_recorded_whatever_its_message_holds(self, store: StateStore, text: str) -> None:
        store.set_table_state(TableStateRecord(OID, TableState.ERRORED, reason=text, solution=text))
        kept = store.table_states()[OID]
        assert (kept.reason, kept.solution) == ("a\ufffdb", "a\ufffdb")


class ProgressRules:
    """The durable flush LSN."""

    def test_a_new_pipeline_has_no_progress(self, store: StateStore) -> None:
        assert store.progress() is None

    def test_progress_is_monotonic(self, store: StateStore) -> None:
        seen = []
        for lsn in (0, 5, 3, 5, 2**33, 9, 2**64 - 1, 1):
            store.save_progress(Lsn(lsn))
            seen.append(store.progress())
        assert seen == [0, 5, 5, 5, 2**33, 2**33, 2**64 - 1, 2**64 - 1]
        assert isinstance(seen[0], Lsn)

    def test_forgotten_progress_starts_anew_from_anywhere(self, store: StateStore) -> None:
        store.save_progress(Lsn(100))
        store.reset_progress()
        assert store.progress() is None
        store.save_progress(Lsn(1))
        assert store.progress() == 1


class LifeCycleRules:
    """What is forgotten with a table or a pipeline, and what stays."""

    def test_preparing_a_copy_forgets_schemas_and_destination_but_not_the_state(
        self, store: StateStore
    ) -> None:
        fill(store)
        store.prepare_for_copy(OID)
        assert sorted(store.table_states()) == [OID, OID + 1]
        assert [schema.oid for schema in store.schemas()] == [OID + 1]
        assert sorted(store.destination_records()) == sorted(store.copies()) == [OID + 1]
        assert store.progress() == 100

    def test_a_forgotten_table_is_known_only_by_what_stands_at_the_destination(
        self, store: StateStore
    ) -> None:
        fill(store)
        store.set_table_state(TableStateRecord(OID, TableState.ERRORED))
        store.forget_table(OID)
        assert store.table_state_history(OID) == []
        assert sorted(store.table_states()) == sorted(store.copies()) == [OID + 1]
        assert [schema.oid for schema in store.schemas()] == [OID + 1]
        assert sorted(store.destination_records()) == [OID, OID + 1]
        assert store.progress() == 100

    def test_deleting_a_table_forgets_all_of_it_and_nothing_else(self, store: StateStore) -> None:
        fill(store)
        store.set_table_state(TableStateRecord(OID, TableState.ERRORED))
        store.delete_table(OID)
        assert store.table_state_history(OID) == []
        assert sorted(store.table_states()) == sorted(store.destination_records()) == [OID + 1]
        assert sorted(store.copies()) == [OID + 1]
        assert [schema.oid for schema in store.schemas()] == [OID + 1]
        assert store.progress() == 100

    def test_a_reset_of_progress_keeps_the_tables(self, store: StateStore) -> None:
        fill(store)
        states, schemas, destinations, _, *rest = contents(store)
        store.reset_progress()
        assert contents(store) == (states, schemas, destinations, None, *rest)

    def test_a_destroyed_pipeline_remembers_nothing_and_writes_nothing(self, open_store: StoreOpener) -> None:
        store = open_store()
        store.acquire()
        store.set_table_state(TableStateRecord(OID, TableState.INIT))
        fill(store)
        store.destroy()
        assert contents(store) == NOTHING
        assert store.table_state_history(OID) == []
        with pytest.raises(StoreError, match="destroyed"):
            store.save_progress(Lsn(1))
        store.acquire()
        fill(store)

    @each_write
    def test_pipelines_are_isolated(
        self, open_store: StoreOpener, write: Callable[[StateStore], object]
    ) -> None:
        one, other = open_store(1), open_store(2)
        for store in (one, other):
            store.acquire()
            fill(store)
        before = contents(other)
        write(one)
        assert contents(other) == before

    def test_everything_outlives_the_store(self, open_store: StoreOpener) -> None:
        store = open_store()
        store.acquire()
        fill(store)
        before = contents(store)
        store.close()
        assert contents(open_store()) == before


class StoreSuite(
    OwnershipRules,
    TableStateRules,
    SchemaRules,
    DestinationRules,
    ProgressRules,
    CopyRules,
    RequestRules,
    LifeCycleRules,
):
    """All rules of a state store."""

    @pytest.fixture
    def open_store(self) -> StoreOpener:
        """Override: how a store is opened."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store: StoreOpener) -> StateStore:
        """A store that has its pipeline."""
        opened = open_store()
        opened.acquire()
        return opened

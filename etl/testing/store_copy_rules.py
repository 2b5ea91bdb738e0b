"""The rules of a state store for the ledgers of copies and for the requests of people (see `store_suite`)."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from etl.errors import StoreError
from etl.lsn import Lsn
from etl.store.base import KEPT_REQUESTS, StateStore, TableVerb
from etl.testing.store_samples import (
    HIGHEST_LSN,
    HIGHEST_OID,
    ODD_NAMES,
    OID,
    StoreOpener,
    copy,
    open_copies,
)


class CopyRules:
    """The ledgers of copies."""

    @pytest.mark.parametrize(
        "record",
        [
            copy(),
            replace(copy(HIGHEST_OID), consistent_point=HIGHEST_LSN, rows=2**62, ranges=2**31 - 1),
            replace(copy(), ranges=0),
            replace(copy(), finished=frozenset({3, 0}), rows=7),
            *(replace(copy(note=name), snapshot=name) for name in ODD_NAMES),
        ],
        ids=repr,
    )
    def test_the_ledger_of_a_copy_is_kept_whole(self, store: StateStore, record: object) -> None:
        store.begin_copy(record)  # type: ignore[arg-type]
        assert list(open_copies(store).values()) == [record]

    def test_a_copy_carries_the_time_it_began(self, store: StateStore) -> None:
        store.begin_copy(copy())
        first = store.copies()[OID].started_at
        store.begin_copy(copy())
        again = store.copies()[OID].started_at
        assert first is not None
        assert again is not None
        assert first.tzinfo is not None
        assert first <= again

    def test_a_range_counts_once_however_often_it_is_noted(self, store: StateStore) -> None:
        store.begin_copy(copy())
        store.begin_copy(copy(OID + 1))
        for number, rows in ((2, 10), (0, 5), (2, 10), (3, 0)):
            store.finish_range(OID, number, rows)
        assert open_copies(store) == {
            OID: replace(copy(), finished=frozenset({0, 2, 3}), rows=15),
            OID + 1: copy(OID + 1),
        }

    def test_ranges_finish_side_by_side(self, store: StateStore) -> None:
        store.begin_copy(copy(ranges=64))
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda number: store.finish_range(OID, number, number), range(64)))
        assert open_copies(store)[OID].finished == frozenset(range(64))
        assert open_copies(store)[OID].rows == sum(range(64))

    def test_a_copy_that_starts_over_forgets_what_the_last_one_had(self, store: StateStore) -> None:
        store.begin_copy(copy())
        store.finish_range(OID, 1, 10)
        anew = replace(copy(ranges=2, note="the snapshot ended with the process"), consistent_point=Lsn(99))
        store.begin_copy(anew)
        assert open_copies(store) == {OID: anew}

    @pytest.mark.parametrize(
        "end",
        [
            lambda store: store.end_copy(OID),
            lambda store: store.prepare_for_copy(OID),
            lambda store: store.forget_table(OID),
            lambda store: store.delete_table(OID),
        ],
        ids=["end_copy", "prepare_for_copy", "forget_table", "delete_table"],
    )
    def test_a_range_of_a_copy_that_ended_opens_no_ledger(
        self, store: StateStore, end: Callable[[StateStore], None]
    ) -> None:
        store.begin_copy(copy())
        end(store)
        store.finish_range(OID, 1, 10)
        assert store.copies() == {}

    def test_a_note_is_kept_whatever_it_holds(self, store: StateStore) -> None:
        store.begin_copy(copy(note="a\0b\ud800"))
        assert store.copies()[OID].note == "a\ufffdb\ufffd"


class RequestRules:
    """What people ask of a pipeline."""

    def test_anyone_may_ask_while_another_runs_the_pipeline(self, open_store: StoreOpener) -> None:
        owner, asking = open_store(), open_store()
        epoch = owner.acquire()
        numbers = [asking.request(OID, verb) for verb in TableVerb]
        assert [(asked.id, asked.oid, asked.verb) for asked in owner.requests()] == [
            (number, OID, verb) for number, verb in zip(numbers, TableVerb, strict=True)
        ]
        found = owner.owner()
        assert found is not None
        assert found.epoch == epoch

    def test_a_request_waits_for_the_next_run(self, open_store: StoreOpener) -> None:
        before, asking, after = open_store(), open_store(), open_store()
        before.acquire()
        before.close()
        number = asking.request(OID, TableVerb.RESYNC)
        after.acquire()
        assert [asked.id for asked in after.requests()] == [number]

    def test_nothing_is_asked_of_a_pipeline_that_never_ran(self, open_store: StoreOpener) -> None:
        open_store(2).acquire()
        with pytest.raises(StoreError, match="pipeline 1 has not run yet") as refused:
            open_store(1).request(OID, TableVerb.PAUSE)
        assert refused.value.hint

    def test_requests_come_oldest_first_with_the_time_they_were_made(self, store: StateStore) -> None:
        for oid in (OID + 1, OID, HIGHEST_OID):
            store.request(oid, TableVerb.RETRY)
        asked = store.requests()
        assert [request.oid for request in asked] == [OID + 1, OID, HIGHEST_OID]
        assert [request.id for request in asked] == sorted(request.id for request in asked)
        assert all(request.requested_at.tzinfo is not None for request in asked)
        assert [request.outcome for request in asked] == [None, None, None]

    def test_what_was_asked_last_and_waits_still_is_not_asked_twice(self, store: StateStore) -> None:
        first = store.request(OID, TableVerb.PAUSE)
        assert store.request(OID, TableVerb.PAUSE) == first
        assert store.request(OID + 1, TableVerb.PAUSE) != first

    def test_a_change_of_mind_is_heard(self, store: StateStore) -> None:
        for verb in (TableVerb.PAUSE, TableVerb.RESUME, TableVerb.PAUSE):
            store.request(OID, verb)
        assert [asked.verb for asked in store.requests()] == ["pause", "resume", "pause"]

    def test_a_settled_request_waits_no_more_and_tells_its_outcome(self, store: StateStore) -> None:
        settled, waiting = store.request(OID, TableVerb.PAUSE), store.request(OID, TableVerb.RESUME)
        assert store.request_outcome(settled) is None
        store.settle_request(settled, "paused at 0/64")
        assert [asked.id for asked in store.requests()] == [waiting]
        assert store.request_outcome(settled) == "paused at 0/64"
        assert store.request_outcome(waiting) is None

    def test_what_was_settled_may_be_asked_again(self, store: StateStore) -> None:
        first = store.request(OID, TableVerb.RETRY)
        store.settle_request(first, "retried")
        assert store.request(OID, TableVerb.RETRY) > first

    def test_the_first_outcome_stays(self, store: StateStore) -> None:
        number = store.request(OID, TableVerb.PAUSE)
        store.settle_request(number, "paused")
        store.settle_request(number, "refused: it is gone")
        assert store.request_outcome(number) == "paused"

    def test_an_outcome_outlives_the_table_it_dropped(self, store: StateStore) -> None:
        number = store.request(OID, TableVerb.DROP)
        store.delete_table(OID)
        store.settle_request(number, "dropped")
        assert store.request_outcome(number) == "dropped"

    def test_the_last_outcomes_are_kept_and_no_request_that_waits_is_lost(self, store: StateStore) -> None:
        waiting = store.request(OID, TableVerb.PAUSE)
        numbers = [store.request(oid, TableVerb.RETRY) for oid in range(1, KEPT_REQUESTS + 6)]
        for number in numbers:
            store.settle_request(number, "done")
        known = [number for number in numbers if store.request_outcome(number) is not None]
        assert known == numbers[5:]
        assert [asked.id for asked in store.requests()] == [waiting]

    def test_an_unknown_request_has_no_outcome_and_takes_none(self, store: StateStore) -> None:
        store.settle_request(123_456, "done")
        assert store.request_outcome(123_456) is None

    def test_an_outcome_is_kept_whatever_it_holds(self, store: StateStore) -> None:
        number = store.request(OID, TableVerb.PAUSE)
        store.settle_request(number, "a\0b\ud800")
        assert store.request_outcome(number) == "a\ufffdb\ufffd"

    def test_requests_of_one_pipeline_are_not_those_of_another(self, open_store: StoreOpener) -> None:
        one, other = open_store(1), open_store(2)
        for store in (one, other):
            store.acquire()
        number = one.request(OID, TableVerb.PAUSE)
        other.settle_request(number, "done")
        assert other.requests() == []
        assert [asked.id for asked in one.requests()] == [number]
        assert one.request_outcome(number) is None

    def test_a_destroyed_pipeline_takes_its_requests_along(self, store: StateStore) -> None:
        number = store.request(OID, TableVerb.PAUSE)
        store.settle_request(number, "paused")
        store.request(OID, TableVerb.RESUME)
        store.destroy()
        assert store.requests() == []
        assert store.request_outcome(number) is None

"""The life of a table: the legal moves, and that every other one raises and changes nothing."""

from __future__ import annotations

from itertools import product

import pytest

from etl.errors import StoreError
from etl.pipeline.states import NEEDS_COPY, NOT_STREAMED, TRANSITIONS, TableEvent, transition
from etl.store.base import TableState

ILLEGAL = [pair for pair in product(TableState, TableEvent) if pair not in TRANSITIONS]


def test_a_table_that_nothing_happens_to_is_copied_handed_over_and_ready():
    state = TableState.INIT
    walk = []
    for event in (
        TableEvent.COPY_STARTED,
        TableEvent.COPY_FINISHED,
        TableEvent.STREAM_OWNS,
        TableEvent.STREAM_PASSED,
    ):
        state = transition(state, event)
        walk.append(state)

    assert walk == [TableState.DATA_SYNC, TableState.FINISHED_COPY, TableState.SYNC_DONE, TableState.READY]


@pytest.mark.parametrize("state", TableState)
def test_every_state_can_fail(state: TableState):
    assert transition(state, TableEvent.FAILED) is TableState.ERRORED


def test_a_copy_that_was_interrupted_starts_again():
    assert transition(TableState.DATA_SYNC, TableEvent.COPY_STARTED) is TableState.DATA_SYNC


def test_a_failed_table_is_copied_anew_or_goes_on_where_it_stood():
    assert transition(TableState.ERRORED, TableEvent.RESET) is TableState.INIT
    assert transition(TableState.ERRORED, TableEvent.RETRIED) is TableState.SYNC_DONE


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_every_other_move_is_refused_by_name(state: TableState, event: TableEvent):
    with pytest.raises(StoreError, match=f"a table in state {state} cannot take {event}"):
        transition(state, event)


def test_every_state_can_be_reached_and_left():
    assert set(TRANSITIONS.values()) == set(TableState)
    assert {state for state, _ in TRANSITIONS} == set(TableState)


def test_the_stream_owns_exactly_what_is_neither_copied_anew_nor_failed():
    assert {TableState.INIT, TableState.DATA_SYNC} == NEEDS_COPY
    assert set(TableState) - NOT_STREAMED == {
        TableState.FINISHED_COPY,
        TableState.SYNC_DONE,
        TableState.READY,
    }

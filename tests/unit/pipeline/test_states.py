"""The life of a table: the legal moves, and that every other one raises and changes nothing."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from etl.errors import StoreError
from etl.pipeline.states import LIVE, NEEDS_COPY, SYNCING, TRANSITIONS, TableEvent, transition
from etl.store.base import TableState

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "table-states.md"
ILLEGAL = [pair for pair in product(TableState, TableEvent) if pair not in TRANSITIONS]


def test_a_table_that_nothing_happens_to_is_copied_handed_over_and_ready():
    state = TableState.INIT
    walk = []
    for event in (
        TableEvent.COPY_STARTED,
        TableEvent.COPY_FINISHED,
        TableEvent.AWAITED,
        TableEvent.CAUGHT_BY_APPLY,
        TableEvent.STREAM_OWNS,
        TableEvent.STREAM_PASSED,
    ):
        state = transition(state, event)
        walk.append(state)

    assert walk == [
        TableState.DATA_SYNC,
        TableState.FINISHED_COPY,
        TableState.SYNC_WAIT,
        TableState.CATCHUP,
        TableState.SYNC_DONE,
        TableState.READY,
    ]


@pytest.mark.parametrize("state", TableState)
def test_every_state_can_fail(state: TableState):
    assert transition(state, TableEvent.FAILED) is TableState.ERRORED


@pytest.mark.parametrize("state", [state for state in TableState if state is not TableState.PAUSED])
def test_every_other_state_can_be_paused(state: TableState):
    assert transition(state, TableEvent.PAUSED) is TableState.PAUSED


@pytest.mark.parametrize("state", [state for state in TableState if state is not TableState.INIT])
def test_every_table_can_be_copied_anew(state: TableState):
    assert transition(state, TableEvent.RESET) is TableState.INIT


@pytest.mark.parametrize("state", [TableState.ERRORED, TableState.PAUSED])
def test_what_stood_aside_goes_on_from_its_copy_and_what_was_kept(state: TableState):
    assert transition(state, TableEvent.RETRIED) is TableState.FINISHED_COPY


@pytest.mark.parametrize(("state", "event"), ILLEGAL)
def test_every_other_move_is_refused_by_name(state: TableState, event: TableEvent):
    with pytest.raises(StoreError, match=f"a table in state {state} cannot take {event}"):
        transition(state, event)


def test_every_state_can_be_reached_and_left():
    assert set(TRANSITIONS.values()) == set(TableState)
    assert {state for state, _ in TRANSITIONS} == set(TableState)


def test_a_table_is_on_its_way_is_live_or_stands_aside():
    assert NEEDS_COPY < SYNCING
    assert not SYNCING & LIVE
    assert set(TableState) - SYNCING - LIVE == {TableState.ERRORED, TableState.PAUSED}


def drawn() -> list[tuple[str, str, str]]:
    """State, event and next state of every arrow in the page's diagrams; a group stands for each of its states."""
    page = PAGE.read_text(encoding="utf-8")
    groups = {name: states.split(", ") for states, name in re.findall(r'state "(.+)" as (\w+)', page)}
    arrows = re.findall(r"^ +(\w+) --> (\w+): (\w+)$", page, re.MULTILINE)
    return [(state, event, after) for name, after, event in arrows for state in groups.get(name, [name])]


def test_the_diagrams_of_the_documentation_show_every_legal_move_once_and_no_other():
    assert sorted(drawn()) == sorted((state, event, after) for (state, event), after in TRANSITIONS.items())

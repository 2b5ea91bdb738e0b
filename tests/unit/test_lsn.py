"""Positions as text: read back as they were written, and nothing else is read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.lsn import MAX_ORDINAL, Lsn, Position, SnapshotId

LSNS = st.integers(0, 2**64 - 1).map(Lsn)


@given(LSNS, st.integers(0, MAX_ORDINAL))
def test_a_position_is_read_as_it_was_written(lsn: Lsn, ordinal: int):
    position = Position(lsn, ordinal)
    assert Position.parse(str(position)) == position


@given(LSNS, LSNS)
def test_a_snapshot_is_read_as_it_was_written(commit: Lsn, message: Lsn):
    snapshot = SnapshotId(commit, message)
    assert SnapshotId.parse(str(snapshot)) == snapshot


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0/0#0", Position.ZERO),
        ("16/B374D848#1", Position(Lsn(0x16_B374_D848), 1)),
        ("ffffffff/ffffffff#4294967295", Position(Lsn(2**64 - 1), MAX_ORDINAL)),
    ],
)
def test_the_text_of_a_position_is_an_lsn_and_its_ordinal(text: str, position: Position):
    assert Position.parse(text) == position


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#",
        "0/0",
        "0/0#",
        "#1",
        "0/0#-1",
        "0/0#+1",
        "0/0# 1",
        "0/0#1 ",
        "0/0#1#2",
        "0/0#1.0",
        "0/0#1e3",
        "0/0#1_0",
        "0/0#²",
        "0/0#\u0661",
        "0/0#4294967296",
        "0#1",
        "0/#1",
        "/0#1",
        "0/0/0#1",
        "100000000/0#1",
        "g/0#1",
        " 0/0#1",
        "0/0\n#1",
    ],
)
def test_what_is_no_position_is_refused(text: str):
    with pytest.raises(ValueError):
        Position.parse(text)


@given(st.tuples(LSNS, st.integers(0, MAX_ORDINAL)), st.tuples(LSNS, st.integers(0, MAX_ORDINAL)))
def test_positions_are_ordered_by_lsn_then_ordinal(one: tuple[Lsn, int], other: tuple[Lsn, int]):
    assert (Position(*one) < Position(*other)) == (one < other)


@given(LSNS, st.integers(0, MAX_ORDINAL))
def test_the_end_of_a_transaction_is_at_or_after_each_of_its_changes(lsn: Lsn, ordinal: int):
    position = Position(lsn, ordinal)
    assert position <= Position.end_of(lsn)
    assert position.before() <= position
    assert position.before().commit_lsn == lsn

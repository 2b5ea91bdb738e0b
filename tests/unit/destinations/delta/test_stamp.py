"""Stamps: what a commit says of itself is read back, and what others say is passed over."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.destinations.delta.stamp import History, Stamp, read_history
from etl.lsn import MAX_ORDINAL, Lsn, Position

POSITIONS = st.builds(Position, st.integers(0, 2**64 - 1).map(Lsn), st.integers(0, MAX_ORDINAL))
AT = Position(Lsn(0x1_0000_00AB), 7)
EARLIER = Position(Lsn(0x1_0000_0001), 1)


def stamp(
    watermark: Position | None = None, *, pipeline: int = 1, oid: int = 16384, created: bool = False
) -> str:
    return Stamp(pipeline, oid, epoch=3, run=9, watermark=watermark, created=created).text()


@given(st.integers(0, 2**31), st.integers(1, 2**32 - 1), POSITIONS)
def test_a_watermark_comes_back_as_it_was_stamped(pipeline: int, oid: int, position: Position):
    text = Stamp(pipeline, oid, epoch=3, run=9, watermark=position).text()
    assert read_history([text], pipeline, oid) == History(position, is_complete=True)


def test_a_stamp_is_json_with_everything_that_a_person_could_ask():
    assert json.loads(stamp(AT)) == {
        "etl": {"pipeline": 1, "table": 16384, "epoch": 3, "run": 9, "watermark": "1/AB#7"}
    }
    assert json.loads(stamp(created=True)) == {
        "etl": {"pipeline": 1, "table": 16384, "epoch": 3, "run": 9, "created": True}
    }


FOREIGN = [
    None,
    "",
    "a note of a person",
    "a note that mentions etl",
    '{"etl": ',
    '{"etl": null}',
    '{"etl": "text"}',
    '{"etl": [1]}',
    '["etl"]',
    '"etl"',
    '{"etl": {}}',
    '{"etl": {"watermark": "1/AB#7"}}',
    '{"other": {"pipeline": 1, "table": 16384, "watermark": "9/9#9", "etl": 1}}',
    '{"etl": {"pipeline": "1", "table": "16384", "watermark": "9/9#9"}}',
    stamp(AT, pipeline=2),
    stamp(AT, oid=16385),
    stamp(created=True, pipeline=2),
    stamp(created=True, oid=16385),
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_commit_of_others_is_passed_over(foreign: str | None):
    assert read_history([foreign], 1, 16384) == History(None, is_complete=False)
    assert read_history([foreign, stamp(EARLIER), foreign], 1, 16384) == History(EARLIER, is_complete=True)


def test_the_newest_watermark_counts():
    assert read_history([stamp(AT), stamp(EARLIER)], 1, 16384) == History(AT, is_complete=True)


def test_a_watermark_that_an_earlier_run_set_late_does_not_count():
    late = Stamp(1, 16384, epoch=2, run=8, watermark=EARLIER).text()
    assert read_history([late, stamp(AT), late], 1, 16384) == History(AT, is_complete=True)
    assert read_history([stamp(), late], 1, 16384) == History(EARLIER, is_complete=True)


def test_a_commit_of_ours_that_moves_no_watermark_is_passed_over():
    assert read_history([stamp(), stamp(AT)], 1, 16384) == History(AT, is_complete=True)


def test_a_table_made_anew_has_no_watermark_whatever_it_had_before():
    history = [stamp(), stamp(created=True), stamp(AT)]
    assert read_history(history, 1, 16384) == History(None, is_complete=True)


@pytest.mark.parametrize("history", [[], [None] * 3, [stamp(), stamp()]])
def test_a_history_that_says_nothing_leaves_the_question_open(history: list[str | None]):
    assert read_history(history, 1, 16384) == History(None, is_complete=False)


@given(st.lists(st.text() | st.from_regex(r'\{"etl".{0,40}', fullmatch=True)))
def test_no_text_of_others_is_ever_taken_for_a_watermark(texts: list[str]):
    assert read_history([*texts, stamp(AT)], 1, 16384) == History(AT, is_complete=True)

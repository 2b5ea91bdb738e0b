"""Figures as people read them."""

from __future__ import annotations

import pytest

from etl.config.figures import human_seconds, printable


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, ""),
        (0, "0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.7, "12 s"),
        (60, "1 min"),
        (185, "3 min 5 s"),
        (7_260, "2 h 1 min"),
        (90_000, "1 d 1 h"),
        (864_000, "10 d"),
    ],
)
def test_a_duration_is_told_in_two_units_at_most(seconds: float | None, text: str):
    assert human_seconds(seconds) == text


def test_what_steers_a_terminal_or_turns_a_text_around_is_spelled_out():
    assert printable("a\x1b[31m\u202eb\n☃ é", keep="\n") == "a\\x1b[31m\\u202eb\n☃ é"

"""Key ranges: every key lies in one of them, and there are never many."""

from __future__ import annotations

import itertools
import sqlite3

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.destinations.delta.prune import KeyRanges, key_ranges

BIGINT = st.integers(-(2**63), 2**63 - 1)
EXTREMES = [-(2**63), -1, 0, 2**63 - 1]


def ranges_of(keys: list[int]) -> tuple[tuple[int, int], ...]:
    found = key_ranges(pa.chunked_array([keys[::2], keys[1::2]], pa.int64()))
    assert found is not None
    return found.ranges


@given(st.lists(BIGINT | st.integers(0, 50), min_size=1, max_size=60))
@example(EXTREMES)
@example([2**62, 2**62 + 1, 2**62 + 2])
def test_every_key_lies_in_exactly_one_range_and_every_end_is_a_key(keys: list[int]):
    ranges = ranges_of(keys)
    for key in keys:
        assert sum(low <= key <= high for low, high in ranges) == 1
    assert {end for pair in ranges for end in pair} <= set(keys)


@given(st.lists(BIGINT, min_size=1, max_size=200))
def test_ranges_are_ordered_disjoint_and_at_most_sixteen(keys: list[int]):
    ranges = ranges_of(keys)
    assert 1 <= len(ranges) <= 16
    assert all(low <= high for low, high in ranges)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))


def test_ranges_are_split_at_the_widest_gaps():
    keys = [block * 1000 + n for block in range(16) for n in range(0, 30, 3)]
    assert ranges_of(keys) == tuple((block * 1000, block * 1000 + 27) for block in range(16))


def test_neighbours_are_one_range():
    assert ranges_of([3, 1, 2]) == ((1, 3),)


def test_the_ends_of_bigint_are_two_ranges():
    assert ranges_of([2**63 - 1, -(2**63)]) == ((-(2**63), -(2**63)), (2**63 - 1, 2**63 - 1))


def test_the_condition_is_numbers_and_the_column_alone():
    condition = KeyRanges(((-5, -5), (1, 7))).condition("t.`id`")
    assert condition == "(t.`id` BETWEEN -5 AND -5 OR t.`id` BETWEEN 1 AND 7)"


@given(st.lists(BIGINT, min_size=1, max_size=40), st.lists(BIGINT, max_size=10))
def test_the_condition_holds_for_exactly_what_lies_in_the_ranges(keys: list[int], others: list[int]):
    found = key_ranges(pa.chunked_array([keys], pa.int64()))
    assert found is not None
    with sqlite3.connect(":memory:") as database:
        for value in keys + others:
            expected = any(low <= value <= high for low, high in found.ranges)
            query = f"SELECT {found.condition('v')} FROM (SELECT ? AS v)"
            assert database.execute(query, [value]).fetchone() == (expected,)
    database.close()


@pytest.mark.parametrize(
    "keys",
    [
        pa.chunked_array([["a"]]),
        pa.chunked_array([[1.5]]),
        pa.chunked_array([[1, None]], pa.int64()),
        pa.chunked_array([], pa.int64()),
    ],
    ids=["text", "floats", "a NULL", "nothing"],
)
def test_other_keys_have_no_ranges(keys: pa.ChunkedArray):
    assert key_ranges(keys) is None


@pytest.mark.parametrize("width", [pa.int16(), pa.int32(), pa.int64()])
def test_every_width_of_integer_has_ranges(width: pa.DataType):
    assert key_ranges(pa.chunked_array([[1, 9]], width)) == KeyRanges(((1, 1), (9, 9)))

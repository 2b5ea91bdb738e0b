"""A plan cuts the leaves of a table into ranges that hold every block once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.source.copy_plan import MAX_RANGES, TARGET_BYTES, CopyRange, Leaf, plan_ranges

BLOCK = 8192


def leaf(oid: int, blocks: int | None, nbytes: int | None = None, rows: int = 0) -> Leaf:
    return Leaf(oid, "public", f"t{oid}", blocks, (blocks or 0) * BLOCK if nbytes is None else nbytes, rows)


def bounds(ranges: tuple[CopyRange, ...]) -> list[tuple[int, int | None, int | None]]:
    return [(part.oid, part.from_block, part.to_block) for part in ranges]


@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        pytest.param([leaf(1, 0)], [(1, None, None)], id="an empty table is one range"),
        pytest.param([leaf(1, 4096)], [(1, None, None)], id="so is one of just the size of a range"),
        pytest.param(
            [leaf(1, 4097)],
            [(1, 0, 2048), (1, 2048, None)],
            id="a larger one is cut, its last range has no end",
        ),
        pytest.param(
            [leaf(1, 3, 5 * TARGET_BYTES)],
            [(1, 0, 1), (1, 1, 2), (1, 2, None)],
            id="values out of line count, but a block is never cut",
        ),
        pytest.param([leaf(1, None, 10**12)], [(1, None, None)], id="what has no heap is read whole"),
        pytest.param(
            [leaf(3, 1), leaf(1, 4097), leaf(2, 1)],
            [(1, 0, 2048), (1, 2048, None), (2, None, None), (3, None, None)],
            id="the largest leaf comes first, equal ones by oid",
        ),
        pytest.param([], [], id="a partitioned table without partitions has nothing to read"),
    ],
)
def test_ranges(leaves: list[Leaf], expected: list[tuple[int, int | None, int | None]]) -> None:
    assert bounds(plan_ranges(leaves)) == expected


LEAVES = st.lists(
    st.builds(
        leaf,
        st.integers(1, 2**32 - 1),
        st.none() | st.integers(0, 10**7),
        st.integers(0, 2**45),
        st.integers(0, 10**12),
    ),
    max_size=20,
    unique_by=lambda one: one.oid,
)


@given(LEAVES, st.integers(1 << 20, 1 << 40))
def test_every_block_is_in_one_range(leaves: list[Leaf], target: int) -> None:
    ranges = plan_ranges(leaves, target)
    assert [part.number for part in ranges] == list(range(len(ranges)))
    for one in leaves:
        parts = [part for part in ranges if part.oid == one.oid]
        if len(parts) == 1:
            assert (parts[0].from_block, parts[0].to_block) == (None, None)
        else:
            ends = [part.to_block for part in parts]
            assert [part.from_block for part in parts] == [0, *ends[:-1]]
            assert ends[-1] is None
            assert all(part.from_block < part.to_block for part in parts[:-1])


@given(LEAVES)
def test_a_plan_has_a_bounded_number_of_ranges(leaves: list[Leaf]) -> None:
    assert len(plan_ranges(leaves, 1)) <= MAX_RANGES


@given(LEAVES)
def test_the_order_of_the_leaves_does_not_matter(leaves: list[Leaf]) -> None:
    assert plan_ranges(leaves) == plan_ranges(leaves[::-1])

"""How the initial copy of a table is cut into ranges that connections can read side by side.

A range is a run of heap blocks of one leaf: a plain table, or one partition. Under one snapshot the ranges hold every
row once, whatever is written meanwhile: a row version keeps its place (``ctid``) as long as any snapshot sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Small enough to spread a table over connections and to let its lock go often, large enough to hide a round trip.
TARGET_BYTES = 32 << 20
MAX_RANGES = 65_536


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that holds rows of the table: the table itself, or a partition without partitions of its own.

    `blocks`: of its heap, None when it has none (a foreign table, another access method) and so cannot be cut;
    `nbytes`: heap and TOAST. `is_only`: what inherits from it is none of it; False where a partitioned table must be
    read as a whole.
    """

    oid: int
    schema: str
    name: str
    blocks: int | None
    nbytes: int
    estimated_rows: int
    is_only: bool = True


@dataclass(frozen=True, slots=True)
class CopyRange:
    """The rows of one leaf from `from_block` on and before `to_block`; None: no bound on that side.

    `number`: its place in the plan, from 0; `oid`, `schema`, `name` and `is_only`: the leaf's. The last range of a leaf
    has no end, for a heap may have grown since it was measured.
    """

    number: int
    oid: int
    schema: str
    name: str
    is_only: bool = True
    from_block: int | None = None
    to_block: int | None = None
    estimated_rows: int = 0


def plan_ranges(leaves: Sequence[Leaf], target_bytes: int = TARGET_BYTES) -> tuple[CopyRange, ...]:
    """Cut the leaves into ranges of about `target_bytes`, the largest leaf first; the same for the same leaves.

    There are `MAX_RANGES` at most, or as many as leaves: a very large table has larger ranges.
    """
    total = sum(leaf.nbytes for leaf in leaves)
    target = max(target_bytes, -(-total // max(MAX_RANGES - len(leaves), 1)), 1)
    largest_first = sorted(leaves, key=lambda leaf: (-leaf.nbytes, leaf.oid))
    cuts = ((leaf, *cut) for leaf in largest_first for cut in _cuts(leaf, target))
    return tuple(
        CopyRange(number, leaf.oid, leaf.schema, leaf.name, leaf.is_only, first, end, rows)
        for number, (leaf, first, end, rows) in enumerate(cuts)
    )


def _cuts(leaf: Leaf, target: int) -> Iterator[tuple[int | None, int | None, int]]:
    """First block, end and estimated rows of each range of the leaf."""
    blocks = leaf.blocks or 0
    count = min(-(-leaf.nbytes // target), blocks)
    if count <= 1:
        yield None, None, leaf.estimated_rows
        return
    for place in range(count):
        end = blocks * (place + 1) // count if place + 1 < count else None
        yield blocks * place // count, end, leaf.estimated_rows // count

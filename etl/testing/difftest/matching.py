"""Rows against patterns of rows, as multisets: which patterns find no row, and which rows no pattern."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

Row = tuple[str | None, ...]
#: What may stand in one place.
Cell = frozenset[str | None]
Pattern = tuple[Cell, ...]


def unmatched(wanted: Sequence[Pattern], found: Sequence[Row]) -> tuple[list[Pattern], list[Row]]:
    """Pair each pattern with a row of its own as far as possible; what is left of both."""
    there = Counter(found)
    open_patterns: list[Pattern] = []
    for pattern in wanted:
        if all(len(cell) == 1 for cell in pattern):
            row = tuple(next(iter(cell)) for cell in pattern)
            if there[row]:
                there[row] -= 1
                continue
        open_patterns.append(pattern)
    rows = list(there.elements())
    pairs = _pair(open_patterns, rows)
    taken = set(pairs.values())
    return (
        [pattern for index, pattern in enumerate(open_patterns) if index not in pairs],
        [row for index, row in enumerate(rows) if index not in taken],
    )


def _pair(patterns: Sequence[Pattern], rows: Sequence[Row]) -> dict[int, int]:
    """A greatest matching, pattern → row: along augmenting paths (Kuhn)."""
    fits = _fitting(patterns, rows)
    owner: dict[int, int] = {}
    for index in range(len(patterns)):
        _augment(index, fits, owner)
    return {pattern: row for row, pattern in owner.items()}


def _augment(start: int, fits: Sequence[Sequence[int]], owner: dict[int, int]) -> None:
    """Give `start` a row, moving the patterns along one path to other rows where that is needed."""
    came_from: dict[int, int] = {}
    waiting = [start]
    while waiting:
        pattern = waiting.pop()
        for row in fits[pattern]:
            if row in came_from:
                continue
            came_from[row] = pattern
            if row not in owner:
                _shift(row, start, came_from, owner)
                return
            waiting.append(owner[row])


def _shift(row: int, start: int, came_from: dict[int, int], owner: dict[int, int]) -> None:
    held = {pattern: place for place, pattern in owner.items()}
    while True:
        pattern = came_from[row]
        before = held.get(pattern)
        owner[row] = pattern
        if pattern == start or before is None:
            return
        row = before


def _fitting(patterns: Sequence[Pattern], rows: Sequence[Row]) -> list[list[int]]:
    """Per pattern, the rows it allows; looked for among those that agree in the places that are certain everywhere."""
    certain = [
        place
        for place in range(len(patterns[0]) if patterns else 0)
        if all(len(pattern[place]) == 1 for pattern in patterns)
    ]
    by_certain: dict[Row, list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        by_certain[tuple(row[place] for place in certain)].append(index)
    return [
        [
            index
            for index in by_certain[tuple(next(iter(pattern[place])) for place in certain)]
            if all(value in cell for value, cell in zip(rows[index], pattern, strict=True))
        ]
        for pattern in patterns
    ]

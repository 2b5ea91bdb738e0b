"""Everything that is up to chance, from one seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from etl.testing.difftest.catalog import Column, Table
from etl.testing.difftest.kinds import KEYS, KINDS

T = TypeVar("T")

#: Few, so that names are taken again and exchanged all the time.
NAMES: Final = ("alpha", "beta", "Gamma", "select", 'q"uote', "eta x", "a.b", "ðelta")
#: Types that are added, by weight of repetition: what can take part in every comparison.
ADDED: Final = tuple(kind for kind in KINDS if kind != "character(5)")
_NULLS = 0.15


class Chance:
    """A seeded source of choices; keys are never given out twice."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys = 0

    def happens(self, probability: float) -> bool:
        """True that often."""
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return self._random.randint(low, high)

    def one(self, choices: Sequence[T]) -> T:
        """One of them."""
        return self._random.choice(choices)

    def some(self, choices: Sequence[T], count: int) -> list[T]:
        """That many different ones, or all."""
        return self._random.sample(choices, min(count, len(choices)))

    def weighted(self, choices: Sequence[tuple[int, T]]) -> T:
        """One of them, by weight."""
        weights, values = zip(*choices, strict=True)
        chosen: T = self._random.choices(values, weights)[0]
        return chosen

    # --- SQL ------------------------------------------------------------------------------------------------------

    def key(self, kind: str) -> str:
        """A key that is new."""
        self._keys += 1
        make: Callable[[int], str] = KEYS[kind]
        return make(self._keys)

    def value(self, column: Column) -> str:
        """A value for a column: a new one where it has to be."""
        if column.is_unique:
            return self.key(column.type)
        # rows are found by it and by its remainders
        if column.name == "id" and column.type in {"integer", "bigint"}:
            return str(self.between(1, 40))
        kind = KINDS[column.type]
        if not column.not_null and self.happens(_NULLS):
            return "NULL"
        return self.one(kind.values)

    def default(self, kind: str) -> str | None:
        """A default for the type, or None when it has none."""
        known = KINDS[kind]
        choices = [(3, text) for text in known.literals] + [(1, text) for text in known.computed]
        return self.weighted(choices) if choices else None

    def free_name(self, table: Table) -> str | None:
        """A name that no column of the table has, None when all are taken."""
        taken = {column.name for column in table.columns}
        names = [name for name in NAMES if name not in taken]
        return self.one(names) if names else None

"""Make a failing history short: delta debugging (ddmin) over what belongs together, then over single statements.

A part is a statement outside any transaction, a whole transaction of a session, or a deed. Taking parts out may make
Postgres refuse later statements; that is no matter, for they are refused alike at every replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etl.testing.difftest.history import Deed, Entry, History, Statement

Part = tuple[int, ...]
#: Whether a history still fails in the way that is looked for.
Fails = Callable[[Sequence[Entry]], bool]


def shrink(entries: Sequence[Entry], fails: Fails, tries: int = 200) -> History:
    """A short history that still fails; `tries` bounds how often `fails` is asked. `entries` itself must fail."""
    budget = _Budget(fails, tries)
    history = list(entries)
    for divide in (_deeds, _transactions, _statements):
        history = _ddmin(history, divide(history), budget)
    return history


class _Budget:
    """Asks, until the tries are used up."""

    def __init__(self, fails: Fails, tries: int) -> None:
        self._fails = fails
        self.left = tries

    def fails(self, entries: Sequence[Entry]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(entries)


def _ddmin(history: History, parts: list[Part], budget: _Budget) -> History:
    """Zeller's algorithm, complements only: take out ever smaller groups of parts while it still fails."""
    gone: set[int] = set()
    pieces = 1
    while parts and budget.left > 0:
        size = -(-len(parts) // pieces)
        for start in range(0, len(parts), size):
            without = gone.union(*parts[start : start + size])
            if budget.fails([entry for index, entry in enumerate(history) if index not in without]):
                gone, parts = without, parts[:start] + parts[start + size :]
                pieces = max(pieces - 1, 1)
                break
        else:
            if pieces >= len(parts):
                break
            pieces = min(2 * pieces, len(parts))
    return [entry for index, entry in enumerate(history) if index not in gone]


def _deeds(history: History) -> list[Part]:
    """What is done to the pipeline: it goes first, where the failure needs none of it."""
    return [(index,) for index, entry in enumerate(history) if isinstance(entry, Deed)]


def _transactions(history: History) -> list[Part]:
    parts: list[list[int]] = []
    opened: dict[int, list[int]] = {}
    for index, entry in enumerate(history):
        if not isinstance(entry, Statement):
            parts.append([index])
        elif entry.session in opened:
            opened[entry.session].append(index)
            if entry.sql in {"COMMIT", "ROLLBACK"}:
                del opened[entry.session]
        else:
            parts.append([index])
            if entry.sql == "BEGIN":
                opened[entry.session] = parts[-1]
    return [tuple(part) for part in parts]


def _statements(history: History) -> list[Part]:
    """Single entries, but what opens and ends a transaction stays or goes together."""
    parts: list[list[int]] = []
    opened: dict[int, list[int]] = {}
    for index, entry in enumerate(history):
        if isinstance(entry, Statement) and entry.sql == "BEGIN":
            parts.append([index])
            opened[entry.session] = parts[-1]
        elif isinstance(entry, Statement) and entry.sql in {"COMMIT", "ROLLBACK"} and entry.session in opened:
            opened.pop(entry.session).append(index)
        else:
            parts.append([index])
    return [tuple(part) for part in parts]

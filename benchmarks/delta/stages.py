"""Where the time of a write goes: the parts of the Delta destination under one clock, each second counted once."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from etl.destinations.delta.commits import Commits
from etl.destinations.delta.housekeeping import Housekeeping
from etl.destinations.delta.session import Session

FOLD, HAND_OFF, MERGE, BOOKKEEPING = "fold", "hand-off", "merge", "bookkeeping"
STAGES: Final = (FOLD, HAND_OFF, MERGE, BOOKKEEPING)


class StageClock:
    """Seconds per stage; what is entered inside another stage stops the outer one."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._entered: list[str] = []
        self._since = time.perf_counter()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the block as `name`."""
        self._account()
        self._entered.append(name)
        try:
            yield
        finally:
            self._account()
            self._entered.pop()

    def _account(self) -> None:
        now = time.perf_counter()
        if self._entered:
            self.seconds[self._entered[-1]] += now - self._since
        self._since = now


def watch(clock: StageClock) -> None:
    """Put the destination of this process under `clock`, for good.

    The MERGE with its commit is one statement; ownership is looked at before and after it; rows are staged as a file;
    what is left over is the fold to one row per key.
    """
    for owner, name, stage in (
        (Session, "commit", MERGE),
        (Housekeeping, "fence", BOOKKEEPING),
        (Commits, "_claim", BOOKKEEPING),
    ):
        setattr(owner, name, _timed(clock, stage, getattr(owner, name)))
    Session.staged = _timed_context(clock, HAND_OFF, Session.staged)  # type: ignore[method-assign, assignment] # timed from outside


def _timed(clock: StageClock, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        with clock.stage(stage):
            return function(*args, **kwargs)

    return timed


def _timed_context(
    clock: StageClock, stage: str, function: Callable[..., AbstractContextManager[Any]]
) -> Callable[..., AbstractContextManager[Any]]:
    """Entering and leaving are the stage; the block between them is not."""

    @functools.wraps(function)
    @contextmanager
    def timed(*args: Any, **kwargs: Any) -> Iterator[Any]:
        context = function(*args, **kwargs)
        with clock.stage(stage):
            entered = context.__enter__()
        try:
            yield entered
        finally:
            with clock.stage(stage):
                context.__exit__(None, None, None)

    return timed

"""Verbs that change something: say what will be done, ask, do it, say what was done."""

from __future__ import annotations

from collections.abc import Callable

from etl.cli.output import confirm, emit, say
from etl.config.figures import printable


def carry_out(perform: Callable[[bool], list[str]], *, question: str, dry_run: bool, yes: bool) -> None:
    """Plan with ``perform(True)``, ask `question`, act with ``perform(False)``; the actions are the verb's data."""
    actions = perform(True)
    if not actions:
        say("nothing to do")
        return
    if not dry_run:
        for action in actions:
            say(f"will: {action}")
        confirm(question, yes=yes)
        actions = perform(False)
    for action in actions:
        emit(printable(f"{'would' if dry_run else 'done'}: {action}"))

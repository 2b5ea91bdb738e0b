"""What a story is: statements at a source, in three parts."""

from __future__ import annotations

from dataclasses import dataclass

Step = str | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Story:
    """One story; see `story` for the parts."""

    given: tuple[Step, ...]
    when: tuple[Step, ...]
    later: tuple[Step, ...]
    publish: tuple[str, ...] | None
    changelog: tuple[str, ...]
    breaks: bool

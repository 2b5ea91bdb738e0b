"""A history: what happened at a source and to its pipeline, in order. It can be written down, and happen again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path


class Verb(StrEnum):
    """What is done to the pipeline."""

    ONCE = "once"
    START = "start"
    WAIT = "wait"
    STOP = "stop"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class Statement:
    """SQL that a session sends as it stands: one statement, or several that belong together."""

    session: int
    sql: str


@dataclass(frozen=True, slots=True)
class Deed:
    """Something done to the pipeline; `failpoints` as ``ETL_FAILPOINTS`` has them."""

    verb: Verb
    failpoints: str = ""


Entry = Statement | Deed
History = list[Entry]


def save(entries: Sequence[Entry], path: Path) -> None:
    """Write a history as JSON lines, from which `load` makes it again, and beside it as SQL for people."""
    path.write_text("".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries))
    path.with_suffix(".sql").write_text(as_sql(entries))


def load(path: Path) -> History:
    """Read what `save` wrote."""
    return [_entry(json.loads(line)) for line in path.read_text().splitlines()]


def as_sql(entries: Sequence[Entry]) -> str:
    """The history as a script: sessions and what is done to the pipeline are comments."""
    lines: list[str] = []
    session = None
    for entry in entries:
        match entry:
            case Deed():
                with_failpoints = f" with ETL_FAILPOINTS={entry.failpoints}" if entry.failpoints else ""
                lines.append(f"-- pipeline: {entry.verb.value}{with_failpoints}")
            case Statement():
                if entry.session != session:
                    session = entry.session
                    lines.append(f"-- session {session}")
                lines.append(entry.sql.strip().removesuffix(";") + ";")
    return "\n".join(lines) + "\n"


def _entry(fields: dict[str, str | int]) -> Entry:
    if "verb" in fields:
        return Deed(Verb(str(fields["verb"])), str(fields["failpoints"]))
    return Statement(int(fields["session"]), str(fields["sql"]))

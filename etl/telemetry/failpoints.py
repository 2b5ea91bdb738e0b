"""Named places where a test may kill, fail, delay or hold the process; inert in production.

``ETL_FAILPOINTS`` arms them once, when this module is imported; `configure` does the same inside a test:

    name[:n]=action[,name[:n]=action …]

`n` picks the n-th pass (1 is the first); without it the action happens on every pass. Actions:

- ``kill``: SIGKILL to this process, so nothing is cleaned up.
- ``error``: raise `FailpointError`.
- ``sleep(ms)``: wait that many milliseconds.
- ``hold``: wait until `release`. With ``ETL_FAILPOINTS_DIR`` set, a file of the failpoint's name is put there while
  it holds and removing that file releases it: so a test can hold another process.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from etl.errors import ConfigError, EtlError, RetryPolicy

#: Every failpoint there is, so that a crash matrix can iterate over them.
FAILPOINTS: frozenset[str] = frozenset(
    {
        # pipeline: start and the initial copy
        "start.after_slot_create",
        "copy.after_snapshot",
        "copy.mid",
        "copy.before_range_recorded",
        "copy.before_finish",
        "copy.after_finish",
        "copy.before_state_finished",
        # pipeline: changes that wait on disk, and the table's way to the stream
        "backlog.before_sync",
        "backlog.after_sync",
        "handoff.before_catchup",
        "handoff.mid",
        "handoff.before_live",
        "handoff.after_live",
        "handoff.before_backlog_dropped",
        # pipeline: schema versions and the stream
        "schema.before_store",
        "schema.after_store",
        "stream.before_write",
        "stream.after_write",
        "stream.after_progress",
        "stream.after_ack",
        # destinations: one write
        "dest.before_write",
        "dest.mid_write",
        "dest.before_commit",
        "dest.after_commit",
        # destinations: one schema change
        "ddl.before_mark_applying",
        "ddl.after_mark_applying",
        "ddl.after_step",
        "ddl.after_last_step",
        "ddl.after_commit",
        "ddl.after_applied",
    }
)

_RULE = re.compile(r"(?P<name>[a-z_.]+)(?::(?P<nth>[1-9]\d*))?=(?P<action>[a-z]+)(?:\((?P<ms>\d+)\))?")
_POLL_SECONDS = 0.01


class FailpointError(EtlError):
    """Raised by an armed failpoint; never in production."""

    kind = "failpoint"
    retry = RetryPolicy.TIMED


class _Action(StrEnum):
    KILL = "kill"
    ERROR = "error"
    SLEEP = "sleep"
    HOLD = "hold"


@dataclass(slots=True)
class _Rule:
    action: _Action
    nth: int | None
    milliseconds: int


@dataclass(slots=True)
class _Armed:
    rules: dict[str, list[_Rule]] = field(default_factory=dict)
    passes: dict[str, int] = field(default_factory=dict)
    released: dict[str, threading.Event] = field(default_factory=dict)
    held: dict[str, threading.Event] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_armed = _Armed()


def configure(spec: str) -> None:
    """Arm exactly the failpoints of `spec`; the empty string disarms all. Raises `ConfigError` on a wrong spec."""
    armed = _Armed()
    for part in filter(None, (piece.strip() for piece in spec.split(","))):
        name, rule = _parse(part)
        armed.rules.setdefault(name, []).append(rule)
        armed.released[name] = threading.Event()
        armed.held[name] = threading.Event()
    global _armed  # noqa: PLW0603 -- one process, one set of failpoints
    for event in _armed.released.values():
        event.set()
    _armed = armed


def failpoint(name: str) -> None:
    """Do what is armed for `name`: nothing, in production. Raises `ValueError` for a name not in `FAILPOINTS`."""
    if name not in FAILPOINTS:
        raise ValueError(f"unknown failpoint {name!r}")
    armed = _armed
    rules = armed.rules.get(name)
    if rules is None:
        return
    with armed.lock:
        count = armed.passes[name] = armed.passes.get(name, 0) + 1
    for rule in rules:
        if rule.nth is None or rule.nth == count:
            _act(armed, name, rule)


def passes(name: str) -> int:
    """How often an armed failpoint was passed since `configure`."""
    return _armed.passes.get(name, 0)


def wait_until_held(name: str, timeout: float = 30.0) -> bool:
    """Wait until a thread of this process stands at a ``hold``; False when `timeout` seconds passed first."""
    return _armed.held[name].wait(timeout)


def release(name: str) -> None:
    """Let go whoever is held at `name`, now and from here on."""
    _armed.released[name].set()


def _parse(part: str) -> tuple[str, _Rule]:
    match = _RULE.fullmatch(part)
    hint = f"write name[:n]=kill|error|sleep(ms)|hold; names: {', '.join(sorted(FAILPOINTS))}"
    if match is None or match["name"] not in FAILPOINTS or match["action"] not in set(_Action):
        raise ConfigError(f"not a failpoint: {part!r}", hint=hint)
    action = _Action(match["action"])
    if (match["ms"] is not None) != (action is _Action.SLEEP):
        raise ConfigError(f"only sleep takes milliseconds, and needs them: {part!r}", hint=hint)
    nth = int(match["nth"]) if match["nth"] else None
    return match["name"], _Rule(action, nth, int(match["ms"] or 0))


def _act(armed: _Armed, name: str, rule: _Rule) -> None:
    match rule.action:
        case _Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case _Action.ERROR:
            raise FailpointError(f"failpoint {name} is armed", hint="unset ETL_FAILPOINTS")
        case _Action.SLEEP:
            time.sleep(rule.milliseconds / 1000)
        case _Action.HOLD:
            _hold(armed, name)


def _hold(armed: _Armed, name: str) -> None:
    directory = os.environ.get("ETL_FAILPOINTS_DIR")
    marker = Path(directory) / name if directory else None
    if marker is not None:
        marker.touch()
    armed.held[name].set()
    while not armed.released[name].wait(_POLL_SECONDS):
        if marker is not None and not marker.exists():
            return


configure(os.environ.get("ETL_FAILPOINTS", ""))

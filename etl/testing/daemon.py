"""Processes of `etl` under test: finished runs and running daemons."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

#: How long a test waits for anything at all, on however busy a machine.
DEADLINE_S = 300.0
_POLL_S = 0.02


class HarnessError(AssertionError):
    """The pipeline under test did not do what the test waits for; says what the daemon printed."""


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    check: Callable[[], None] = lambda: None,
    said: Callable[[], str] = str,
) -> None:
    """Poll `condition` until it holds, `check` in between; `said` is what a vain wait shows."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        check()
        if time.monotonic() > deadline:
            raise HarnessError(f"waited {DEADLINE_S:.0f} s in vain for {what}:\n{said()}")
        time.sleep(_POLL_S)


@dataclass(frozen=True, slots=True)
class Run:
    """A finished `etl` process. `out` is its standard output, `log` its standard error (JSON lines)."""

    code: int
    out: str
    log: str

    @property
    def events(self) -> list[dict[str, Any]]:
        """The log's JSON lines."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The log lines of one event name."""
        return [line for line in self.events if line.get("event") == event]


class Process(Protocol):
    """A process of `etl`, however it was started."""

    pid: int

    @property
    def returncode(self) -> Any:
        """The exit code (int) once it has ended, None before."""

    def poll(self) -> int | None:
        """The exit code, None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    def kill(self) -> None:
        """SIGKILL."""


@dataclass(slots=True)
class Daemon:
    """A running `etl replicate`."""

    process: Process
    log_path: Path

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text()

    def wait_until(
        self, condition: Callable[[], bool], what: str = "the condition", *, alive: bool = True
    ) -> None:
        """Poll `condition` until it holds; the daemon must stay alive meanwhile unless `alive` is False."""

        def check() -> None:
            if alive and self.process.poll() is not None:
                raise HarnessError(
                    f"the daemon ended ({self.process.returncode}) before {what}:\n{self.log[-4000:]}"
                )

        wait_until(condition, what, check=check, said=lambda: self.log[-4000:])

    def wait_for_log(self, event: str, times: int = 1) -> None:
        """Wait until the log has `event` that many times."""
        self.wait_until(lambda: self.count_log(event) >= times, f"log event {event}")

    def count_log(self, event: str) -> int:
        """How often it has logged `event`."""
        return self.log.count(f'"event":"{event}"')

    def wait_for_exit(self) -> int:
        """Wait until it ends by itself; its exit code (negative: the signal)."""
        self.wait_until(lambda: self.process.poll() is not None, "its end", alive=False)
        return int(self.process.returncode)

    def terminate(self) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait_for_exit()

    def kill(self) -> None:
        """SIGKILL and wait."""
        self.process.kill()
        self.process.wait()

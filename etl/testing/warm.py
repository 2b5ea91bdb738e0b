"""`etl` as processes that start at once: forked from one that has imported everything already.

A short `etl replicate --once` spends most of its second or two on imports, and a crash matrix starts hundreds of them.
A forked child is a process like any other: it has its own memory, connections and files, and can be killed.

The warm process speaks JSON lines: a request ``{"arguments", "environment", "out", "log"}`` is answered by
``{"pid"}``, and ``{"pid", "code"}`` follows when that child has ended (negative: the signal that ended it).
"""

from __future__ import annotations

import importlib
import json
import os
import random
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from etl.telemetry import failpoints

_PRELOADED = (
    "etl.app",
    "etl.cli.main",
    "etl.config.loader",
    "etl.destinations.delta.destination",
    "etl.destinations.duckdb.destination",
    "etl.http.application",
    "etl.http.server",
    "etl.telemetry.logging",
    "psycopg",
    "pyarrow.csv",
    "rich.progress",
)
_POLL_S = 0.01


class WarmProcess:
    """A child of the warm process; as much of `subprocess.Popen` as tests use."""

    def __init__(self, starter: WarmEtl, pid: int) -> None:
        self._starter = starter
        self.pid = pid
        self.code: int | None = None

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        if self.code is None:
            self._starter.hear()
        return self.code

    def poll(self) -> int | None:
        """As `returncode`."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.returncode) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("etl", timeout or 0)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class WarmEtl:
    """The warm process, started when first needed. Threads may share it."""

    def __init__(self, *module: str) -> None:
        """`module`: another one that serves, and its arguments; it may change `etl` before it does."""
        self._module = module or ("etl.testing.warm",)
        self._lock = threading.RLock()
        self._server: subprocess.Popen[bytes] | None = None
        self._unread = b""
        # only those that run: the system gives a number out again once its process has ended
        self._running: dict[int, WarmProcess] = {}

    def start(
        self, arguments: Sequence[str], *, environment: Mapping[str, str], out: Path | None, log: Path
    ) -> WarmProcess:
        """Run ``etl`` with `arguments` and exactly this environment; its output goes to the files."""
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "out": os.devnull if out is None else str(out),
            "log": str(log),
        }
        with self._lock:
            server = self._serving()
            _stream(server.stdin).write(json.dumps(request).encode() + b"\n")
            _stream(server.stdin).flush()
            while "pid" not in (answer := self._receive(server)) or "code" in answer:
                self._note(answer)
            process = self._running[answer["pid"]] = WarmProcess(self, answer["pid"])
            return process

    def hear(self) -> None:
        """Note the exit codes of the children that have ended by now."""
        with self._lock:
            server = self._serving()
            with selectors.DefaultSelector() as selector:
                selector.register(_stream(server.stdout), selectors.EVENT_READ)
                while b"\n" in self._unread or selector.select(0):
                    self._note(self._receive(server))

    def close(self) -> None:
        """End the warm process; children that still run are left alone."""
        with self._lock:
            server, self._server = self._server, None
            if server is not None:
                _stream(server.stdin).close()
                server.wait()
                _stream(server.stdout).close()

    def _serving(self) -> subprocess.Popen[bytes]:
        if self._server is None:
            self._server = subprocess.Popen(
                [sys.executable, "-m", *self._module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                env={key: value for key, value in os.environ.items() if not key.startswith(("PG", "ETL_"))},
            )
        return self._server

    def _receive(self, server: subprocess.Popen[bytes]) -> dict[str, int]:
        while b"\n" not in self._unread:
            part = os.read(_stream(server.stdout).fileno(), 1 << 16)
            if not part:
                raise RuntimeError(f"the warm process ended ({server.wait()})")
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        answer: dict[str, int] = json.loads(line)
        return answer

    def _note(self, answer: Mapping[str, int]) -> None:
        self._running.pop(answer["pid"]).code = answer["code"]


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    if stream is None:
        raise RuntimeError("the warm process has no pipes")
    return stream


# --- the warm process itself --------------------------------------------------------------------------------------


def serve() -> None:
    """Fork a child for each request until standard input ends."""
    for name in _PRELOADED:
        importlib.import_module(name)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    unread = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(wake, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if wake in ready:
                os.read(wake, 1 << 10)
                _tell_ended()
            if 0 in ready:
                part = os.read(0, 1 << 16)
                if not part:
                    return
                *requests, unread = (unread + part).split(b"\n")
                for request in requests:
                    _fork(json.loads(request))


def _fork(request: dict[str, Any]) -> None:
    pid = os.fork()
    if pid == 0:
        _become_etl(request)
    _tell({"pid": pid})


def _become_etl(request: dict[str, Any]) -> NoReturn:
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, request["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
            (2, request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            os.dup2(os.open(path, flags, 0o644), target)
        os.environ.clear()
        os.environ.update(request["environment"])
        random.seed()
        failpoints.configure(os.environ.get("ETL_FAILPOINTS", ""))
        code = _run(request["arguments"])
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # nothing of the warm process is this child's to clean up
        os._exit(code)


def _run(arguments: list[str]) -> int:
    from etl.cli.main import app

    try:
        app(args=arguments, prog_name="etl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


def _tell_ended() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _tell({"pid": pid, "code": os.waitstatus_to_exitcode(status)})


def _tell(answer: dict[str, int]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    serve()

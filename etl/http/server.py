"""The HTTP server: a thread of its own with an event loop of its own, which the pipeline never waits for."""

from __future__ import annotations

import errno
import socket
import threading

import structlog
import uvicorn
from starlette.types import ASGIApp

from etl.errors import ConfigError, HttpAddressError

_log = structlog.get_logger()
#: Pages that are open keep a connection each.
_MOST_CONNECTIONS = 100
_STOP_S = 3.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class HttpServer:
    """Takes its address when it is made, so that a start that cannot have it fails before anything else is done."""

    def __init__(self, host: str, port: int) -> None:
        """Raises `HttpAddressError` when the address is taken, `ConfigError` when it can never be had."""
        self._socket = _listen(host, port)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        found = self._socket.getsockname()
        self._host, self._port = str(found[0]), int(found[1])

    @property
    def address(self) -> str:
        """Where it answers, ``http://127.0.0.1:8080``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    @property
    def is_local(self) -> bool:
        """True when only this machine can reach it."""
        return self._host == "::1" or self._host.startswith("127.")

    @property
    def own_names(self) -> tuple[str, ...]:
        """What it is called by those who ask at a loopback address."""
        return (*_LOOPBACK, self._host)

    def is_stopping(self) -> bool:
        """True once `stop` was called."""
        return self._server is None or self._server.should_exit

    def start(self, application: ASGIApp) -> None:
        """Answer from now on."""
        config = uvicorn.Config(
            application,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._run, args=(self._server,), name="http", daemon=True)
        self._thread.start()
        _log.info("http_serving", address=self.address)

    def stop(self) -> None:
        """Answer no more; waits a moment for answers under way."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_S)
        self._socket.close()

    def _run(self, server: uvicorn.Server) -> None:
        try:
            server.run(sockets=[self._socket])
        except Exception as error:  # noqa: BLE001 -- the pipeline goes on; who asks for its health gets no answer
            _log.error("http_failed", exc_info=error)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise HttpAddressError(
                f"http: {host}:{port} is taken by another process",
                hint="give this pipeline another http.port, or 0 for any that is free; leave http out to do without",
            ) from error
        raise ConfigError(
            f"http: cannot listen at {host}:{port}: {error.strerror or error}",
            hint="http.host must be an address of this machine; ports below 1024 need a right of their own",
        ) from error

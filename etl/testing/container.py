"""A Postgres in a container, for machines that have a container engine and nothing else."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from etl.testing.cluster import TEST_SETTINGS, free_port
from etl.testing.errors import PostgresUnavailableError

IMAGE = "postgres:18-alpine"
_READY_WITHIN_S = 60.0
_DEFAULT_ENGINE = "unix:///var/run/docker.sock"


def _require_engine() -> None:
    """Look before asking: a client that finds no socket takes its time and leaves a warning behind."""
    engine = os.environ.get("DOCKER_HOST", _DEFAULT_ENGINE)
    if engine.startswith("unix://") and not Path(engine.removeprefix("unix://")).exists():
        raise PostgresUnavailableError(f"no container engine at {engine}")


@dataclass(slots=True)
class Container:
    """One container with one server; its port on this side stays the same over restarts."""

    running: Any
    port: int

    @classmethod
    def create(cls, settings: dict[str, str] | None = None) -> Container:
        """Start a container. Raises `PostgresUnavailableError` when there is no engine or no image."""
        _require_engine()
        try:
            from testcontainers.core.container import DockerContainer

            port = free_port()
            options = [f"-c{name}={value}" for name, value in (TEST_SETTINGS | (settings or {})).items()]
            running = (
                DockerContainer(IMAGE)
                .with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
                .with_bind_ports(5432, port)
                .with_command(["postgres", *options])
            )
            running.start()
        except Exception as error:  # the engine, its socket, the registry: each fails with errors of its own
            raise PostgresUnavailableError(f"no container: {type(error).__name__}: {error}") from error
        container = cls(running, port)
        container.wait_until_ready()
        return container

    def start(self) -> None:
        """Start the stopped server again and wait until it accepts connections."""
        self.running.get_wrapped_container().start()
        self.wait_until_ready()

    def stop(self, mode: str) -> None:
        """Stop the server, keeping its data; ``immediate`` kills it, as a crash would."""
        if mode == "immediate":
            self.running.get_wrapped_container().kill()
        else:
            self.running.get_wrapped_container().stop()

    def destroy(self) -> None:
        """Remove the container and its data."""
        self.running.stop()

    def wait_until_ready(self) -> None:
        """Return at the first connection. The image starts twice, so a log line would promise too early."""
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                psycopg.connect(host="127.0.0.1", port=self.port, user="postgres", connect_timeout=2).close()
            except psycopg.OperationalError as error:
                if time.monotonic() > deadline:
                    raise PostgresUnavailableError(f"the container never became ready: {error}") from error
                time.sleep(0.1)
            else:
                return

"""A workload that runs on a thread of its own while something happens to the pipeline."""

from __future__ import annotations

import threading
import time
from typing import Self

import psycopg

from etl.testing.postgres import Database
from etl.testing.workload import Connection, Workload

_RECONNECT_S = 0.05


class Writer(threading.Thread):
    """Runs a workload until stopped; goes on after its connection was lost. `error` says what stopped it otherwise."""

    def __init__(self, database: Database, workload: Workload, *, pause_s: float = 0.0) -> None:
        super().__init__(name="writer", daemon=True)
        self.error: Exception | None = None
        self._database = database
        self._workload = workload
        self._pause_s = pause_s
        self._ended = threading.Event()

    def run(self) -> None:
        """Write until `stop`."""
        try:
            while not self._ended.is_set():
                try:
                    with self._database.connect() as connection:
                        self._write(connection)
                except psycopg.OperationalError:
                    time.sleep(_RECONNECT_S)
        except Exception as error:  # noqa: BLE001 - raised by `stop` on the test's thread
            self.error = error

    def stop(self) -> None:
        """End after the transaction in hand, and raise what went wrong."""
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self, connection: Connection) -> None:
        while not self._ended.is_set():
            self._workload.step(connection)
            self._ended.wait(self._pause_s)

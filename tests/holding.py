"""Daemons that stand at failpoints while something else happens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from etl.testing.daemon import Daemon
from etl.testing.harness import PipelineUnderTest


class Held:
    """A daemon that stands at failpoints until it is let go."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.daemon = daemon
        self._folder = folder

    def wait(self, point: str) -> None:
        self.daemon.wait_until((self._folder / point).exists, f"the hold at {point}")

    def go(self, point: str) -> None:
        (self._folder / point).unlink()


@contextmanager
def held(pipeline: PipelineUnderTest, failpoints: str) -> Iterator[Held]:
    folder = pipeline.directory / "held"
    folder.mkdir(exist_ok=True)
    with pipeline.running(failpoints=failpoints, env={"ETL_FAILPOINTS_DIR": str(folder)}) as daemon:
        yield Held(daemon, folder)

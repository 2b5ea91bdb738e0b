"""Asking a running daemon over HTTP."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from etl.testing.daemon import Daemon

#: Whatever port is free.
HTTP = {"http": {"port": 0}}


@dataclass(frozen=True, slots=True)
class Watched:
    """A daemon with its HTTP server."""

    daemon: Daemon
    address: str

    @classmethod
    def of(cls, daemon: Daemon) -> Watched:
        """Waits until the daemon serves."""
        daemon.wait_for_log("http_serving")
        line = next(line for line in daemon.log.splitlines() if '"event":"http_serving"' in line)
        return cls(daemon, json.loads(line)["address"])

    def get(self, path: str, **headers: str) -> httpx.Response:
        """Ask once."""
        return httpx.get(self.address + path, headers=headers, timeout=30)

    def json(self, path: str) -> Any:
        """The body, whatever the status."""
        return self.get(path).json()

    def page(self, path: str) -> str:
        """A page as a browser gets it."""
        return self.get(path, accept="text/html").text

    def samples(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Metric → labels without the pipeline's → value; counters and histograms under the names of their samples."""
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(self.get("/metrics").text):
            for sample in family.samples:
                labels = tuple(
                    sorted((key, value) for key, value in sample.labels.items() if key != "pipeline")
                )
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    def value(self, name: str, **labels: str) -> float | None:
        """One sample, None when it is not there."""
        return self.samples().get(name, {}).get(tuple(sorted(labels.items())))

    def wait_ready(self) -> None:
        """Until every table streams or was set aside, and that is known."""

        def settled() -> bool:
            status = self.json("/status")
            phases = {table["phase"] for table in status.get("tables", [])}
            return bool(phases) and status["ready"] and phases <= {"streaming", "error", "paused"}

        self.daemon.wait_until(settled, "readiness")

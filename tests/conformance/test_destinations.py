"""Every destination that ships passes the suite that ships. One more destination is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from etl.testing.delta_kit import DeltaKit
from etl.testing.destination_suite import DestinationKit, DestinationSuite
from etl.testing.duckdb_kit import DuckDBKit

KITS: dict[str, Callable[[Path], DestinationKit]] = {"duckdb": DuckDBKit, "delta": DeltaKit}


@pytest.fixture(params=KITS.values(), ids=KITS.keys())
def destination_kit(request: pytest.FixtureRequest, tmp_path: Path) -> DestinationKit:
    kit: DestinationKit = request.param(tmp_path)
    return kit


class TestDestination(DestinationSuite):
    @pytest.fixture
    def kit(self, destination_kit: DestinationKit) -> DestinationKit:
        return destination_kit

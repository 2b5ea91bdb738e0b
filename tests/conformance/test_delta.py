"""Delta Lake passes the suite that ships; a second engine reads the rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.testing.delta_kit import DeltaKit
from etl.testing.destination_suite import DestinationKit, DestinationSuite

pytestmark = pytest.mark.spark


class TestDelta(DestinationSuite):
    @pytest.fixture
    def kit(self, tmp_path: Path) -> DestinationKit:
        return DeltaKit(tmp_path)

"""DuckDB passes the suite that ships. One more destination is one more file like this one."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.testing.destination_suite import DestinationKit, DestinationSuite
from etl.testing.duckdb_kit import DuckDBKit


class TestDuckDB(DestinationSuite):
    @pytest.fixture
    def kit(self, tmp_path: Path) -> DestinationKit:
        return DuckDBKit(tmp_path)

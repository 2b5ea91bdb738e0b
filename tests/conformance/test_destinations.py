"""Every destination that ships passes the suite that ships. One more destination is one more entry."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import duckdb
import pytest

from etl.destinations.base import Destination, DestinationTable
from etl.destinations.duckdb import DuckDBDestination, DuckDBSettings
from etl.destinations.duckdb.dialect import quote, split_name
from etl.testing.destination_suite import DestinationKit, DestinationSuite


class DuckDBKit(DestinationKit):
    """A file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names = count()
        self.path = directory / "etl.duckdb"

    def connect(self) -> Destination:
        return DuckDBDestination(DuckDBSettings(self.path))

    def rows(self, table: DestinationTable) -> list[dict[str, Any]]:
        # a second connection of this process sees what is committed
        with duckdb.connect(str(self.path)) as connection:
            name = ".".join(map(quote, (self.path.stem, *split_name(table.name))))
            return connection.execute(f"SELECT * FROM {name}").to_arrow_table().to_pylist()

    def fresh(self) -> DestinationKit:
        directory = self._directory / f"fresh{next(self._names)}"
        directory.mkdir()
        return DuckDBKit(directory)


KITS: dict[str, Callable[[Path], DestinationKit]] = {"duckdb": DuckDBKit}


@pytest.fixture(params=KITS.values(), ids=KITS.keys())
def destination_kit(request: pytest.FixtureRequest, tmp_path: Path) -> DestinationKit:
    kit: DestinationKit = request.param(tmp_path)
    return kit


class TestDestination(DestinationSuite):
    @pytest.fixture
    def kit(self, destination_kit: DestinationKit) -> DestinationKit:
        return destination_kit

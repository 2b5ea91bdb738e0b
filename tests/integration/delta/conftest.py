"""One lake and one Spark for all tests of this folder; every test has tables of its own in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.testing.delta_kit import DeltaKit
from etl.testing.destination_kit import World

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("spark")


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(DeltaKit(tmp_path_factory.mktemp("lake")))

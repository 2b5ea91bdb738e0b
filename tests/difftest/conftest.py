"""The differential tester on the session's server. `make difftest` runs these; a plain run leaves them out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etl.testing.difftest.rounds import Theatre
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl

HERE = Path(__file__).parent


@pytest.fixture
def theatre(postgres: PostgresServer, warm: WarmEtl, tmp_path: Path) -> Theatre:
    return Theatre(postgres, warm, tmp_path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("ETL_DIFFTEST"):
        return
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    config.hook.pytest_deselected(items=ours)
    items[:] = [item for item in items if item not in ours]

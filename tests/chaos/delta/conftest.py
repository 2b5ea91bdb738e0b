"""Pipelines into Delta. Each start of `etl` starts a JVM: a plain run takes one of these tests, `make chaos-delta` all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from etl.testing.delta_reader import delta_settings
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl

#: What every run of the suite takes.
ALWAYS = {
    "test_a_jvm_that_is_killed_while_idle_or_while_it_merges_is_replaced_and_nothing_is_lost",
}
HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    for item in ours:
        item.add_marker("spark")
    if os.environ.get("ETL_CHAOS_DELTA"):
        return
    left = [item for item in ours if getattr(item, "originalname", "") not in ALWAYS]
    config.hook.pytest_deselected(items=left)
    items[:] = [item for item in items if item not in left]


@pytest.fixture
def pipeline(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline into a lake, with one of the tables in changelog mode."""
    settings = {
        "destination": delta_settings(tmp_path / "lake"),
        "tables": [{"name": "public.changes", "mode": "changelog"}],
        "shutdown_timeout_s": 120,
    }
    return PipelineUnderTest(database, tmp_path, settings, warm=warm)

"""Stories and pipelines of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl
from tests.stories import outcome, pytest_collection_modifyitems

__all__ = ["outcome", "pytest_collection_modifyitems"]


@pytest.fixture
def pipeline(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline whose source database is the test's own."""
    return PipelineUnderTest(database, tmp_path, warm=warm)

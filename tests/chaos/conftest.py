"""A pipeline of its own for each test, whose processes start warm: they are killed by the hundred."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database, PostgresServer, start_postgres
from etl.testing.proxy import TcpProxy
from etl.testing.warm import WarmEtl


@pytest.fixture
def pipeline(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline whose source database is the test's own."""
    return PipelineUnderTest(database, tmp_path, warm=warm)


@pytest.fixture(scope="session")
def own_server() -> Iterator[PostgresServer]:
    """A server that may be crashed; it keeps little WAL for a slot that does not follow."""
    with start_postgres({"max_slot_wal_keep_size": "32MB"}, own=True) as server:
        yield server


@pytest.fixture
def proxy(postgres: PostgresServer) -> Iterator[TcpProxy]:
    """A way to the session's server that can be broken."""
    with TcpProxy(postgres.host, postgres.port) as running:
        yield running

"""Databases with the source's event triggers installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.source.install import install
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database, PostgresServer
from etl.testing.warm import WarmEtl
from tests.contract.trigger_stream import Source
from tests.stories import outcome, pytest_collection_modifyitems

__all__ = ["outcome", "pytest_collection_modifyitems"]


@pytest.fixture(scope="session")
def installed(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database with the triggers, to copy others from."""
    with postgres.database() as template:
        with template.connect() as connection:
            install(connection)
        yield template.name


@pytest.fixture(scope="session")
def _shared(postgres: PostgresServer, installed: str) -> Iterator[Database]:
    with postgres.database(template=installed) as database:
        yield database


@pytest.fixture
def source(_shared: Database) -> Iterator[Source]:
    """A database with the triggers and an empty publication `p`, emptied of what the last test left there.

    What belongs to schema etl is shared: a test that changes it asks for `own_source`.
    """
    with Source(_shared) as shared:
        shared.clear()
        yield shared


@pytest.fixture
def own_source(postgres: PostgresServer, installed: str) -> Iterator[Source]:
    """The same in a database of its own."""
    with postgres.database(template=installed) as database, Source(database) as own:
        own.clear()
        yield own


@pytest.fixture
def pipeline(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline whose source database is the test's own, the triggers not yet there."""
    return PipelineUnderTest(database, tmp_path, warm=warm)


@pytest.fixture
def orders(source: Source) -> Source:
    """The same with a published table `orders`."""
    source.run(
        "CREATE TABLE orders (id bigint PRIMARY KEY, state text DEFAULT 'new', qty int NOT NULL DEFAULT 1)",
        "ALTER PUBLICATION p ADD TABLE orders",
    )
    source.events()
    return source

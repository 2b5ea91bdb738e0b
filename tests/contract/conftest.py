"""Databases with the source's event triggers installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl.source.install import install
from etl.testing.postgres import Database, PostgresServer
from tests.contract.trigger_stream import Source


@pytest.fixture(scope="session")
def installed(postgres: PostgresServer) -> Iterator[str]:
    """The name of a database with the triggers, to copy others from."""
    with postgres.database() as template:
        with template.connect() as connection:
            install(connection)
        yield template.name


@pytest.fixture
def source(postgres: PostgresServer, installed: str) -> Iterator[Source]:
    """A fresh database with the triggers and an empty publication `p`, partitions under their own names."""
    with postgres.database(template=installed) as database:
        yield from opened(database)


def opened(database: Database) -> Iterator[Source]:
    opened_source = Source(database)
    try:
        opened_source.run("CREATE PUBLICATION p")
        opened_source.listen()
        yield opened_source
    finally:
        opened_source.connection.close()

"""What every test may ask for. The Postgres is real, one a session, and named at the end of the run."""

from __future__ import annotations

from collections.abc import Iterator

import hypothesis
import pytest

from etl.testing.postgres import Database, PostgresServer, start_postgres
from etl.testing.warm import WarmEtl

# A loaded machine is no failure: examples have no deadline of their own, the test's timeout is enough.
hypothesis.settings.register_profile("etl", deadline=None, print_blob=True)
hypothesis.settings.load_profile("etl")

_PROVIDERS = pytest.StashKey[set[str]]()
_WORKER_KEY = "etl_postgres_provider"


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The server of this session (of this worker, under xdist). Do not stop it: ask for one of your own."""
    with start_postgres() as server:
        request.config.stash[_PROVIDERS].add(server.provider)
        yield server


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    """A fresh database, dropped with its replication slots when the test ends."""
    with postgres.database() as fresh:
        yield fresh


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmEtl]:
    """Starts `etl` processes without the cost of their imports."""
    starter = WarmEtl()
    yield starter
    starter.close()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_PROVIDERS] = set()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs the session's Postgres, so that `-m "not postgres"` is the quick half.

    Files that start Spark come first: they take longest, and a worker that got one last would be waited for.
    """
    for item in items:
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker("postgres")
    slow = {item.path for item in items if item.get_closest_marker("spark") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[_WORKER_KEY] = sorted(session.config.stash[_PROVIDERS])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[_PROVIDERS].update(output.get(_WORKER_KEY, ()))  # type: ignore[attr-defined]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    for provider in sorted(config.stash[_PROVIDERS]):
        terminalreporter.write_line(f"Postgres of this run: {provider}")

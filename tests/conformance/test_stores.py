"""Every state store keeps the rules of the shipped suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.lsn import Lsn, SnapshotId
from etl.schema.table import ColumnSchema, ReplicaIdentity, TableSchema
from etl.store.base import StateStore
from etl.store.memory import MemoryDatabase, MemoryStore
from etl.store.migrations import migrate
from etl.store.postgres import PostgresStore
from etl.testing.postgres import Database, PostgresServer
from etl.testing.store_suite import StoreOpener, StoreSuite

names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=63)
lsns = st.integers(0, 2**64 - 1).map(Lsn)
columns = st.builds(
    ColumnSchema,
    name=names,
    attnum=st.integers(1, 1600),
    type_oid=st.integers(0, 2**32 - 1),
    typmod=st.integers(-1, 2**31 - 1),
    nullable=st.booleans(),
    default_expression=st.none() | names,
    primary_key_ordinal=st.none() | st.integers(1, 32),
    type_name=names,
    missing_value=st.none() | names,
)
schemas = st.builds(
    TableSchema,
    oid=st.integers(1, 2**32 - 1),
    schema=names,
    name=names,
    columns=st.lists(columns, max_size=8, unique_by=(lambda c: c.attnum, lambda c: c.name)).map(
        lambda found: tuple(sorted(found, key=lambda column: column.attnum))
    ),
    snapshot_id=st.builds(SnapshotId, lsns, lsns),
    identity=st.sampled_from(ReplicaIdentity),
    identity_attnums=st.lists(st.integers(1, 1600), max_size=4).map(tuple),
    max_attnum=st.integers(0, 1600),
)


@contextmanager
def opener(make: Callable[[int], StateStore]) -> Iterator[StoreOpener]:
    """Open stores, and close them all at the end."""
    opened: list[StateStore] = []

    def open_store(pipeline_id: int = 1) -> StateStore:
        opened.append(make(pipeline_id))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def shared_database(postgres: PostgresServer) -> Iterator[Database]:
    with postgres.database() as database:
        with database.connect() as connection, connection.transaction():
            migrate(connection)
        yield database


@pytest.fixture
def postgres_stores(shared_database: Database) -> Iterator[StoreOpener]:
    with opener(partial(PostgresStore, shared_database.dsn)) as open_store:
        yield open_store
    with shared_database.connect() as connection:
        connection.execute("DELETE FROM etl.pipelines")


@pytest.fixture
def memory_stores() -> Iterator[StoreOpener]:
    with opener(partial(MemoryStore, database=MemoryDatabase())) as open_store:
        yield open_store


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def open_store(self, memory_stores: StoreOpener) -> StoreOpener:
        return memory_stores


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    def open_store(self, postgres_stores: StoreOpener) -> StoreOpener:
        return postgres_stores


@pytest.mark.parametrize("kind", ["memory_stores", "postgres_stores"])
def test_any_schema_round_trips_exactly(request: pytest.FixtureRequest, kind: str) -> None:
    store = request.getfixturevalue(kind)()
    store.acquire()

    @given(schema=schemas)
    @settings(max_examples=50)
    def round_trips(schema: TableSchema) -> None:
        store.save_schema(schema)
        assert schema in store.schemas(schema.oid)
        store.prepare_for_copy(schema.oid)
        assert not store.schemas(schema.oid)

    round_trips()

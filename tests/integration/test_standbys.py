"""A physical standby as the source, and slots that standbys keep a copy of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

from etl.testing.daemon import Daemon, wait_until
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database, PostgresServer, start_standby, start_wheel
from etl.testing.warm import WarmEtl

# --- a standby as the source ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[16, 18], ids="Postgres {}".format)
def primary(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """The oldest that decodes on a standby, and the newest there is."""
    with start_wheel(request.param) as server:
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with start_standby(primary) as server:
        yield server


def items(database: Database, directory: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline whose source is the primary, with a published table in it."""
    pipeline = PipelineUnderTest(database, directory, warm=warm)
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, t text)",
        "INSERT INTO items SELECT g, 'copied' FROM generate_series(1, 1000) g",
    )
    pipeline.publish("items")
    assert pipeline.etl("init", "--yes").code == 0
    return pipeline


@pytest.fixture
def shop(primary: PostgresServer, tmp_path: Path, warm: WarmEtl) -> Iterator[PipelineUnderTest]:
    with primary.database() as database:
        yield items(database, tmp_path, warm)


@pytest.fixture
def mirrored(shop: PipelineUnderTest, standby: PostgresServer) -> Iterator[PipelineUnderTest]:
    """The same pipeline with the standby as its source; the primary keeps its state."""
    given = conninfo_to_dict(shop.database.dsn)
    store = {key: given[key] for key in ("host", "dbname", "user")} | {"port": int(str(given["port"]))}
    wait_replayed(shop, standby)
    database = Database(standby, shop.database.name)
    pipeline = PipelineUnderTest(database, shop.directory, {"store": store}, warm=shop.warm)
    assert pipeline.query("SELECT pg_is_in_recovery()") == [(True,)]
    yield pipeline
    # a database cannot be dropped at the primary while a slot at the standby is in it
    assert pipeline.etl("destroy", "--yes").code == 0


def wait_replayed(shop: PipelineUnderTest, standby: PostgresServer) -> None:
    end = str(shop.written())
    with standby.connect() as connection:
        replayed = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_until(lambda: connection.execute(replayed, [end]).fetchone() == (True,), "the standby")


def test_a_standby_is_a_source_while_the_primary_keeps_the_state(
    shop: PipelineUnderTest, mirrored: PipelineUnderTest, standby: PostgresServer
):
    def is_ready() -> bool:
        # a slot begins at such a record; an idle primary writes it only now and then
        shop.sql("SELECT pg_log_standby_snapshot()")
        return shop.states() == {"public.items": "ready"}

    with mirrored.running() as daemon:
        daemon.wait_until(is_ready, "the copy")
        shop.sql(
            "INSERT INTO items VALUES (1001, 'streamed')",
            "ALTER TABLE items ADD COLUMN n int",
            "INSERT INTO items (id, t, n) VALUES (1002, 'altered', 7)",
            "ALTER TABLE items RENAME COLUMN t TO text",
            "UPDATE items SET text = 'changed' WHERE id <= 10",
            "DELETE FROM items WHERE id = 11",
        )
        end = shop.written()
        shop.move_on()
        daemon.wait_until(lambda: shop.progress() >= end, "the changes")
        assert daemon.terminate() == 0
    mirrored.assert_settled("public.items")

    shop.sql("INSERT INTO items VALUES (1003, 'while nothing ran', 8)")
    wait_replayed(shop, standby)
    run = mirrored.once()
    assert run.logged("table_copied") == []
    assert mirrored.etl("check").code == 0
    assert mirrored.etl("status").code == 0
    mirrored.assert_settled("public.items")


def test_a_standby_cannot_keep_the_state(shop: PipelineUnderTest, standby: PostgresServer):
    wait_replayed(shop, standby)
    pipeline = PipelineUnderTest(Database(standby, shop.database.name), shop.directory, warm=shop.warm)
    run = pipeline.once(check=False)

    assert run.code == 1
    assert "name a primary under store" in run.log


# --- failover slots ---------------------------------------------------------------------------------------------------

FAILOVER = {"source": {"failover_slot": True}}
_SYNCED = "SELECT failover AND synced AND NOT temporary FROM pg_replication_slots WHERE database = 'shop'"


def test_a_failover_slot_needs_postgres_17(tmp_path: Path, warm: WarmEtl):
    with start_wheel(16) as server, server.database() as database:
        pipeline = items(database, tmp_path, warm)
        pipeline.settings |= FAILOVER
        run = pipeline.once(check=False)

    assert run.code == 78
    assert "source.failover_slot needs Postgres 17 or newer" in run.log


def test_the_stream_goes_on_at_the_standby_that_became_the_primary(tmp_path: Path, warm: WarmEtl):
    with start_wheel(18) as before, start_standby(before, {"sync_replication_slots": "on"}) as after:
        before.create_database("shop")
        shop = items(Database(before, "shop"), tmp_path, warm)
        shop.settings |= FAILOVER
        with shop.running() as daemon:
            daemon.wait_for_log("tables_settled")
            assert shop.query("SELECT failover FROM pg_replication_slots WHERE database = 'shop'") == [
                (True,)
            ]
            shop.sql("UPDATE items SET t = 'before' WHERE id <= 10")
            wait_synced(shop, after, daemon)
            assert daemon.terminate() == 0
        wait_replayed(shop, after)
        before.stop()
        at_new = PipelineUnderTest(Database(after, "shop"), tmp_path, FAILOVER, warm=warm)
        at_new.query("SELECT pg_promote()")
        at_new.sql("ALTER TABLE items ADD COLUMN n int", "INSERT INTO items VALUES (1001, 'after', 7)")
        run = at_new.once()

        assert run.logged("table_copied") == []
        at_new.assert_settled("public.items")


def wait_synced(shop: PipelineUnderTest, standby: PostgresServer, daemon: Daemon) -> None:
    """The slot of a running pipeline has its copy at the standby."""
    wait_replayed(shop, standby)
    with standby.connect() as connection:

        def is_synced() -> bool:
            # the copy is kept once the slot at the primary has moved beyond where the standby could begin
            shop.sql("SELECT pg_log_standby_snapshot()")
            shop.move_on()
            return connection.execute(_SYNCED).fetchall() == [(True,)]

        daemon.wait_until(is_synced, "the copy of the slot")

"""`etl tables` against a real store: what is asked, refused, waited for and shown. The test stands in for the daemon."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from etl.app import load_status, load_tables, request_table
from etl.config.loader import load_config
from etl.config.models import PipelineConfig
from etl.config.reports import CopyStatus, RequestReport, RequestState, TablePhase
from etl.errors import ConfigError, StoreError, TableSourceError
from etl.lsn import Lsn
from etl.schema.table import TableSchema
from etl.store.base import REFUSED, CopyRecord, TableRequest, TableState, TableStateRecord, TableVerb
from etl.store.postgres import PostgresStore
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.store_samples import metadata

DEADLINE_S = 60.0


@pytest.fixture
def pipeline(database: Database, tmp_path: Path) -> PipelineUnderTest:
    """A source with the published tables orders, items and "Odd ""name"; gone is not published."""
    under_test = PipelineUnderTest(database, tmp_path)
    under_test.sql(
        "CREATE TABLE orders (id int PRIMARY KEY)",
        "CREATE TABLE items (id int PRIMARY KEY)",
        'CREATE TABLE "Odd ""name" (id int PRIMARY KEY)',
        "CREATE TABLE gone (id int PRIMARY KEY)",
    )
    under_test.publish("orders", "items", '"Odd ""name"')
    return under_test


@pytest.fixture
def config(pipeline: PipelineUnderTest) -> PipelineConfig:
    return load_config(pipeline.file)


@pytest.fixture
def daemon(database: Database) -> Iterator[PostgresStore]:
    """The store of whoever runs the pipeline."""
    store = PostgresStore(database.dsn, 1)
    store.acquire()
    yield store
    store.close()


@pytest.fixture
def oids(pipeline: PipelineUnderTest, daemon: PostgresStore) -> dict[str, int]:
    """Name → oid; the pipeline knows all tables, and gone as one that left."""
    rows = pipeline.query(
        "SELECT relname::text, oid::bigint FROM pg_class"
        " WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
    )
    for name, oid in rows:
        daemon.save_schema(TableSchema(oid, "public", name, ()))
        daemon.set_table_state(TableStateRecord(oid, TableState.READY))
        daemon.save_destination_record(metadata(oid, destination_table=f"public.{name}"))
    known = dict(rows)
    daemon.forget_table(known["gone"])
    return known


def next_requests(daemon: PostgresStore) -> list[TableRequest]:
    """What the daemon sees once somebody asked."""
    while not (asked := daemon.requests()):
        pass
    return asked


# --- the answer -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "state", "told"),
    [
        ("paused at 0/64", RequestState.DONE, "paused at 0/64"),
        (f"{REFUSED}not now", RequestState.REFUSED, "not now"),
    ],
)
def test_the_answer_of_the_running_pipeline_is_waited_for(
    config: PipelineConfig,
    daemon: PostgresStore,
    oids: dict[str, int],
    outcome: str,
    state: RequestState,
    told: str,
) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(request_table, config, ["public.orders"], TableVerb.PAUSE, wait_s=DEADLINE_S)
        (request,) = next_requests(daemon)
        assert (request.oid, request.verb) == (oids["orders"], TableVerb.PAUSE)
        daemon.settle_request(request.id, outcome)
        assert asked.result() == [RequestReport(request.id, "public.orders", "pause", state, told)]


def test_a_pipeline_that_ends_is_not_waited_for(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(request_table, config, ["public.orders"], TableVerb.PAUSE, wait_s=DEADLINE_S)
        next_requests(daemon)
        daemon.close()
        assert [report.state for report in asked.result()] == [RequestState.RECORDED]


@pytest.mark.parametrize(("wait_s", "state"), [(0.0, RequestState.LATE), (None, RequestState.ASKED)])
def test_a_request_without_an_answer_stays_recorded(
    config: PipelineConfig,
    daemon: PostgresStore,
    oids: dict[str, int],
    wait_s: float | None,
    state: RequestState,
) -> None:
    (report,) = request_table(config, ["public.orders"], TableVerb.PAUSE, wait_s=wait_s)
    assert (report.state, report.outcome) == (state, None)
    assert [request.id for request in daemon.requests()] == [report.id]


def test_what_is_asked_while_nothing_runs_is_done_at_the_next_start(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    daemon.close()
    (report,) = request_table(config, ["public.orders"], TableVerb.RESYNC, wait_s=DEADLINE_S)
    assert report.state is RequestState.RECORDED
    daemon.acquire()
    assert [(request.oid, request.verb) for request in daemon.requests()] == [
        (oids["orders"], TableVerb.RESYNC)
    ]


# --- which tables ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "helped"), [(TableVerb.RETRY, TableState.ERRORED), (TableVerb.RESUME, TableState.PAUSED)]
)
def test_without_names_a_verb_is_about_every_table_it_helps(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int], verb: TableVerb, helped: TableState
) -> None:
    assert request_table(config, [], verb, wait_s=None) == []
    for name in ("orders", "items"):
        daemon.set_table_state(TableStateRecord(oids[name], helped))
    reports = request_table(config, [], verb, wait_s=None)
    assert [report.table for report in reports] == ["public.items", "public.orders"]


def test_a_table_may_be_named_by_its_oid_and_twice(config: PipelineConfig, oids: dict[str, int]) -> None:
    names = [str(oids["items"]), "public.items"]
    assert [r.table for r in request_table(config, names, TableVerb.PAUSE, wait_s=None)] == ["public.items"]


def test_an_unknown_table_is_told_with_the_known_ones_and_nothing_is_recorded(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    with pytest.raises(ConfigError, match=r"no table public\.order in this pipeline") as refused:
        request_table(config, ["public.items", "public.order"], TableVerb.PAUSE, wait_s=None)
    assert refused.value.hint == 'its tables: public.Odd "name, public.gone, public.items, public.orders'
    assert daemon.requests() == []


def test_a_name_of_two_tables_asks_for_an_oid(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    daemon.save_destination_record(metadata(4_000_000_000, destination_table="public.orders"))
    with pytest.raises(ConfigError, match=r"public\.orders is the name of 2 tables") as refused:
        request_table(config, ["public.orders"], TableVerb.PAUSE, wait_s=None)
    assert f"{oids['orders']} (streaming), 4000000000 (left)" in refused.value.hint


def test_a_pipeline_that_never_ran_has_no_tables(config: PipelineConfig) -> None:
    with pytest.raises(StoreError):
        request_table(config, ["public.orders"], TableVerb.PAUSE, wait_s=None)


# --- tables that left -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", 'Odd "name'])
def test_a_published_table_is_not_dropped_and_the_statement_that_must_come_first_is_named(
    pipeline: PipelineUnderTest,
    config: PipelineConfig,
    daemon: PostgresStore,
    oids: dict[str, int],
    name: str,
) -> None:
    with pytest.raises(TableSourceError, match="still has the table") as refused:
        request_table(config, [f"public.{name}"], TableVerb.DROP, wait_s=None)
    assert refused.value.table == f"public.{name}"
    assert daemon.requests() == []

    pipeline.sql(refused.value.hint.removeprefix("first, on the source: "))
    assert len(request_table(config, [f"public.{name}"], TableVerb.DROP, wait_s=None)) == 1


def test_a_table_that_left_can_be_dropped_by_name_while_the_source_has_it_and_after(
    pipeline: PipelineUnderTest, config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    request_table(config, ["public.gone"], TableVerb.DROP, wait_s=None)
    pipeline.sql("DROP TABLE gone")
    request_table(config, ["public.gone"], TableVerb.DROP, wait_s=None)
    assert [request.oid for request in daemon.requests()] == [oids["gone"]]


@pytest.mark.parametrize("verb", [verb for verb in TableVerb if verb is not TableVerb.DROP])
def test_nothing_but_a_drop_is_asked_of_a_table_that_left(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int], verb: TableVerb
) -> None:
    with pytest.raises(TableSourceError, match="left the publication") as refused:
        request_table(config, ["public.gone"], verb, wait_s=None)
    assert "etl tables drop" in refused.value.hint
    assert daemon.requests() == []


# --- what is shown --------------------------------------------------------------------------------------------


def test_the_tables_show_their_phase_their_copy_and_what_was_asked(
    config: PipelineConfig, daemon: PostgresStore, oids: dict[str, int]
) -> None:
    later = datetime(2030, 1, 2, tzinfo=UTC)
    daemon.set_table_state(TableStateRecord(oids["orders"], TableState.DATA_SYNC))
    daemon.begin_copy(CopyRecord(oids["orders"], "s", Lsn(1), 3, note="copied from the beginning"))
    daemon.finish_range(oids["orders"], 2, 500)
    daemon.set_table_state(
        TableStateRecord(oids["items"], TableState.ERRORED, reason="full", retry_at=later, attempts=2)
    )
    daemon.request(oids["items"], TableVerb.RETRY)

    tables = {table.name: table for table in load_tables(config)}
    orders, items, gone = (tables[f"public.{name}"] for name in ("orders", "items", "gone"))
    assert (orders.state, orders.phase) == ("data_sync", TablePhase.COPYING)
    assert orders.since is not None
    assert orders.copy is not None
    assert replace(orders.copy, started_at=None) == CopyStatus(3, 1, 500, note="copied from the beginning")
    assert (items.phase, items.reason, items.retry_at, items.attempts) == (TablePhase.ERROR, "full", later, 2)
    assert items.requested == ("retry",)
    assert (gone.state, gone.phase, gone.destination_table) == (None, TablePhase.LEFT, "public.gone")
    assert load_status(config).tables == tuple(load_tables(config))

"""A running daemon tells over HTTP how it is, and nothing that is nobody's business."""

from __future__ import annotations

import json
import re
import socket
import threading

import httpx
import pytest

from etl.http.views import table_link
from etl.source.slots import apply_slot_name
from etl.telemetry.metric_names import ALL_METRICS
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import PostgresServer
from etl.testing.proxy import TcpProxy
from tests.holding import held
from tests.watching import HTTP, Watched

PASSWORD = "hunter2-geheim"
VALUE = "a row's very own value"
LITERAL = "a literal of an alter"
HOSTILE = "<script>alert('x')</script>/\"../?#%25 ☃"


@pytest.fixture
def pipeline(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.settings |= HTTP
    return pipeline


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def settle(pipeline: PipelineUnderTest, watched: Watched) -> None:
    """Everything until now is durable, and the watcher has seen that."""
    end = pipeline.written()
    pipeline.move_on()
    watched.daemon.wait_until(lambda: pipeline.progress() >= end, "the stream")


def test_every_metric_is_exposed_after_a_small_story(pipeline: PipelineUnderTest):
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, a text, n float DEFAULT random())",
        "INSERT INTO items SELECT g, 'x' FROM generate_series(1, 100) g",
        'CREATE TABLE twice (id int PRIMARY KEY, a int, "A" int)',
        "ANALYZE items",
    )
    pipeline.publish()
    with held(pipeline, "copy.before_range_recorded:1=hold") as holding:
        watched = Watched.of(holding.daemon)
        holding.wait("copy.before_range_recorded")
        pipeline.sql("INSERT INTO items VALUES (101, 'waits')")
        holding.daemon.wait_until(
            lambda: watched.value("etl_backlog_bytes", table="public.items") or False, "the backlog"
        )
        while_copying = watched.samples()
        holding.go("copy.before_range_recorded")
        watched.wait_ready()
        pipeline.sql(
            "ALTER TABLE items ADD COLUMN b text DEFAULT 'b'",
            "ALTER TABLE items ALTER COLUMN b SET DEFAULT 'r' || random()",
            "INSERT INTO items (id) VALUES (102)",
            "SELECT pg_logical_emit_message(true, 'supabase_etl_ddl', '{}')",
        )
        settle(pipeline, watched)
        holding.daemon.wait_until(
            lambda: (
                watched.value("etl_ddl_forged_total") == 1
                and watched.value("etl_replication_lag_bytes", stage="durable") is not None
            ),
            "the forged message",
        )
        after = watched.samples()
        assert "default of n" in watched.page("/tables/public.items")
        assert holding.daemon.count_log("default_not_copied") == 1

    for metric in ALL_METRICS:
        name = f"{metric.name}_count" if metric.kind == "histogram" else metric.name
        assert after.get(name) or while_copying.get(name), f"{metric.name} has no sample"
        for labels in after.get(name, {}):
            assert {key for key, _ in labels} == set(metric.labels)
    assert while_copying["etl_table_copy_ranges"][("of", "all"), ("table", "public.items")] == 1
    assert while_copying["etl_table_copy_estimated_rows"][(("table", "public.items"),)] == 100
    assert after["etl_table_copy_rows_total"][(("table", "public.items"),)] == 100
    assert after["etl_table_rows_total"][(("table", "public.items"),)] == 2
    assert after["etl_ddl_changes_total"][(("kind", "add_column"), ("outcome", "applied"))] == 1
    assert after["etl_ddl_skipped_defaults_total"][(("reason", "not_literal"),)] == 2
    # it is tried again and again, and in between it is not in error
    assert (("state", "errored"),) in after["etl_tables"]
    assert after["etl_errors_total"][(("kind", "destination_table"), ("worker", "table"))] >= 1
    assert after["etl_slot_wal_status"][(("status", "reserved"),)] == 1
    assert "etl_backlog_bytes" not in after


def test_a_destination_that_is_slow_is_alive_and_the_lag_is_told_meanwhile(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with held(pipeline, "dest.before_write:1=hold") as holding:
        watched = Watched.of(holding.daemon)
        watched.wait_ready()
        holding.daemon.wait_until(
            lambda: watched.value("etl_replication_lag_seconds", stage="durable") == 0, "no lag"
        )
        pipeline.sql("INSERT INTO items VALUES (1)")
        holding.wait("dest.before_write")
        holding.daemon.wait_until(
            lambda: (watched.value("etl_replication_lag_seconds", stage="durable") or 0) > 1, "a lag"
        )
        loops = {loop["loop"]: loop for loop in watched.json("/livez")["loops"]}
        assert watched.get("/livez").status_code == 200
        assert watched.get("/readyz").status_code == 200
        assert loops["apply"]["waiting_for"] == "destination"
        assert "apply waits for the destination" in watched.page("/")
        holding.go("dest.before_write")
        holding.daemon.wait_until(
            lambda: watched.value("etl_replication_lag_seconds", stage="durable") == 0, "no lag"
        )


def test_while_the_source_is_away_it_is_alive_and_not_ready_and_says_why(
    pipeline: PipelineUnderTest, postgres: PostgresServer
):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with TcpProxy(postgres.host, postgres.port) as proxy:
        pipeline.settings["source"] = {"host": "127.0.0.1", "port": proxy.port, "sslmode": "disable"}
        with pipeline.running() as daemon:
            watched = Watched.of(daemon)
            watched.wait_ready()
            proxy.refuse()
            daemon.wait_until(lambda: watched.get("/readyz").status_code == 503, "the loss")
            daemon.wait_until(lambda: watched.json("/status")["phase"] == "retrying", "retries")
            away, alive = watched.json("/readyz"), watched.get("/livez").status_code
            page = watched.page("/")
            daemon.wait_until(
                lambda: "could not be read" in str(watched.json("/readyz")), "that nothing can be read"
            )
            proxy.accept()
            watched.wait_ready()
            daemon.wait_until(lambda: "could not" not in str(watched.json("/readyz")), "all is read again")

    assert (alive, away["ready"]) == (200, False)
    pipeline_check = away["checks"][0]
    assert (pipeline_check["verdict"], "source_unavailable" in pipeline_check["reason"]) == ("fail", True)
    assert pipeline_check["hint"]
    assert "source_unavailable" in page


def test_it_tells_names_and_neither_secrets_nor_values_nor_literals(pipeline: PipelineUnderTest):
    pipeline.settings["source"] = {"password": PASSWORD}
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, a text)",
        f"INSERT INTO items VALUES (1, $${VALUE}$$)",
        f"CREATE TABLE {quoted(HOSTILE)} (id int PRIMARY KEY, {quoted(HOSTILE)} text)",
    )
    pipeline.publish()
    with pipeline.running() as daemon:
        watched = Watched.of(daemon)
        watched.wait_ready()
        pipeline.sql(
            f"ALTER TABLE items ADD COLUMN b text DEFAULT '{LITERAL}'",
            f"ALTER TABLE items ALTER COLUMN a SET DEFAULT '{LITERAL}' || random()",
            f"INSERT INTO items VALUES (2, $${VALUE}$$, $${VALUE}$$)",
            f"UPDATE items SET a = $${VALUE} too$$",
            f"INSERT INTO {quoted(HOSTILE)} VALUES (1, $${VALUE}$$)",
            f'ALTER TABLE items ADD COLUMN "ID" text DEFAULT $${LITERAL}$$',
            f"INSERT INTO items VALUES (3, $${VALUE}$$)",
        )
        daemon.wait_until(lambda: pipeline.states()["public.items"] == "errored", "the failure")
        hostile = f"public.{HOSTILE}"
        daemon.wait_until(
            lambda: (
                "failed" in watched.page("/tables/public.items")
                and watched.value("etl_table_rows_total", table=hostile) == 1
            ),
            "the failed change",
        )
        table = watched.page("/tables/public.items")
        paths = ("/", "/status", "/readyz", "/livez", "/metrics", "/status/tables/public.items")
        said = {path: watched.page(path) for path in paths} | {"table": table}
        said["hostile"] = watched.page(table_link(hostile))

    for path, text in said.items():
        for private in (PASSWORD, VALUE, LITERAL, "geheim", "literal of"):
            assert private not in text, f"{private} on {path}"
        if text.startswith("<!doctype"):
            assert text.count("<script") == 1
    for told in ("add b text", "set the default of a", "skipped", "not a literal", "What to do:"):
        assert told in table
    assert re.search(r'<a href="/tables/public\.%3Cscript%3E[^"<>]*">public\.&lt;script', said["/"])
    assert "<h1>public.&lt;script&gt;" in said["hostile"]


def test_the_status_is_that_of_the_command_with_more(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with pipeline.running() as daemon:
        watched = Watched.of(daemon)
        watched.wait_ready()
        daemon.wait_until(lambda: pipeline.states() == {"public.items": "ready"}, "ready")
        daemon.wait_until(
            lambda: (
                watched.json("/status")["tables"]
                == json.loads(pipeline.etl("status", "--json").out)["tables"]
            ),
            "the same tables",
        )
        command, document = json.loads(pipeline.etl("status", "--json").out), watched.json("/status")

    assert command.keys() < document.keys()
    assert command["slot"].keys() == document["slot"].keys()
    for key in ("pipeline_id", "name", "epoch", "holder"):
        assert command[key] == document[key]


def test_it_listens_to_this_machine_alone_and_ends_with_zero_while_somebody_watches(
    pipeline: PipelineUnderTest,
):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with pipeline.running() as daemon:
        watched = Watched.of(daemon)
        watched.wait_ready()
        url = httpx.URL(watched.address)
        told = threading.Event()

        def watch() -> None:
            with httpx.stream("GET", f"{watched.address}/events", timeout=60) as answer:
                for line in answer.iter_lines():
                    if line.startswith("data:"):
                        told.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        daemon.wait_until(told.is_set, "an event")

        assert url.host == "127.0.0.1"
        assert watched.get("/status", host="etl.example.com").status_code == 421
        assert daemon.terminate() == 0
        watcher.join()
    with pytest.raises(httpx.ConnectError):
        watched.get("/livez")


def test_an_event_comes_when_rows_and_when_a_schema_change_arrive(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with pipeline.running() as daemon:
        watched = Watched.of(daemon)
        watched.wait_ready()
        first = watched.json("/status")["activity"]
        with httpx.stream("GET", f"{watched.address}/events", timeout=60) as answer:
            events = (json.loads(line[5:]) for line in answer.iter_lines() if line.startswith("data:"))
            next(events)
            pipeline.sql("ALTER TABLE items ADD COLUMN a int", "INSERT INTO items VALUES (1, 1)")
            moving = next(event for event in events if event["rows_per_second"] > 0)
        daemon.wait_until(lambda: "add a integer" in watched.page("/"), "the change on the page")

    assert (moving["phase"], moving["ready"]) == ("streaming", True)
    assert {entry["rows"] for entry in first.values()} == {0}


def test_an_address_that_is_taken_is_one_clear_error_before_anything_is_done(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        pipeline.settings["http"] = {"port": port}
        run = pipeline.once(check=False)

    assert run.code == 75
    assert f"127.0.0.1:{port} is taken by another process" in run.log
    assert "http.port" in run.log
    assert pipeline.query("SELECT FROM pg_replication_slots WHERE slot_name = %s", [apply_slot_name(1)]) == []


def test_without_the_section_nobody_listens(pipeline: PipelineUnderTest):
    del pipeline.settings["http"]
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.publish()

    assert pipeline.once().logged("http_serving") == []

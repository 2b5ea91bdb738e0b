"""The source goes away in every way it can; the pipeline comes back by itself, and nothing is lost or doubled."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from etl.errors import SourceUnavailableError
from etl.source.connection import connect_replication
from etl.source.replication import ReplicationStream, StreamLsns
from etl.source.slots import create_slot
from etl.testing.harness import PipelineUnderTest
from etl.testing.postgres import Database, PostgresServer
from etl.testing.proxy import TcpProxy
from etl.testing.warm import WarmEtl
from etl.testing.workload import Workload
from etl.testing.writer import Writer
from tests.chaos.steps import begin, end, wait_until_durable

pytestmark = pytest.mark.chaos

SLOT = "supabase_etl_apply_1"
#: Between two transactions of a writer: a backlog of schema changes proves nothing and takes long.
PAUSE_S = 0.1


def walsender(pipeline: PipelineUnderTest) -> int | None:
    rows = pipeline.query("SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", [SLOT])
    return rows[0][0] if rows else None


def test_a_walsender_that_is_terminated_again_and_again_is_replaced(pipeline: PipelineUnderTest):
    workload = Workload(1)
    tables = begin(pipeline, workload)
    with Writer(pipeline.database, workload, pause_s=PAUSE_S) as writer, pipeline.running() as daemon:
        last: int | None = None
        for _ in range(6):
            daemon.wait_until(lambda last=last: walsender(pipeline) not in {None, last}, "a new walsender")
            last = walsender(pipeline)
            pipeline.query("SELECT pg_terminate_backend(%s)", [last])
        writer.stop()
        wait_until_durable(pipeline, daemon, workload)
        assert daemon.terminate() == 0
        assert daemon.count_log("attempt_failed") >= 5
    end(pipeline, workload)

    pipeline.assert_settled(*tables)


def test_every_connection_of_the_pipeline_may_be_terminated(pipeline: PipelineUnderTest):
    """The connection that holds its lock, and that of its state store, among them."""
    workload = Workload(2)
    tables = begin(pipeline, workload)
    terminate = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'supabase_etl_%'"
    )
    with Writer(pipeline.database, workload, pause_s=PAUSE_S) as writer, pipeline.running() as daemon:
        for times in range(1, 5):
            daemon.wait_for_log("tables_settled", times)
            assert pipeline.query(terminate)[0][0] >= 3
        writer.stop()
        wait_until_durable(pipeline, daemon, workload)
        assert daemon.terminate() == 0
    end(pipeline, workload)

    pipeline.assert_settled(*tables)


def test_a_server_that_crashes_under_load_is_waited_for(
    own_server: PostgresServer, tmp_path: Path, warm: WarmEtl
):
    with own_server.database() as database:
        pipeline = PipelineUnderTest(database, tmp_path, warm=warm)
        load, marks = Workload(3, "load"), Workload(3, "marks", schema_changes=False)
        tables = begin(pipeline, load, marks)
        with Writer(database, load, pause_s=PAUSE_S), pipeline.running() as daemon:
            for times in range(1, 4):
                daemon.wait_for_log("tables_settled", times)
                wait_until_durable(pipeline, daemon, marks)
                own_server.restart("immediate")
            wait_until_durable(pipeline, daemon, marks)
            assert daemon.terminate() == 0
        end(pipeline, load, marks)

        pipeline.assert_settled(*tables)


@pytest.fixture
def proxied(database: Database, tmp_path: Path, warm: WarmEtl, proxy: TcpProxy) -> PipelineUnderTest:
    """A pipeline that reaches its source and its state store through the proxy only."""
    return PipelineUnderTest(database, tmp_path, {"source": {"port": proxy.port}}, warm=warm)


@pytest.mark.parametrize("fault", ["cut", "reset"])
def test_broken_connections_are_opened_again(proxied: PipelineUnderTest, proxy: TcpProxy, fault: str):
    """At random moments, of the copy and of the connecting too."""
    chance = random.Random(fault)  # noqa: S311 - no secret
    workload = Workload(4)
    tables = begin(proxied, workload)
    with Writer(proxied.database, workload, pause_s=PAUSE_S) as writer, proxied.running() as daemon:
        seen = 0
        for _ in range(8):
            # no start needs fewer connections
            seen += chance.randint(1, 4)
            daemon.wait_until(lambda seen=seen: proxy.connections >= seen, f"{seen} connections")
            getattr(proxy, fault)()
            seen = proxy.connections
        writer.stop()
        wait_until_durable(proxied, daemon, workload)
        assert daemon.terminate() == 0
    end(proxied, workload)

    proxied.assert_settled(*tables)


def test_a_source_that_refuses_connections_is_tried_until_it_accepts(
    proxied: PipelineUnderTest, proxy: TcpProxy
):
    workload = Workload(5)
    tables = begin(proxied, workload)
    with proxied.running() as daemon:
        daemon.wait_for_log("tables_settled")
        proxy.refuse()
        daemon.wait_for_log("attempt_failed", times=4)
        proxy.accept()
        wait_until_durable(proxied, daemon, workload)
        assert daemon.terminate() == 0
        assert '"error_kind":"source_unavailable"' in daemon.log
    end(proxied, workload)

    proxied.assert_settled(*tables)


def test_a_bounded_run_gives_up_on_a_source_that_stays_away(proxied: PipelineUnderTest, proxy: TcpProxy):
    begin(proxied, Workload(6))
    proxy.refuse()
    run = proxied.once(check=False)

    assert run.code == 75
    assert "hint: is the server running and reachable?" in run.log


def test_a_slow_network_changes_nothing(proxied: PipelineUnderTest, proxy: TcpProxy):
    workload = Workload(7)
    tables = begin(proxied, workload)
    proxy.delay_s = 0.005
    with Writer(proxied.database, workload, pause_s=PAUSE_S) as writer, proxied.running() as daemon:
        # over such a network a storm of ALTERs is faster than anybody who follows it: the tables settle after it
        daemon.wait_for_log("streaming_started")
        before = workload.counts["transactions"]
        daemon.wait_until(lambda: workload.counts["transactions"] > before + 5, "5 transactions")
        writer.stop()
        wait_until_durable(proxied, daemon, workload)
        assert daemon.terminate() == 0
    end(proxied, workload)

    proxied.assert_settled(*tables)


def test_a_connection_that_falls_silent_for_a_while_goes_on(proxied: PipelineUnderTest, proxy: TcpProxy):
    workload = Workload(8)
    tables = begin(proxied, workload)
    with Writer(proxied.database, workload, pause_s=PAUSE_S) as writer, proxied.running() as daemon:
        daemon.wait_for_log("tables_settled")
        proxy.freeze()
        before = workload.counts["transactions"]
        daemon.wait_until(lambda: workload.counts["transactions"] > before + 10, "10 transactions")
        proxy.thaw()
        writer.stop()
        wait_until_durable(proxied, daemon, workload)
        assert daemon.terminate() == 0
    end(proxied, workload)

    proxied.assert_settled(*tables)


def read(stream: ReplicationStream) -> None:
    """Read until something comes."""
    while stream.read(1 << 20, 0.1) is None:
        pass


def test_a_peer_that_is_dead_without_saying_so_is_given_up(database: Database, proxy: TcpProxy):
    """No FIN, no RST, no keepalive: only the time since the server last spoke tells."""
    parameters = {"host": "127.0.0.1", "port": str(proxy.port), "dbname": database.name, "user": "postgres"}
    with database.connect() as connection:
        connection.execute("CREATE PUBLICATION p")
    replication = connect_replication(parameters, "test")
    slot = create_slot(replication, parameters, "silent", temporary=True)
    stream = ReplicationStream(
        replication,
        parameters,
        slot=slot.name,
        publication="p",
        start=slot.consistent_point,
        receive_timeout_s=0.3,
    )
    lsns = StreamLsns(slot.consistent_point, slot.consistent_point)
    stream.send_status(lsns, request_reply=True)
    read(stream)
    proxy.freeze()
    stream.send_status(lsns, request_reply=True)
    with pytest.raises(
        SourceUnavailableError, match=r"sent nothing for \d+ s, keepalives included"
    ) as silence:
        read(stream)

    assert silence.value.hint == "the connection is dead or the server hangs; etl reconnects"
    stream.close()

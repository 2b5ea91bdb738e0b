"""The slot or the publication is taken away: never a silent gap, one error that says what to do, and that way out works."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from etl.testing.harness import Daemon, PipelineUnderTest, Run
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl

pytestmark = pytest.mark.chaos

SLOT = "supabase_etl_apply_1"
DROP = f"SELECT pg_drop_replication_slot('{SLOT}')"
CREATE = f"SELECT pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"


@pytest.fixture
def replicated(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """A pipeline that has done its work and stands still."""
    return replicate(pipeline)


def replicate(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipeline.publish("items")
    pipeline.once()
    pipeline.sql("INSERT INTO items VALUES (2)")
    pipeline.once()
    return pipeline


def freeze(pipeline: PipelineUnderTest, daemon: Daemon) -> None:
    """Stop the daemon in mid-stream and free its slot."""
    daemon.process.send_signal(signal.SIGSTOP)
    pipeline.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
    daemon.wait_until(
        lambda: not pipeline.query("SELECT FROM pg_replication_slots WHERE active"), "a free slot"
    )


def assert_refused(run: Run, code: int, kind: str) -> None:
    """One clear error, on the last lines, and no traceback."""
    assert run.code == code, run.log
    assert "Traceback" not in run.log
    assert run.log.count("\nerror: ") + run.log.startswith("error: ") == 1, run.log
    assert kind in run.log
    assert "hint: " in run.log


def assert_the_way_out_works(pipeline: PipelineUnderTest) -> None:
    """`etl destroy`, then replicate anew."""
    assert pipeline.etl("destroy", "--yes").code == 0
    pipeline.once()
    pipeline.assert_settled("public.items")


def advance(pipeline: PipelineUnderTest) -> None:
    pipeline.sql(f"SELECT pg_replication_slot_advance('{SLOT}', pg_current_wal_lsn())")


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda p: p.sql(DROP), f"slot {SLOT} is gone"),
        (lambda p: p.sql(DROP, CREATE), f"slot {SLOT} stands at "),
        (advance, f"slot {SLOT} stands at "),
    ],
    ids=["dropped", "recreated elsewhere", "advanced by somebody else"],
)
def test_a_slot_that_would_skip_changes_is_refused(
    replicated: PipelineUnderTest, loss: Callable[[PipelineUnderTest], None], words: str
):
    replicated.sql("INSERT INTO items VALUES (3)")
    loss(replicated)
    before = replicated.rows("public.items")

    for _ in range(2):
        assert_refused(replicated.once(check=False), 1, words)
        assert replicated.rows("public.items") == before
    assert_the_way_out_works(replicated)


def test_a_slot_of_another_database_is_refused(replicated: PipelineUnderTest):
    replicated.sql(DROP)
    with replicated.database.server.database() as other:
        with other.connect() as connection:
            connection.execute(CREATE)
        run = replicated.once(check=False)
        assert_refused(run, 78, f"slot {SLOT} is not ours: plugin pgoutput, database {other.name}")


@pytest.mark.parametrize("recreated", [False, True], ids=["dropped", "recreated"])
def test_a_slot_that_vanishes_under_a_running_pipeline_stops_it(
    replicated: PipelineUnderTest, recreated: bool
):
    with replicated.running() as daemon:
        daemon.wait_for_log("tables_settled")
        freeze(replicated, daemon)
        replicated.sql("INSERT INTO items VALUES (3)", DROP, *([CREATE] if recreated else []))
        daemon.process.send_signal(signal.SIGCONT)
        assert daemon.wait_for_exit() == 1
    assert f"slot {SLOT} " in daemon.log
    assert "error: " in daemon.log

    assert_the_way_out_works(replicated)


@pytest.mark.parametrize("running", [False, True], ids=["stopped", "running"])
def test_a_slot_that_the_server_invalidated_is_refused(
    own_server: PostgresServer, tmp_path: Path, warm: WarmEtl, running: bool
):
    def outrun() -> None:
        for _ in range(5):
            pipeline.sql("INSERT INTO items SELECT max(id) + 1 FROM items", "SELECT pg_switch_wal()")
        pipeline.sql("CHECKPOINT")

    with own_server.database() as database:
        pipeline = replicate(PipelineUnderTest(database, tmp_path, warm=warm))
        if running:
            with pipeline.running() as daemon:
                daemon.wait_for_log("tables_settled")
                freeze(pipeline, daemon)
                outrun()
                daemon.process.send_signal(signal.SIGCONT)
                assert daemon.wait_for_exit() == 1
        else:
            outrun()
        assert pipeline.query("SELECT wal_status FROM pg_replication_slots") == [("lost",)]

        assert_refused(pipeline.once(check=False), 1, f"slot {SLOT} was invalidated by the server")
        assert_the_way_out_works(pipeline)


def test_a_publication_that_is_dropped_under_a_running_pipeline_stops_it_with_the_way_out(
    replicated: PipelineUnderTest,
):
    with replicated.running() as daemon:
        daemon.wait_for_log("tables_settled")
        replicated.sql("DROP PUBLICATION etl_pub", "INSERT INTO items VALUES (3)")
        assert daemon.wait_for_exit() == 78
    assert "error: " in daemon.log
    replicated.publish("items")
    with replicated.database.connect() as connection:
        goes_on_without_it = connection.info.server_version >= 180000
    if goes_on_without_it:
        # such a server says nothing and sends nothing: we notice, and copy what it did not send
        assert "the tables are copied anew" in daemon.log
        replicated.once()
        replicated.assert_settled("public.items")
    else:
        # the WAL before the new publication cannot be decoded, however often it is tried
        assert "`etl destroy` the pipeline and replicate anew" in daemon.log
        assert_refused(replicated.once(check=False), 78, 'publication "etl_pub" does not exist')
        assert_the_way_out_works(replicated)


def test_a_publication_that_was_replaced_under_a_running_pipeline_loses_nothing(
    replicated: PipelineUnderTest,
):
    """Dropped and created again with a change between; the daemon sees none of it until it goes on."""
    with replicated.running() as daemon:
        daemon.wait_for_log("tables_settled")
        daemon.process.send_signal(signal.SIGSTOP)
        replicated.sql("DROP PUBLICATION etl_pub", "INSERT INTO items VALUES (3)")
        replicated.publish("items")
        replicated.sql("INSERT INTO items VALUES (4)")
        daemon.process.send_signal(signal.SIGCONT)
        assert daemon.wait_for_exit() == 78
    run = replicated.once(check=False)
    if run.code != 0:
        assert_refused(run, 78, 'publication "etl_pub" does not exist')
        assert replicated.etl("destroy", "--yes").code == 0
        replicated.once()

    replicated.assert_settled("public.items")

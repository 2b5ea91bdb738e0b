"""Two processes of one pipeline: one works, the other is told who does; nobody commits what is not his any more."""

from __future__ import annotations

import signal

import pytest

from etl.testing.harness import PipelineUnderTest
from etl.testing.workload import Workload
from etl.testing.writer import Writer
from tests.chaos.steps import begin, end, wait_until_durable, write

pytestmark = pytest.mark.chaos

STORE_CONNECTIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name LIKE 'supabase_etl_replicator_store:1%'"
)
LOCKED = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"


def test_a_second_process_is_told_who_runs_the_pipeline_and_changes_nothing(pipeline: PipelineUnderTest):
    workload = Workload(1)
    tables = begin(pipeline, workload)
    with Writer(pipeline.database, workload, pause_s=0.1) as writer, pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        second = pipeline.once(check=False)
        assert second.code == 75
        assert [line["error_kind"] for line in second.logged("attempt_failed")] == ["pipeline_active"] * 5
        assert f"process {daemon.process.pid} on " in second.log
        assert second.logged("streaming_started") == []
        writer.stop()
        wait_until_durable(pipeline, daemon, workload)
        assert '"error_kind":"pipeline_active"' not in daemon.log
        assert daemon.terminate() == 0
    end(pipeline, workload)

    pipeline.assert_settled(*tables)


def test_a_second_process_that_waits_takes_over_when_the_first_dies(pipeline: PipelineUnderTest):
    workload = Workload(2)
    tables = begin(pipeline, workload)
    with pipeline.running() as first, pipeline.running() as second:
        first.wait_until(
            lambda: first.count_log("streaming_started") + second.count_log("streaming_started") == 1,
            "one of them to stream",
        )
        streaming, waiting = (first, second) if first.count_log("streaming_started") else (second, first)
        waiting.wait_for_log("attempt_failed")
        write(pipeline, workload, 5)
        streaming.kill()
        wait_until_durable(pipeline, waiting, workload)
        assert waiting.terminate() == 0
    end(pipeline, workload)

    pipeline.assert_settled(*tables)


def test_a_process_that_was_stopped_while_another_took_over_commits_nothing_under_its_old_epoch(
    pipeline: PipelineUnderTest,
):
    """The first holds rows it has not written when it is stopped, and its lock is lost meanwhile."""
    workload = Workload(3)
    tables = begin(pipeline, workload)
    with pipeline.running(failpoints="stream.before_write:2=sleep(1500)") as first:
        first.wait_for_log("tables_settled")
        wait_until_durable(pipeline, first, workload)
        write(pipeline, workload, 5)
        first.process.send_signal(signal.SIGSTOP)
        pipeline.query(STORE_CONNECTIONS)
        first.wait_until(lambda: pipeline.query(LOCKED) == [(0,)], "the lock to be free")
        epoch = pipeline.query("SELECT epoch FROM etl.pipelines")
        # the file is the first one's while it lives: the second has the pipeline, and waits for the file
        second = pipeline.once(check=False)
        assert second.code == 75
        assert "destination_unavailable" in second.log
        assert pipeline.query("SELECT epoch FROM etl.pipelines") > epoch
        first.process.send_signal(signal.SIGCONT)
        first.wait_for_log("attempt_failed")
        assert '"error_kind":"pipeline_active"' in first.log
        wait_until_durable(pipeline, first, workload)
        assert first.terminate() == 0
    end(pipeline, workload)

    pipeline.assert_settled(*tables)

"""Two daemons into one lake, which no lock of a file keeps apart: the stale one commits nothing, and ends."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from etl.errors import ExitCode
from etl.testing.daemon import Daemon
from etl.testing.delta_reader import DeltaReader
from etl.testing.harness import PipelineUnderTest
from tests.chaos.delta.jvm import Jvm
from tests.chaos.delta.ledger import TABLES, Ledger, runs_of
from tests.chaos.test_two_processes import LOCKED, STORE_CONNECTIONS

pytestmark = pytest.mark.chaos

#: The server would end it by itself after wal_sender_timeout.
STREAM = "SELECT count(pg_terminate_backend(active_pid)) FROM pg_replication_slots WHERE active"


def replaced(pipeline: PipelineUnderTest, stale: Daemon) -> dict[str, int]:
    """Another process does the work of a stopped one; the number of commits of each table after that."""
    pipeline.query(STORE_CONNECTIONS)
    pipeline.query(STREAM)
    stale.wait_until(lambda: pipeline.query(LOCKED) == [(0,)], "the lock to be free")
    stale.wait_until(lambda: pipeline.query(STREAM) == [(0,)], "the slot to be free")
    pipeline.once()
    return {table: len(runs_of(pipeline, table)) for table in TABLES}


def assert_it_stops(stale: Daemon) -> None:
    """It is told that another one took over, and leaves it the pipeline."""
    assert stale.wait_for_exit() == ExitCode.UNEXPECTED
    assert "a newer process of this pipeline took over" in stale.log


def test_a_daemon_that_was_stopped_before_a_write_while_another_took_over_commits_nothing(
    pipeline: PipelineUnderTest, tmp_path: Path
):
    ledger = Ledger(pipeline)
    marker = tmp_path / "dest.before_write"
    env = {"ETL_FAILPOINTS_DIR": str(tmp_path)}
    with pipeline.running(failpoints="dest.before_write:2=hold", env=env) as first:
        first.wait_for_log("tables_settled")
        ledger.wait_until_durable(first)
        ledger.write(alter=True)
        first.wait_until(marker.exists, "the daemon to hold a write")
        first.process.send_signal(signal.SIGSTOP)
        commits = replaced(pipeline, first)
        marker.unlink()
        first.process.send_signal(signal.SIGCONT)
        assert_it_stops(first)

    assert {table: len(runs_of(pipeline, table)) for table in TABLES} == commits
    ledger.write()
    pipeline.once()
    ledger.assert_whole()


def test_a_daemon_that_was_stopped_in_the_middle_of_a_statement_while_another_took_over_commits_nothing(
    pipeline: PipelineUnderTest,
):
    ledger = Ledger(pipeline)
    with pipeline.running() as first:
        first.wait_for_log("tables_settled")
        ledger.wait_until_durable(first)
        jvm = Jvm.of(first)
        folder = DeltaReader(pipeline.warehouse).folder("public.changes")
        jvm.stop_before_commit(first, folder, ledger.write_changes)
        first.process.send_signal(signal.SIGSTOP)
        commits = replaced(pipeline, first)
        first.process.send_signal(signal.SIGCONT)
        jvm.send(signal.SIGCONT)
        assert_it_stops(first)

    assert {table: len(runs_of(pipeline, table)) for table in TABLES} == commits
    ledger.write()
    pipeline.once()
    ledger.assert_whole()

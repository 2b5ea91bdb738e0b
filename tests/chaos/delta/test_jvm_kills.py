"""kill -9 of the JVM under a daemon, which goes on with a new one; and of a daemon, whose JVM does no harm after it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl.testing.daemon import Daemon
from etl.testing.delta_reader import DeltaReader
from etl.testing.harness import PipelineUnderTest
from tests.chaos.delta.jvm import Jvm, staged_files
from tests.chaos.delta.ledger import Ledger

pytestmark = pytest.mark.chaos


class Holds:
    """Failpoints of a daemon that hold until they are released."""

    def __init__(self, directory: Path, *names: str) -> None:
        self._directory = directory / "holds"
        self._directory.mkdir()
        self.failpoints = ",".join(f"{name}=hold" for name in names)
        self.env = {"ETL_FAILPOINTS_DIR": str(self._directory)}

    @contextmanager
    def held(self, daemon: Daemon, name: str) -> Iterator[None]:
        """The daemon stands at the failpoint inside the block."""
        marker = self._directory / name
        daemon.wait_until(marker.exists, f"the daemon to stand at {name}")
        yield
        marker.unlink()


def test_a_jvm_that_is_killed_while_idle_or_while_it_merges_is_replaced_and_nothing_is_lost(
    pipeline: PipelineUnderTest,
):
    ledger = Ledger(pipeline)
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        ledger.wait_until_durable(daemon)

        Jvm.of(daemon).kill()
        ledger.wait_until_durable(daemon)
        assert daemon.count_log("spark_starting") == 2

        ledger.write()
        daemon.wait_until(lambda: bool(staged_files(pipeline.warehouse)), "a statement that reads rows")
        Jvm.of(daemon).kill()
        ledger.wait_until_durable(daemon)
        assert daemon.count_log("spark_starting") == 3
        assert daemon.terminate() == 0, daemon.log

    ledger.assert_whole()


def test_a_jvm_that_is_killed_while_it_copies_or_alters_is_replaced_and_nothing_is_lost(
    pipeline: PipelineUnderTest, tmp_path: Path
):
    ledger = Ledger(pipeline)
    holds = Holds(tmp_path, "copy.mid:2", "ddl.after_mark_applying:1", "ddl.after_step:2")
    log = DeltaReader(pipeline.warehouse).folder("public.changes") / "_delta_log"
    with pipeline.running(failpoints=holds.failpoints, env=holds.env) as daemon:
        with holds.held(daemon, "copy.mid"):
            Jvm.of(daemon).kill()
        daemon.wait_for_log("tables_settled")

        ledger.write(alter=True)
        with holds.held(daemon, "ddl.after_mark_applying"):
            Jvm.of(daemon).kill()
        with holds.held(daemon, "ddl.after_step"):
            Jvm.of(daemon).kill()
        ledger.wait_until_durable(daemon)

        # the commit is there, its answer may not have arrived
        before = len(list(log.glob("*.json")))
        ledger.write(alter=True)
        daemon.wait_until(lambda: len(list(log.glob("*.json"))) > before, "a commit")
        Jvm.of(daemon).kill()
        ledger.wait_until_durable(daemon)
        assert daemon.count_log("spark_starting") == 5
        assert daemon.terminate() == 0, daemon.log

    ledger.assert_whole()


def test_the_jvm_of_a_killed_daemon_ends_by_itself_whatever_it_does(pipeline: PipelineUnderTest):
    ledger = Ledger(pipeline)
    with pipeline.running() as idle:
        idle.wait_for_log("tables_settled")
        ledger.wait_until_durable(idle)
        jvm = Jvm.of(idle)
        idle.kill()
        idle.wait_until(lambda: not jvm.runs, "the JVM to end", alive=False)
    with pipeline.running() as busy:
        busy.wait_for_log("tables_settled")
        ledger.write()
        busy.wait_until(lambda: bool(staged_files(pipeline.warehouse)), "a statement that reads rows")
        jvm = Jvm.of(busy)
        busy.kill()
        busy.wait_until(lambda: not jvm.runs, "the JVM to end", alive=False)
    pipeline.once()

    ledger.assert_whole()


WRITES: dict[str, Callable[[Ledger], None]] = {
    # one table and one statement
    "public.changes": Ledger.write_changes,
    # several tables: the one that is watched may be written beside another
    "public.bare": Ledger.write,
    "public.items": Ledger.write,
}


def caught(pipeline: PipelineUnderTest, daemon: Daemon, ledger: Ledger, table: str) -> Jvm:
    """The daemon's JVM, stopped where it has written rows of the table and not committed them."""
    daemon.wait_for_log("tables_settled")
    ledger.wait_until_durable(daemon)
    jvm = Jvm.of(daemon)
    folder = DeltaReader(pipeline.warehouse).folder(table)
    jvm.stop_before_commit(daemon, folder, lambda: WRITES[table](ledger))
    return jvm


def let_it_end(jvm: Jvm, daemon: Daemon) -> None:
    """Let a JVM without a daemon end its statement."""
    jvm.send(signal.SIGCONT)
    daemon.wait_until(lambda: not jvm.works_for_the_dead, "the JVM to end its statement", alive=False)
    assert jvm.runs


def test_a_statement_of_a_killed_daemon_that_its_jvm_ends_after_the_next_run_changes_nothing(
    pipeline: PipelineUnderTest,
):
    """The JVM commits too late: the next run has done the same work already."""
    ledger = Ledger(pipeline)
    with pipeline.running() as daemon:
        jvm = caught(pipeline, daemon, ledger, "public.changes")
        with jvm.outliving(daemon):
            daemon.kill()
            pipeline.once()
            let_it_end(jvm, daemon)
    ledger.assert_whole()
    pipeline.once()

    ledger.assert_whole()


@pytest.mark.parametrize("table", WRITES)
def test_a_statement_of_a_killed_daemon_that_its_jvm_ends_before_the_next_run_writes_is_not_repeated(
    pipeline: PipelineUnderTest, table: str, tmp_path: Path
):
    """The JVM commits after the next run has taken over and read how far the tables are."""
    ledger = Ledger(pipeline)
    holds = Holds(tmp_path, "dest.before_write:1")
    with pipeline.running() as daemon:
        jvm = caught(pipeline, daemon, ledger, table)
        with jvm.outliving(daemon):
            daemon.kill()
            with pipeline.running(failpoints=holds.failpoints, env=holds.env) as following:
                with holds.held(following, "dest.before_write"):
                    let_it_end(jvm, daemon)
                ledger.wait_until_durable(following)
                assert following.terminate() == 0, following.log

    ledger.assert_whole()

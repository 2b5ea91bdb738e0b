"""kill -9 at every failpoint there is, each while recovering from the one before: nothing is lost or doubled."""

from __future__ import annotations

import signal

import pytest

from etl.telemetry.failpoints import FAILPOINTS
from etl.testing.harness import PipelineUnderTest
from tests.chaos.delta.ledger import TABLES, Ledger

pytestmark = pytest.mark.chaos

KILLED = -signal.SIGKILL
COPYING = (
    "start.after_slot_create",
    "copy.after_snapshot",
    "copy.mid",
    "copy.before_range_recorded",
    "copy.before_finish",
    "copy.after_finish",
    "copy.before_state_finished",
)
#: While the tables are paused, and once they go on.
KEEPING = ("backlog.before_sync", "backlog.after_sync")
CATCHING_UP = (
    "handoff.before_catchup",
    "handoff.mid",
    "handoff.before_live",
    "handoff.after_live",
    "handoff.before_backlog_dropped",
)
#: In the order in which a batch passes them, and before which of them the schema changes: what is killed early waits.
STREAMING = {
    "schema.before_store": True,
    "schema.after_store": False,
    "stream.before_write": False,
    "dest.before_write": False,
    "dest.before_commit": False,
    "dest.mid_write": False,
    "dest.after_commit": False,
    "ddl.before_mark_applying": False,
    "ddl.after_mark_applying": False,
    "ddl.after_step": True,
    "ddl.after_last_step": False,
    "ddl.after_commit": False,
    "ddl.after_applied": False,
    "stream.after_write": False,
    "stream.after_progress": False,
    "stream.after_ack": False,
}


def test_every_failpoint_is_killed_at():
    assert {*COPYING, *STREAMING, *KEEPING, *CATCHING_UP} == FAILPOINTS


def test_a_copy_that_is_killed_at_every_point_is_mended_by_the_next_start(pipeline: PipelineUnderTest):
    ledger = Ledger(pipeline)
    for point in COPYING:
        ledger.write()
        run = pipeline.once(failpoints=f"{point}=kill", check=False)
        assert run.code == KILLED, (point, run.log)
    pipeline.once()

    ledger.assert_whole()


@pytest.mark.timeout(3600)
def test_a_stream_that_is_killed_at_every_point_is_mended_by_the_next_start(pipeline: PipelineUnderTest):
    ledger = Ledger(pipeline)
    pipeline.once()
    for point, alter in STREAMING.items():
        ledger.write(alter=alter)
        run = pipeline.once(failpoints=f"{point}=kill", check=False)
        assert run.code == KILLED, (point, run.log)
    pipeline.once()

    ledger.assert_whole()


@pytest.mark.timeout(3600)
def test_tables_that_are_killed_at_every_point_while_they_are_kept_or_catch_up_are_mended_by_the_next_start(
    pipeline: PipelineUnderTest,
):
    ledger = Ledger(pipeline)
    pipeline.once()
    assert pipeline.etl("tables", "pause", *TABLES).code == 0
    for point in KEEPING:
        ledger.write()
        run = pipeline.once(failpoints=f"{point}=kill", check=False)
        assert run.code == KILLED, (point, run.log)
    ledger.write(alter=True)
    assert pipeline.etl("tables", "resume", *TABLES).code == 0
    for point in CATCHING_UP:
        ledger.write()
        run = pipeline.once(failpoints=f"{point}=kill", check=False)
        assert run.code == KILLED, (point, run.log)
    pipeline.once()

    ledger.assert_whole()

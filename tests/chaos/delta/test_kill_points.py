"""kill -9 at every failpoint there is, each while recovering from the one before: nothing is lost or doubled."""

from __future__ import annotations

import signal

import pytest

from etl.telemetry.failpoints import FAILPOINTS
from etl.testing.harness import PipelineUnderTest
from tests.chaos.delta.ledger import Ledger

pytestmark = pytest.mark.chaos

KILLED = -signal.SIGKILL
COPYING = (
    "start.after_slot_create",
    "copy.after_snapshot",
    "copy.mid",
    "copy.before_finish",
    "copy.after_finish",
)
STREAMING = sorted(FAILPOINTS.difference(COPYING))


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
    for point in STREAMING:
        ledger.write(alter=point.startswith(("ddl.", "schema.")))
        run = pipeline.once(failpoints=f"{point}=kill", check=False)
        assert run.code == KILLED, (point, run.log)
    pipeline.once()

    ledger.assert_whole()

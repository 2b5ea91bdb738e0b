"""kill -9 at every failpoint there is: the next start finishes the work, and nothing is lost, doubled or left behind."""

from __future__ import annotations

import signal
import zlib

import pytest

from etl.telemetry.failpoints import FAILPOINTS
from etl.testing.harness import PipelineUnderTest
from etl.testing.workload import Workload
from tests.chaos.steps import begin, write

pytestmark = pytest.mark.chaos

KILLED = -signal.SIGKILL
#: Twice in a row, the second time while recovering from the first; then later in a run.
FIRST_FIRST_THIRD = ("", "", ":3")
#: Passed once a run, or a batch, and all that waits for a bounded run is one batch.
FIRST_FIRST = ("", "")
PASSES = {
    # the slot is there the next time
    "start.after_slot_create": ("",),
    "copy.after_snapshot": FIRST_FIRST,
    "backlog.before_sync": FIRST_FIRST,
    "backlog.after_sync": FIRST_FIRST,
    "schema.before_store": FIRST_FIRST,
    "schema.after_store": FIRST_FIRST,
    "stream.before_write": FIRST_FIRST,
    "stream.after_write": FIRST_FIRST,
    "stream.after_progress": FIRST_FIRST,
    "stream.after_ack": FIRST_FIRST,
}


#: Passed where changes are kept, and where what was kept is caught up with.
KEPT = ("backlog.", "handoff.")


@pytest.mark.parametrize("point", sorted(p for p in FAILPOINTS if not p.startswith(KEPT)))
def test_a_kill_at_any_point_is_mended_by_the_next_start(pipeline: PipelineUnderTest, point: str):
    workload = Workload(zlib.crc32(point.encode()))
    tables = begin(pipeline, workload)
    if not point.startswith(("start.", "copy.")):
        pipeline.once()
    for nth in PASSES.get(point, FIRST_FIRST_THIRD):
        write(pipeline, workload, 3, alters=12 if nth == ":3" else 2)
        run = pipeline.once(failpoints=f"{point}{nth}=kill", check=False)
        assert run.code == KILLED, run.log
    pipeline.once()

    pipeline.assert_settled(*tables)


@pytest.mark.parametrize("point", sorted(p for p in FAILPOINTS if p.startswith(KEPT)))
def test_a_kill_while_changes_are_kept_or_caught_up_with_is_mended_by_the_next_start(
    pipeline: PipelineUnderTest, point: str
):
    workload = Workload(zlib.crc32(point.encode()))
    tables = begin(pipeline, workload)
    pipeline.once()
    assert pipeline.etl("tables", "pause", *tables).code == 0
    if point.startswith("handoff."):
        write(pipeline, workload, 5, alters=3)
        pipeline.once()
        assert pipeline.etl("tables", "resume", *tables).code == 0
    for nth in PASSES.get(point, FIRST_FIRST_THIRD):
        write(pipeline, workload, 3, alters=2)
        run = pipeline.once(failpoints=f"{point}{nth}=kill", check=False)
        assert run.code == KILLED, run.log
    if point.startswith("backlog."):
        assert pipeline.etl("tables", "resume", *tables).code == 0
    pipeline.once()

    pipeline.assert_settled(*tables)


@pytest.mark.parametrize("point", sorted(p for p in FAILPOINTS if p.startswith("stream.")))
def test_a_kill_in_the_middle_of_a_running_stream_is_mended_by_the_next_start(
    pipeline: PipelineUnderTest, point: str
):
    workload = Workload(zlib.crc32(point.encode()))
    tables = begin(pipeline, workload)
    with pipeline.running(failpoints=f"{point}:4=kill") as daemon:
        # the position moves with the first tables already
        daemon.wait_until(
            lambda: daemon.count_log("tables_settled") > 0 or daemon.process.poll() is not None,
            "the stream of all tables, or the kill",
            alive=False,
        )
        while daemon.process.poll() is None:
            before = pipeline.written()
            write(pipeline, workload, 1)
            daemon.wait_until(
                lambda before=before: pipeline.progress() > before or daemon.process.poll() is not None,
                "the next batch, or the kill",
                alive=False,
            )
    assert daemon.process.returncode == KILLED
    pipeline.once()

    pipeline.assert_settled(*tables)

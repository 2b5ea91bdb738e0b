"""No space left where the destination writes: nothing is acknowledged that is not durable, and it goes on alone."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from etl.lsn import Lsn
from etl.testing.harness import Daemon, PipelineUnderTest
from etl.testing.postgres import Database
from etl.testing.warm import WarmEtl

pytestmark = pytest.mark.chaos

LIMIT = 4 << 20
MOUNT, UMOUNT = "/bin/mount", "/bin/umount"
#: Rows that do not compress; a batch of them is about 600 kB.
BATCH = """
INSERT INTO items SELECT {first} + g, {batch}, (SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 600) WHERE g > 0)
  FROM generate_series(1, 30) g"""


class SmallFiles:
    """A limit on the size of the daemon's files (EFBIG), for whoever may not mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, daemon: Daemon) -> None:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (LIMIT, resource.RLIM_INFINITY))

    def free(self, daemon: Daemon) -> None:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        # the limit of a process that was killed is gone with it
        with suppress(ProcessLookupError):
            resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, unlimited)


class SmallDisk:
    """A file system that is full (ENOSPC)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, _: Daemon) -> None:
        used = os.statvfs(self.folder)
        size = (used.f_blocks - used.f_bfree) * used.f_frsize + LIMIT
        self._mount("remount,", size)

    def free(self, _: Daemon) -> None:
        self._mount("remount,", 50 * LIMIT)

    @contextmanager
    def mounted(self) -> Iterator[SmallDisk]:
        self._mount("", 50 * LIMIT)
        try:
            yield self
        finally:
            subprocess.run([UMOUNT, "--lazy", self.folder], check=True)

    def _mount(self, how: str, size: int) -> None:
        options = f"{how}size={size}"
        subprocess.run([MOUNT, "-t", "tmpfs", "-o", options, "none", self.folder], check=True)


def may_mount() -> bool:
    """Root may; root of a container without the capability may not."""
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    (effective,) = (line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> 21 & 1)


@pytest.fixture(params=["files", "disk"] if may_mount() else ["files"])
def space(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallFiles | SmallDisk]:
    """Where the destination is, and how it runs full."""
    folder = tmp_path / "space"
    folder.mkdir()
    if request.param == "files":
        yield SmallFiles(folder)
        return
    with SmallDisk(folder).mounted() as disk:
        yield disk


@pytest.fixture
def pipeline(
    database: Database, tmp_path: Path, warm: WarmEtl, space: SmallFiles | SmallDisk
) -> PipelineUnderTest:
    pipeline = PipelineUnderTest(
        database, tmp_path, {"destination": {"path": str(space.folder / "warehouse.duckdb")}}, warm=warm
    )
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY, batch int, body text)")
    pipeline.publish("items")
    return pipeline


def fill_until_it_fails(pipeline: PipelineUnderTest, daemon: Daemon) -> dict[int, Lsn]:
    """Write batches until the daemon says that it cannot; batch → a position at or after its commit."""
    written: dict[int, Lsn] = {}
    while not daemon.count_log("attempt_failed"):
        batch = len(written)
        pipeline.sql(BATCH.format(first=1000 * batch, batch=batch))
        written[batch] = pipeline.written()
        daemon.wait_until(
            lambda batch=batch: (
                pipeline.progress() >= written.get(batch - 1, Lsn(0))
                or daemon.count_log("attempt_failed") > 0
            ),
            "the batch before to be durable, or the disk to be full",
        )
    return written


def assert_says_so(daemon: Daemon, pipeline: PipelineUnderTest) -> None:
    daemon.wait_for_log("attempt_failed", times=3)
    assert '"error_kind":"destination_full"' in daemon.log
    assert f"no space left to write {pipeline.warehouse}" in daemon.log
    assert "nothing undurable was acknowledged" in daemon.log


def test_a_full_disk_is_waited_out(pipeline: PipelineUnderTest, space: SmallFiles | SmallDisk):
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        space.fill(daemon)
        written = fill_until_it_fails(pipeline, daemon)
        assert_says_so(daemon, pipeline)
        space.free(daemon)
        daemon.wait_until(lambda: pipeline.progress() >= written[max(written) - 1], "all to be durable")
        assert daemon.terminate() == 0
    pipeline.once()

    pipeline.assert_settled("public.items")


def test_a_full_disk_loses_nothing_that_was_acknowledged_when_the_process_is_killed_as_well(
    pipeline: PipelineUnderTest, space: SmallFiles | SmallDisk
):
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        space.fill(daemon)
        written = fill_until_it_fails(pipeline, daemon)
        daemon.kill()
        acknowledged = {batch for batch, lsn in written.items() if lsn <= pipeline.confirmed()}
        space.free(daemon)
    durable = dict(pipeline.destination("SELECT batch, count(*) FROM public.items GROUP BY batch"))

    assert acknowledged
    assert acknowledged <= set(durable)
    assert set(durable.values()) == {30}
    pipeline.once()
    pipeline.assert_settled("public.items")


def test_a_disk_that_is_full_during_the_copy_is_waited_out(
    pipeline: PipelineUnderTest, space: SmallFiles | SmallDisk
):
    for batch in range(20):
        pipeline.sql(BATCH.format(first=1000 * batch, batch=batch))
    with pipeline.running(failpoints="start.after_slot_create=sleep(300)") as daemon:
        daemon.wait_for_log("ddl_trigger_installed")
        space.fill(daemon)
        assert_says_so(daemon, pipeline)
        space.free(daemon)
        daemon.wait_for_log("tables_settled")
        assert daemon.terminate() == 0
    pipeline.once()

    pipeline.assert_settled("public.items")


def test_a_full_disk_below_a_backlog_holds_the_slot_and_goes_on_when_there_is_space(
    pipeline: PipelineUnderTest, space: SmallFiles | SmallDisk
):
    """The destination has space; what is kept of a paused table has not."""
    pipeline.settings = {"backlog": {"path": str(space.folder / "backlog")}}
    pipeline.once()
    assert pipeline.etl("tables", "pause", "public.items").code == 0
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        space.fill(daemon)
        written = fill_until_it_fails(pipeline, daemon)
        assert "no space left to keep changes" in daemon.log
        assert pipeline.confirmed() < written[len(written) - 1]
        space.free(daemon)
        daemon.wait_until(lambda: pipeline.progress() >= written[len(written) - 1], "all of it to be kept")
    assert pipeline.etl("tables", "resume", "public.items").code == 0
    pipeline.once()

    pipeline.assert_settled("public.items")

"""Kills and stops at seeded random moments while a writer goes on changing rows and schemas.

``make chaos`` runs these for long: `ETL_CHAOS_KILLS` says how many, `ETL_CHAOS_SEED` which moments.
"""

from __future__ import annotations

import os
import random
import time

import pytest

from etl.testing.harness import Daemon, PipelineUnderTest
from etl.testing.workload import Workload
from etl.testing.writer import Writer
from tests.chaos.steps import begin, end

pytestmark = pytest.mark.chaos

KILLS = int(os.environ.get("ETL_CHAOS_KILLS", "8"))
SEEDS = [int(os.environ.get("ETL_CHAOS_SEED", "20261130"))]
SECONDS_A_KILL = 60
#: How many of the moments come after the stream has started.
STREAMING = 0.7


def live(daemon: Daemon, chance: random.Random) -> None:
    """Let the daemon work up to a random moment, of its start or of its stream; it must not end by itself."""
    if chance.random() < STREAMING:
        daemon.wait_for_log("tables_settled")
    else:
        # by then it knows what SIGTERM means
        daemon.wait_until(lambda: daemon.log != "", "the first line of its log")
    seconds = chance.uniform(0, 1.5)
    until = time.monotonic() + seconds
    daemon.wait_until(lambda: time.monotonic() >= until, f"{seconds:.1f} s of work")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(SECONDS_A_KILL * (KILLS + 2))
def test_kills_at_random_moments_under_load_lose_and_double_nothing(pipeline: PipelineUnderTest, seed: int):
    """From the copy on, with two writers whose transactions interleave."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    workloads = [Workload(seed, "a"), Workload(seed + 1, "b")]
    tables = begin(pipeline, *workloads)
    with (
        Writer(pipeline.database, workloads[0], pause_s=0.1),
        Writer(pipeline.database, workloads[1], pause_s=0.1),
    ):
        for _ in range(KILLS):
            with pipeline.running() as daemon:
                live(daemon, chance)
                daemon.kill()
    end(pipeline, *workloads)

    pipeline.assert_settled(*tables)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.timeout(SECONDS_A_KILL * (KILLS + 2))
def test_sigterm_at_a_random_moment_ends_with_0_in_time_and_loses_nothing(
    pipeline: PipelineUnderTest, seed: int
):
    chance = random.Random(seed + 2)  # noqa: S311 - no secret
    workload = Workload(seed + 2)
    tables = begin(pipeline, workload)
    with Writer(pipeline.database, workload, pause_s=0.1):
        for _ in range(max(KILLS // 2, 4)):
            with pipeline.running() as daemon:
                live(daemon, chance)
                assert daemon.terminate() == 0, daemon.log
                # it says so when the end does not come within shutdown_timeout_s
                assert daemon.count_log("shutdown_deadline_passed") == 0
    end(pipeline, workload)

    pipeline.assert_settled(*tables)

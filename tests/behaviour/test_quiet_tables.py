"""A published table that nobody writes holds back no WAL, whatever else the server is busy with."""

from __future__ import annotations

import pytest

from etl.testing.harness import PipelineUnderTest
from tests.behaviour.test_live_membership import streaming

#: Enough for the position to be worth a record (`etl.pipeline.acknowledger.IDLE_STEP_BYTES`), many times over.
BUSY = "INSERT INTO busy SELECT g, repeat('x', 1000) FROM generate_series(1, 1000) g"


@pytest.fixture
def quiet(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.sql(
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO quiet VALUES (1)",
        "CREATE TABLE busy (id int, t text)",
    )
    pipeline.publish("quiet")
    return pipeline


def test_the_slot_follows_while_only_unpublished_tables_are_written(quiet: PipelineUnderTest):
    with streaming(quiet) as daemon:
        for _ in range(3):
            start = quiet.written()
            quiet.sql(BUSY)
            daemon.wait_until(lambda start=start: quiet.confirmed() > start, "the slot to follow")


def test_the_slot_follows_while_only_another_database_is_written(quiet: PipelineUnderTest):
    with quiet.database.server.database() as other, streaming(quiet) as daemon, other.connect() as connection:
        connection.execute("CREATE TABLE busy (id int, t text)")
        for _ in range(3):
            start = quiet.written()
            connection.execute(BUSY)
            daemon.wait_until(lambda start=start: quiet.confirmed() > start, "the slot to follow")


def test_a_bounded_run_takes_the_slot_to_the_end_of_the_log(quiet: PipelineUnderTest):
    quiet.once()
    quiet.sql(BUSY)
    end = quiet.written()
    quiet.once()

    assert quiet.confirmed() >= end

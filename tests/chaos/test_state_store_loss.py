"""The state store is lost or comes back from an old backup: everything is copied anew, or refused; never a silent gap."""

from __future__ import annotations

import pytest

from etl.testing.harness import PipelineUnderTest
from etl.testing.workload import Workload
from tests.chaos.steps import begin, end, wait_until_durable, write

pytestmark = pytest.mark.chaos


def test_a_pipeline_whose_state_is_lost_copies_everything_anew(pipeline: PipelineUnderTest):
    workload = Workload(1)
    tables = begin(pipeline, workload)
    pipeline.once()
    write(pipeline, workload, 10)
    pipeline.once()
    write(pipeline, workload, 5)
    pipeline.sql("DROP SCHEMA etl CASCADE")
    write(pipeline, workload, 5)
    run = pipeline.once()

    assert len(run.logged("table_copied")) == len(tables)
    end(pipeline, workload)
    pipeline.assert_settled(*tables)


def test_a_pipeline_whose_state_is_lost_while_it_runs_stops_and_copies_everything_anew(
    pipeline: PipelineUnderTest,
):
    workload = Workload(2)
    tables = begin(pipeline, workload)
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        wait_until_durable(pipeline, daemon, workload)
        pipeline.sql("DROP SCHEMA etl CASCADE")
        write(pipeline, workload, 2)
        assert daemon.wait_for_exit() == 1
    assert "error: state store " in daemon.log
    assert "hint: " in daemon.log
    assert "Traceback" not in daemon.log
    end(pipeline, workload)

    pipeline.assert_settled(*tables)


def test_a_state_store_from_an_old_backup_is_refused(pipeline: PipelineUnderTest):
    """The slot has let go of the WAL that the old position asks for."""
    workload = Workload(3)
    tables = begin(pipeline, workload)
    pipeline.once()
    write(pipeline, workload, 5)
    pipeline.sql("CREATE TABLE backup AS SELECT flush_lsn FROM etl.replication_progress")
    pipeline.once()
    write(pipeline, workload, 5)
    pipeline.once()
    pipeline.sql("UPDATE etl.replication_progress SET flush_lsn = (SELECT flush_lsn FROM backup)")
    run = pipeline.once(check=False)

    assert run.code == 1
    assert "or the state store is an old copy" in run.log
    assert pipeline.etl("destroy", "--yes").code == 0
    end(pipeline, workload)
    pipeline.assert_settled(*tables)

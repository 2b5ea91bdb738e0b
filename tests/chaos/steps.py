"""What most of these tests begin and end with."""

from __future__ import annotations

from etl.testing.harness import Daemon, PipelineUnderTest
from etl.testing.workload import Workload


def begin(pipeline: PipelineUnderTest, *workloads: Workload) -> list[str]:
    """Create and publish the workloads' tables; their names."""
    with pipeline.database.connect() as connection:
        for workload in workloads:
            workload.create(connection)
    tables = [table for workload in workloads for table in workload.tables]
    pipeline.publish(*tables)
    return tables


def write(pipeline: PipelineUnderTest, workload: Workload, transactions: int, *, alters: int = 0) -> None:
    """So many transactions, with so many ALTER TABLEs in them or more.

    At the end a row for each table, without which its last schema change is not seen.
    """
    wanted = workload.counts["ALTER TABLE"] + alters
    with pipeline.database.connect() as connection:
        workload.run(connection, transactions)
        while workload.counts["ALTER TABLE"] < wanted:
            workload.step(connection)
        workload.finish(connection)


def wait_until_durable(pipeline: PipelineUnderTest, daemon: Daemon, workload: Workload) -> None:
    """Wait until all that was committed before is durable at the destination, and recorded.

    Nobody else may be writing `workload` meanwhile.
    """
    before = pipeline.written()
    write(pipeline, workload, 0)
    daemon.wait_until(lambda: pipeline.progress() > before, f"progress beyond {before}")


def end(pipeline: PipelineUnderTest, *workloads: Workload) -> None:
    """The last rows, and a run that brings everything over."""
    for workload in workloads:
        write(pipeline, workload, 0)
    pipeline.once()

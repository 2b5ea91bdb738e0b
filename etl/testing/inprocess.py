"""A pipeline in a thread of this process, with a DuckDB destination that refuses the rows of one table when it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from etl.config.loader import load_config
from etl.destinations.base import TableChanges
from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.destination import DuckDBDestination
from etl.errors import DestinationTableError
from etl.pipeline.context import PipelineContext
from etl.pipeline.supervisor import Supervisor
from etl.store.postgres import PostgresStore
from etl.telemetry.metrics import Metrics
from etl.testing.harness import PipelineUnderTest


class Poisoned(DuckDBDestination):
    """`poisoned` is the destination's name of the table whose rows it refuses; `refused` counts how often."""

    def __init__(self, path: Path) -> None:
        super().__init__(DuckDBSettings(path))
        self.poisoned: str | None = None
        self.refused = 0

    def write_changes(self, writes: Sequence[TableChanges]) -> Mapping[int, int]:
        """As the real one, unless the poisoned table is among them."""
        for write in writes:
            if write.table.name == self.poisoned:
                self.refused += 1
                raise DestinationTableError("poisoned", hint="wait", table=write.table.name)
        return super().write_changes(writes)


@contextmanager
def running_here(pipeline: PipelineUnderTest) -> Iterator[Poisoned]:
    """Run the pipeline until the block ends; an error that ended it before is raised then."""
    if pipeline.etl("init", "--yes").code != 0:
        raise RuntimeError("etl init failed")
    config = load_config(pipeline.file)
    destination = Poisoned(pipeline.warehouse)
    context = PipelineContext(
        config=config,
        parameters=config.source.parameters(),
        store=PostgresStore(config.state_connection.parameters(), config.pipeline.id),
        destination=destination,
        metrics=Metrics("test"),
    )
    failures: list[BaseException] = []

    def work() -> None:
        try:
            Supervisor(context, prepare_source=lambda: None).run()
        except BaseException as error:  # noqa: BLE001 -- raised by the caller's thread
            failures.append(error)

    thread = threading.Thread(target=work, name="pipeline")
    thread.start()
    try:
        yield destination
    finally:
        context.stop.set()
        thread.join()
    if failures:
        raise failures[0]

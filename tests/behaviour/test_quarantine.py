"""A table that fails stops alone: its changes are kept, the slot moves on, and it heals without a new copy."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl.config.loader import load_config
from etl.destinations.base import TableChanges
from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.destination import DuckDBDestination
from etl.errors import DestinationTableError
from etl.pipeline.context import PipelineContext
from etl.pipeline.supervisor import Supervisor
from etl.store.postgres import PostgresStore
from etl.telemetry.metrics import Metrics
from etl.testing.daemon import wait_until
from etl.testing.harness import PipelineUnderTest

TABLES = ("public.a", "public.b", "public.c")


class Poisoned(DuckDBDestination):
    """Refuses the rows of one table for as long as it is told to."""

    def __init__(self, path: Path) -> None:
        super().__init__(DuckDBSettings(path))
        self.poisoned: str | None = None
        self.refused = 0

    def write_changes(self, writes: Sequence[TableChanges]) -> Mapping[int, int]:
        for write in writes:
            if write.table.name == self.poisoned:
                self.refused += 1
                raise DestinationTableError("poisoned", hint="wait", table=write.table.name)
        return super().write_changes(writes)


@contextmanager
def running(pipeline: PipelineUnderTest) -> Iterator[Poisoned]:
    """The pipeline in a thread of this process."""
    assert pipeline.etl("init", "--yes").code == 0
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
        except BaseException as error:  # noqa: BLE001 -- told below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield destination
    finally:
        context.stop.set()
        thread.join()
    assert failures == []


@pytest.fixture
def three(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    for name in "abc":
        pipeline.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY, t text)", f"INSERT INTO {name} VALUES (0, 'copied')"
        )
    pipeline.publish("a", "b", "c")
    return pipeline


def load(pipeline: PipelineUnderTest, start: int, count: int) -> None:
    for number in range(start, start + count):
        pipeline.transaction(
            *(f"INSERT INTO {name} VALUES ({number}, 'x')" for name in "abc"),
            f"UPDATE b SET t = 'y{number}' WHERE id = {number // 2}",
        )


def wait_states(pipeline: PipelineUnderTest, **states: str) -> None:
    wanted = {f"public.{name}": state for name, state in states.items()}
    wait_until(lambda: pipeline.states() == wanted, f"{wanted}", said=lambda: str(pipeline.states()))


def test_the_others_and_the_slot_go_on_and_the_table_heals_by_itself(three: PipelineUnderTest):
    with running(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        three.sql("ALTER TABLE b ADD COLUMN n int", "UPDATE b SET n = id WHERE id < 5")
        load(three, 21, 20)
        end = three.written()
        wait_until(lambda: three.states()["public.b"] == "errored", "the failure")
        wait_until(lambda: three.confirmed() >= end, "the slot to move beyond the poisoned rows")
        wait_until(lambda: destination.refused > 2, "retries")
        destination.poisoned = None
        wait_states(three, a="ready", b="ready", c="ready")
        load(three, 41, 5)
        end = three.written()
        wait_until(lambda: three.progress() >= end, "the rest")

    three.assert_settled(*TABLES)


def test_a_failed_table_goes_on_from_its_backlog_after_a_restart(three: PipelineUnderTest):
    with running(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        end = three.written()
        wait_until(lambda: three.confirmed() >= end, "the slot to move beyond the poisoned rows")
    load(three, 21, 5)
    run = three.once()

    assert run.logged("table_copied") == []
    three.assert_settled(*TABLES)


def test_a_backlog_that_is_lost_costs_a_new_copy_and_no_row(three: PipelineUnderTest):
    with running(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 20)
        end = three.written()
        wait_until(lambda: three.confirmed() >= end, "the slot to move beyond the poisoned rows")
    for path in sorted((three.directory / "backlog").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    run = three.once()

    assert [line["table"] for line in run.logged("backlog_lost")] == ["public.b"]
    three.assert_settled(*TABLES)


def test_a_backlog_beyond_its_bound_is_given_up_for_a_new_copy(three: PipelineUnderTest):
    three.settings["backlog"] = {"max_bytes": 4096}
    with running(three) as destination:
        wait_states(three, a="ready", b="ready", c="ready")
        destination.poisoned = "public.b"
        load(three, 1, 200)
        wait_until(lambda: three.states()["public.b"] == "errored", "the failure")
        destination.poisoned = None
        wait_states(three, a="ready", b="ready", c="ready")

    three.assert_settled(*TABLES)

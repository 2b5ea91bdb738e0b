"""What the supervisor does about an error: the error says it, and a stop that was asked for is never a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from etl.config.models import PipelineConfig
from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.destination import DuckDBDestination
from etl.errors import (
    ConfigError,
    DestinationFencedError,
    DestinationUnavailableError,
    EtlError,
    PipelineActiveError,
    SlotLostError,
    SourceUnavailableError,
    StoreError,
)
from etl.lsn import Lsn
from etl.pipeline.context import PipelineContext
from etl.pipeline.supervisor import Supervisor
from etl.store.memory import MemoryDatabase, MemoryStore
from etl.telemetry.metric_names import RETRIES
from etl.telemetry.metrics import Metrics

AWAY = SourceUnavailableError("the source is away", hint="wait")
ENDED = SlotLostError("the end of this test", hint="none")


class Recorded(DuckDBDestination):
    """A DuckDB destination that remembers how it was opened and closed."""

    def __init__(self, path: Path, *failures: EtlError) -> None:
        super().__init__(DuckDBSettings(path))
        self.failures = list(failures)
        self.calls: list[str] = []
        self.epochs: list[int] = []

    def open(self, pipeline_id: int, epoch: int) -> None:
        self.calls.append("open")
        self.epochs.append(epoch)
        if self.failures:
            raise self.failures.pop(0)
        super().open(pipeline_id, epoch)

    def close(self) -> None:
        self.calls.append("close")
        super().close()


class World:
    """A supervisor whose source answers as scripted: an error each attempt, the last one for ever."""

    def __init__(self, directory: Path, **retry: Any) -> None:
        self.path = directory / "w.duckdb"
        self.config = PipelineConfig.model_validate(
            {
                "pipeline": {"id": 1, "publication": "p"},
                "destination": {"type": "duckdb", "path": str(self.path)},
                "retry": {"initial_delay_ms": 1, "max_delay_ms": 2, **retry},
            }
        )
        self.database = MemoryDatabase()
        self.destination = Recorded(self.path)
        self.attempts = 0
        self.on_attempt: Callable[[int], None] = lambda _: None

    def run(self, *answers: EtlError | None, bounded: bool = False) -> PipelineContext:
        self.context = PipelineContext(
            config=self.config,
            # nobody listens on port 1
            parameters={"host": "127.0.0.1", "port": "1"},
            store=MemoryStore(1, self.database),
            destination=self.destination,
            metrics=Metrics("p"),
        )

        def prepare() -> None:
            self.attempts += 1
            self.on_attempt(self.attempts)
            answer = answers[min(self.attempts, len(answers)) - 1]
            if answer is not None:
                raise answer

        target = (lambda: Lsn(0)) if bounded else None
        Supervisor(self.context, prepare_source=prepare, target=target).run()
        return self.context


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    DuckDBDestination.close(world.destination)


@pytest.mark.parametrize(
    "passing",
    [
        AWAY,
        DestinationUnavailableError("busy", hint="wait"),
        PipelineActiveError("taken", hint="wait"),
    ],
    ids=lambda error: error.kind,
)
def test_what_may_pass_by_itself_is_waited_out(world: World, passing: EtlError):
    with pytest.raises(SlotLostError, match="the end of this test"):
        world.run(passing, passing, passing, passing, passing, passing, passing, ENDED)

    assert world.attempts == 8
    retries = world.context.metrics.registry.get_sample_value(
        RETRIES.name, {"pipeline": "p", "worker": "apply"}
    )
    assert retries == 7


@pytest.mark.parametrize(
    "lasting",
    [
        ConfigError("wrong", hint="fix it"),
        SlotLostError("lost", hint="destroy"),
        StoreError("broken", hint="restore"),
        DestinationFencedError("fenced", hint="stop"),
    ],
    ids=lambda error: error.kind,
)
def test_what_does_not_pass_ends_the_run_at_once(world: World, lasting: EtlError):
    with pytest.raises(type(lasting)) as raised:
        world.run(lasting)

    assert raised.value is lasting
    assert world.attempts == 1


def test_a_run_in_somebodys_script_gives_up(world: World):
    with pytest.raises(SourceUnavailableError):
        world.run(AWAY, bounded=True)

    assert world.attempts == 5


@pytest.mark.parametrize("bounded", [True, False])
def test_the_configuration_says_how_often_to_try(tmp_path: Path, bounded: bool):
    world = World(tmp_path, max_attempts=3)
    with pytest.raises(SourceUnavailableError):
        world.run(AWAY, bounded=bounded)

    assert world.attempts == 3


def test_a_stop_while_waiting_is_a_graceful_end(tmp_path: Path):
    world = World(tmp_path, initial_delay_ms=60_000, max_delay_ms=60_000)
    world.on_attempt = lambda _: world.context.stop.set()
    world.run(AWAY)

    assert world.attempts == 1


def test_a_stop_does_not_hide_an_error_that_needs_a_person(world: World):
    world.on_attempt = lambda _: world.context.stop.set()
    with pytest.raises(SlotLostError):
        world.run(ENDED)


def test_whoever_is_asked_to_stop_before_it_begins_does_nothing(world: World):
    world.context = PipelineContext(
        config=world.config,
        parameters={},
        store=MemoryStore(1, world.database),
        destination=world.destination,
        metrics=Metrics("p"),
    )
    world.context.stop.set()
    Supervisor(world.context, prepare_source=lambda: pytest.fail("it was prepared")).run()

    assert world.destination.calls == ["close"]


def test_the_pipeline_is_owned_once_while_only_the_source_fails(world: World):
    # with the source prepared, the bootstrap finds nobody at its port
    with pytest.raises(SlotLostError):
        world.run(None, None, None, ENDED)

    assert world.destination.calls.count("open") == 1
    assert world.attempts == 4


def test_a_destination_that_failed_is_opened_again_under_a_new_epoch(world: World):
    busy = DestinationUnavailableError("busy", hint="wait")
    world.destination.failures = [busy, busy]
    with pytest.raises(SlotLostError):
        world.run(None, None, None, ENDED)

    assert len(world.destination.epochs) == 3
    assert world.destination.epochs == sorted(set(world.destination.epochs))


def test_everything_is_released_however_it_ends(world: World):
    with pytest.raises(SlotLostError):
        world.run(None, ENDED)

    assert world.destination.calls[-1] == "close"
    assert world.database.holders == {}

"""Tables that catch up share the time of a step, and one that was disturbed begins anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from etl.errors import DestinationUnavailableError
from etl.pgoutput.assembler import Assembler
from etl.pipeline.catchup import CatchUp, CatchUps

AWAY = DestinationUnavailableError("away", hint="wait")


@dataclass
class World:
    """Catch-ups that take 0.15 s a slice. `slices`: how many each table has."""

    slices: dict[int, int]
    now: float = 0.0
    made: list[int] = field(default_factory=list)
    replayed: list[int] = field(default_factory=list)
    failing: set[int] = field(default_factory=set)
    may_finish: bool = True

    def __post_init__(self) -> None:
        self.catch_ups = CatchUps(self.make, lambda: self.now)
        for oid in self.slices:
            self.catch_ups.add(oid)

    def make(self, oid: int) -> CatchUp:
        self.made.append(oid)
        return cast("CatchUp", Scripted(self, oid))

    def step(self) -> list[int]:
        """The tables that are through."""
        return [oid for oid in self.catch_ups.turns() if self.catch_ups.replay(oid) is not None]


class Scripted:
    def __init__(self, world: World, oid: int) -> None:
        self.world = world
        self.oid = oid
        self.left = world.slices[oid]
        self.assembler = cast("Assembler", object())

    def step(self) -> bool:
        self.world.now += 0.15
        self.world.replayed.append(self.oid)
        if self.oid in self.world.failing:
            raise AWAY
        self.left -= 1
        return self.left >= 0

    def finish(self) -> bool:
        return self.world.may_finish


def test_a_step_ends_when_its_time_is_over_and_the_next_one_goes_on_with_the_others():
    world = World(dict.fromkeys(range(1, 6), 3))
    for _ in range(3):
        assert world.step() == []

    assert world.replayed == [1, 2, 3, 4, 5, 1]


def test_a_table_without_anything_left_is_through_and_makes_room():
    world = World(dict.fromkeys(range(1, 9), 0))
    assert not world.catch_ups.has_room
    assert world.step() == [1, 2]
    assert world.catch_ups.has_room
    assert len(world.catch_ups) == 6


@pytest.mark.parametrize("new_run", [True, False])
def test_after_an_error_or_another_start_of_the_stream_a_table_begins_anew(new_run: bool):
    world = World({1: 3})
    world.step()
    if new_run:
        world.catch_ups.new_run()
    else:
        world.failing = {1}
        with pytest.raises(DestinationUnavailableError):
            world.step()
        world.failing = set()
    world.step()

    assert world.made == [1, 1]


def test_a_table_that_is_dropped_in_its_turn_does_not_come_back():
    world = World({1: 3, 2: 3})
    for oid in world.catch_ups.turns():
        world.catch_ups.drop(oid)

    assert len(world.catch_ups) == 0


def test_there_is_no_work_while_every_table_waits_for_the_end_of_a_transaction():
    world = World({1: 0, 2: 1}, may_finish=False)
    assert world.catch_ups.has_work
    for _ in range(3):
        world.step()
    assert not world.catch_ups.has_work
    world.may_finish = True
    assert sorted(world.step() + world.step()) == [1, 2]
    assert not world.catch_ups.has_work

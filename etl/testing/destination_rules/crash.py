"""Crashes at every step: started again, the same events come to the same end, and nobody is asked."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl.destinations.base import SchemaStatus
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.telemetry import failpoints
from etl.testing.builders import INT8, Insert, PlainRow, Update, altered, column
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, Scenario, World

_ID = column("id", 1, INT8)
_BEFORE = (_ID, column("a", 2), column("b", 3), column("c", 4), column("n", 5, INT8, default_expression="7"))
_N = _BEFORE[4]

#: Target columns per kind of change; the table starts with id, a, b, c and n (default 7).
PLANS: dict[str, tuple[ColumnSchema, ...]] = {
    "add": (*_BEFORE, column("d", 6)),
    "drop": (_ID, *_BEFORE[1:3], _N),
    "rename": (_ID, column("x", 2), *_BEFORE[2:]),
    "rename by case": (_ID, column("A", 2), *_BEFORE[2:]),
    "swap": (_ID, column("b", 2), column("a", 3), *_BEFORE[3:]),
    "rotation of three": (_ID, column("b", 2), column("c", 3), column("a", 4), _N),
    "drop and add the same name": (*_BEFORE[:3], _N, column("c", 6, INT8)),
    "drop and rename into it": (_ID, column("a", 2), column("c", 3), _N),
    "set a default": (*_BEFORE[:3], column("c", 4, default_expression="'new'::text"), _N),
    "change and drop defaults": (*_BEFORE[:4], column("n", 5, INT8)),
    "ten mixed": (
        _ID,
        column("c", 2, default_expression="'x'::text"),
        column("a", 4),
        column("e", 6, INT8, default_expression="5"),
        column("f", 7),
        column("b", 8, default_expression="'b'::text"),
        column("n", 9),
    ),
}

_DDL_POINTS = (
    "ddl.before_mark_applying",
    "ddl.after_mark_applying",
    "ddl.after_step",
    "ddl.after_last_step",
    "ddl.after_commit",
    "ddl.after_applied",
)
_WRITE_POINTS = ("dest.before_write", "dest.mid_write", "dest.before_commit", "dest.after_commit")


class CrashRules:
    """An error at a failpoint stands for the crash; everything in memory is thrown away."""

    @pytest.mark.parametrize("change", PLANS)
    def test_a_schema_change_that_crashed_at_any_step_is_finished(
        self, kit: DestinationKit, change: str
    ) -> None:
        world = World(kit)
        # where commits are slow, every change meets one point and every point some change
        turn = list(PLANS).index(change) % len(_DDL_POINTS)
        points = _DDL_POINTS if kit.thorough else _DDL_POINTS[turn : turn + 1]
        assert all(_crash_and_recover(world, change, point) for point in points)

    @pytest.mark.parametrize("point", _WRITE_POINTS)
    def test_a_write_that_crashed_anywhere_is_repeated_without_loss_or_duplicate(
        self, kit: DestinationKit, point: str
    ) -> None:
        assert _crash_and_recover(World(kit), "swap", point) >= (2 if kit.thorough else 1)

    def test_a_recovery_that_crashes_is_finished_by_the_next_one(self, kit: DestinationKit) -> None:
        world, crashes = World(kit), 0
        passes = list(_every_pass("ddl.after_step"))
        for arm in passes if kit.thorough else passes[1:9:7]:
            scenario = _prepared(world, "ten mixed")
            assert _crashes(world, scenario, "ddl.after_mark_applying=error")
            failpoints.configure(arm)
            try:
                world.restart()
            except failpoints.FailpointError:
                crashes += 1
            else:
                break
            finally:
                failpoints.configure("")
            world.restart()
            world.write(scenario.events)
            arrived(world, scenario)
        assert crashes >= (10 if kit.thorough else 2)

    def test_a_restart_finishes_what_is_applying_before_any_event(self, kit: DestinationKit) -> None:
        world = World(kit)
        scenario = _prepared(world, "ten mixed")
        assert _crashes(world, scenario, "ddl.after_mark_applying=error")
        assert world.journal.recorded[ORDERS.oid].status is SchemaStatus.APPLYING
        report = world.restart()
        assert report.schema_changes == {ORDERS.oid: 1}
        assert world.journal.recorded[ORDERS.oid].status is SchemaStatus.APPLIED

    def test_what_is_applying_is_finished_by_the_first_event_too(self, kit: DestinationKit) -> None:
        world = World(kit)
        scenario = _prepared(world, "rotation of three")
        assert _crashes(world, scenario, "ddl.after_step:2=error")
        world.destination.close()
        world.start()
        world.write(scenario.events)
        arrived(world, scenario)

    def test_the_rows_of_one_write_are_all_there_or_none(self, kit: DestinationKit) -> None:
        world = World(kit)
        scenario = _prepared(world, "add")
        whole = world.destination.capabilities.multi_table_transactions
        assert _crashes(world, scenario, "dest.mid_write:2=error")
        world.restart()
        if whole:
            assert sum(world.rows(ITEMS).values()) == 0
        world.write(scenario.events)
        arrived(world, scenario)


def _crash_and_recover(world: World, change: str, point: str) -> int:
    """Crash at every single pass of `point`, each time from the beginning; returns how many there were."""
    crashes = 0
    for arm in _every_pass(point) if world.kit.thorough else _every_pass(point, 1):
        scenario = _prepared(world, change)
        if not _crashes(world, scenario, arm):
            break
        crashes += 1
        world.restart()
        world.write(scenario.events)
        arrived(world, scenario)
    return crashes


def _every_pass(point: str, at_most: int = 100) -> Iterator[str]:
    return (f"{point}:{nth}=error" for nth in range(1, at_most + 1))


def crash_scenario(change: str) -> tuple[dict[str, tuple[ReplicatedTableSchema, list[PlainRow]]], Scenario]:
    """Two tables as copied (by name: schema and rows), and events with one schema change in their middle."""
    before, after = altered(ORDERS, *_BEFORE), altered(ORDERS, *PLANS[change], at=2)
    rows: list[PlainRow] = [{"id": number, "a": "a", "b": "b", "c": "c", "n": number} for number in range(3)]
    copies: dict[str, tuple[ReplicatedTableSchema, list[PlainRow]]] = {
        "orders": (before, rows),
        "items": (ITEMS, []),
    }
    scenario = Scenario()
    for schema, copied in copies.values():
        scenario.start(schema, copied)
    second = after.columns[1].name
    scenario.rows(ITEMS, Insert({"id": 1, "amount": 1}))
    scenario.rows(before, Insert({"id": 8, "a": "aa", "b": "bb", "c": "cc"}), Update({"id": 0, "a": "z"}))
    scenario.relation(after)
    scenario.rows(after, Insert({"id": 9, second: "new"}), Update({"id": 1, second: "upd"}))
    scenario.rows(ITEMS, Update({"id": 1, "amount": 2}))
    scenario.commit()
    return copies, scenario


def arrived(world: World, scenario: Scenario) -> None:
    """Everything is as if nothing had happened, and writing it once more changes nothing."""
    target = scenario.models[ORDERS.oid].schema
    assert world.columns(target) == {(c.name, c.attnum) for c in target.columns}
    assert world.rows(target) == scenario.expected(target)
    assert world.rows(ITEMS) == scenario.expected(ITEMS)
    assert world.journal.recorded[ORDERS.oid].status is SchemaStatus.APPLIED
    assert not world.write(scenario.events).rows


def _prepared(world: World, change: str) -> Scenario:
    """Copy both tables, in place of what an earlier round left."""
    copies, scenario = crash_scenario(change)
    for schema, rows in copies.values():
        world.copy(schema, rows)
    return scenario


def _crashes(world: World, scenario: Scenario, arm: str) -> bool:
    """Write until the failpoint strikes; False when it never did."""
    failpoints.configure(arm)
    try:
        world.write(scenario.events)
    except failpoints.FailpointError:
        return True
    finally:
        failpoints.configure("")
    return False

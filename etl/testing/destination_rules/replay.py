"""Effectively once: what is repeated changes nothing, and of two runs of one pipeline the newer one writes."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.destinations.base import SchemaStatus
from etl.destinations.writer import EventWriter
from etl.errors import DestinationFencedError
from etl.lsn import Lsn, Position
from etl.testing.builders import INT8, JSONB, Delete, Insert, Stream, Update, altered, column
from etl.testing.destination_kit import ITEMS, ORDERS, PIPELINE_ID, DestinationKit, Scenario, World


class ReplayRules:
    """Effectively once: what is repeated changes nothing."""

    def test_replaying_any_suffix_changes_nothing(self, kit: DestinationKit) -> None:
        scenario = long_scenario()
        world = World(kit)
        world.copy(ORDERS, [{"id": 1, "note": "one"}])
        world.copy(ITEMS)
        world.write(scenario.events)
        last = scenario.models[ORDERS.oid].schema
        assert world.rows(last) == scenario.expected(last)
        for start in kit.sample(range(len(scenario.events)), 3):
            if start % 4 == 0:
                world.restart()
            report = world.write(scenario.events[start:])
            assert not report.rows
            assert not report.schema_changes
            assert world.rows(last) == scenario.expected(last)
            assert world.rows(ITEMS) == scenario.expected(ITEMS)
            assert world.columns(last) == {(c.name, c.attnum) for c in last.columns}

    def test_a_batch_may_repeat_what_came_before_and_go_on(self, kit: DestinationKit) -> None:
        scenario = long_scenario()
        last = scenario.models[ORDERS.oid].schema
        world = World(kit)
        for cut in kit.sample(range(1, len(scenario.events)), 2):
            world.copy(ORDERS, [{"id": 1, "note": "one"}])
            world.copy(ITEMS)
            reports = [world.write(scenario.events[:cut]), world.write(scenario.events)]
            assert world.rows(last) == scenario.expected(last)
            assert world.rows(ITEMS) == scenario.expected(ITEMS)
            # no schema change is made twice, and none is walked backwards
            assert sum(report.schema_changes.get(ORDERS.oid, 0) for report in reports) == 4

    def test_of_a_run_that_begins_below_the_watermark_only_the_rest_is_applied(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        run = stream.rows(ORDERS, *(Insert({"id": number}) for number in range(10)))
        world.write([run.slice(0, 4)])
        report = world.write([run])
        assert (report.replayed, report.rows) == ({ORDERS.oid: 4}, {ORDERS.oid: 6})
        assert sum(world.rows(ORDERS).values()) == 10

    def test_the_watermark_is_that_of_the_last_change(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        world.write([stream.rows(ORDERS, Insert({"id": 1}), Insert({"id": 2}))])
        assert world.destination.watermarks()[ORDERS.oid] == Position(Lsn(0x1000), 2)

    def test_nothing_to_write_is_no_error(self, kit: DestinationKit) -> None:
        world = World(kit)
        assert not world.write([]).rows
        assert not world.write([Stream().commit()]).rows


class FenceRules:
    """Of two runs of one pipeline, the newer one writes."""

    def test_an_older_epoch_commits_nothing_any_more(self, kit: DestinationKit) -> None:
        old, stream = World(kit), Stream()
        old.copy(ORDERS)
        new = World(kit, journal=old.journal, epoch=old.epoch)
        run = stream.rows(ORDERS, Insert({"id": 1}))
        wider = altered(ORDERS, *ORDERS.columns, column("more", 4))
        attempts = (
            lambda: old.writer.write([run]),
            lambda: old.writer.write([stream.relation(wider)]),
            lambda: old.destination.set_watermark(old.table(ORDERS), stream.next),
            lambda: old.destination.finish_copy(old.table(ORDERS), stream.next, 0),
            lambda: old.copies.create(wider),
            lambda: old.destination.drop_table(old.table(ORDERS)),
        )
        for attempt in attempts:
            with pytest.raises(DestinationFencedError):
                attempt()
        assert not new.rows(ORDERS)
        assert new.columns(ORDERS) == {("id", 1), ("note", 2), ("doc", 3)}
        new.journal.recorded[ORDERS.oid] = replace(
            new.journal.recorded[ORDERS.oid], status=SchemaStatus.APPLIED, schema=ORDERS, previous=None
        )
        assert new.write([run]).rows == {ORDERS.oid: 1}

    def test_an_older_epoch_cannot_open(self, kit: DestinationKit) -> None:
        world = World(kit, epoch=5)
        world.destination.close()
        with pytest.raises(DestinationFencedError):
            kit.connect().open(PIPELINE_ID, 5)

    def test_the_same_epoch_opens_again_after_a_fault(self, kit: DestinationKit) -> None:
        world = World(kit)
        world.copy(ORDERS)
        world.destination.open(PIPELINE_ID, world.epoch)
        writer = EventWriter(world.destination, world.journal)
        assert writer.write([Stream().rows(ORDERS, Insert({"id": 1}))]).rows == {ORDERS.oid: 1}

    def test_closing_twice_or_unused_is_harmless(self, kit: DestinationKit) -> None:
        world = World(kit)
        for destination in (world.destination, world.destination, kit.connect()):
            destination.close()


def long_scenario() -> Scenario:
    """Several Relations of one table in one list of events, with rows of two tables between them."""
    scenario = Scenario()
    scenario.start(ORDERS, [{"id": 1, "note": "one"}])
    scenario.start(ITEMS)
    renamed = altered(ORDERS, column("id", 1, INT8), column("text", 2), column("doc", 3), at=2)
    extended = altered(ORDERS, *renamed.columns, column("more", 5), at=2)
    swapped = altered(ORDERS, column("id", 1, INT8), column("doc", 2), column("text", 3), at=3)
    back = altered(ORDERS, column("id", 1, INT8), column("note", 2), column("doc", 4, JSONB), at=4)
    scenario.rows(ORDERS, Insert({"id": 2, "doc": "a"}), Update({"id": 1, "note": "1"}))
    scenario.rows(ITEMS, Insert({"id": 1, "amount": 1}))
    scenario.relation(renamed)
    scenario.rows(
        renamed, Insert({"id": 3, "text": "r"}), Update({"id": 2, "text": "s"}, unchanged=frozenset({"doc"}))
    )
    scenario.commit()
    # one row between two relations: the later one leaves the watermark exactly where the earlier one stands
    scenario.relation(extended)
    scenario.rows(extended, Insert({"id": 5, "more": "m"}))
    scenario.relation(swapped)
    scenario.rows(
        swapped, Update({"id": 3, "doc": "was text"}, unchanged=frozenset({"text"})), Delete({"id": 1})
    )
    scenario.rows(ITEMS, Update({"id": 1, "amount": 2}))
    scenario.commit()
    scenario.truncate(ITEMS)
    scenario.rows(ITEMS, Insert({"id": 9, "amount": 9}))
    scenario.relation(back)
    scenario.rows(
        back, Insert({"id": 4, "note": "n", "doc": "{}"}), Update({"id": 40, "note": "m"}, old={"id": 4})
    )
    scenario.relation(replace(back))
    scenario.rows(back, Delete({"id": 3}), Insert({"id": 3, "note": "again", "doc": "[]"}))
    scenario.commit()
    return scenario

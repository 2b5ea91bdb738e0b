"""The initial copy, and where the stream takes over."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

import pytest

from etl.destinations.base import CopyBatch
from etl.events import Event
from etl.lsn import Lsn, Position
from etl.telemetry import failpoints
from etl.testing.builders import Delete, Insert, PlainRow, Stream, altered, batch, column
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, World, multiset


class CopyRules:
    """The initial copy, and where the stream takes over."""

    def test_a_copied_table_holds_the_rows_and_the_columns_of_its_schema(self, kit: DestinationKit) -> None:
        world = World(kit)
        rows: list[PlainRow] = [{"id": 1, "note": "a", "doc": None}, {"id": 2, "note": None, "doc": "d"}]
        world.copy(ORDERS, rows)
        assert world.rows(ORDERS) == multiset(rows)
        assert world.columns(ORDERS) == {("id", 1), ("note", 2), ("doc", 3)}

    @pytest.mark.parametrize("point", ["copy.mid", "copy.before_finish", "copy.after_finish"])
    def test_a_copy_that_crashed_is_replaced_by_the_next_one(self, kit: DestinationKit, point: str) -> None:
        world = World(kit)
        failpoints.configure(f"{point}=error")
        with pytest.raises(failpoints.FailpointError):
            world.copy(ORDERS, [{"id": 1, "note": "half", "doc": None}])
        failpoints.configure("")
        world.restart()
        wider = altered(ORDERS, *ORDERS.columns, column("later", 4))
        world.copy(wider, [{"id": 1, "note": "whole", "doc": None, "later": None}])
        assert world.rows(wider) == multiset([{"id": 1, "note": "whole", "doc": None, "later": None}])

    def test_an_unfinished_copy_has_no_watermark_and_a_finished_one_keeps_it(
        self, kit: DestinationKit
    ) -> None:
        world = World(kit)
        world.copies.create(ORDERS)
        world.copies.copy_rows(ORDERS, CopyBatch(batch(ORDERS, [{"id": 1}])))
        assert ORDERS.oid not in world.destination.watermarks()
        world.finish(ORDERS, 1, Position.end_of(Lsn(0x500)))
        world.restart()
        assert world.destination.watermarks()[ORDERS.oid] == Position.end_of(Lsn(0x500))

    def test_changes_that_the_copy_already_holds_are_dropped(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        in_copy: list[Event] = [
            stream.relation(ORDERS),
            stream.rows(ORDERS, Insert({"id": 1})),
            stream.commit(),
        ]
        world.copy(ORDERS, [{"id": 1}], watermark=Position.end_of(Lsn(0x1000)))
        later: list[Event] = [stream.rows(ORDERS, Insert({"id": 2}), Delete({"id": 1})), stream.commit()]
        report = world.write([*in_copy, *later])
        assert world.rows(ORDERS) == multiset([{"id": 2, "note": None, "doc": None}])
        assert (report.replayed, report.rows) == ({ORDERS.oid: 1}, {ORDERS.oid: 2})

    def test_a_table_that_was_never_copied_fails_alone(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        report = world.writer.write(
            [stream.rows(ITEMS, Insert({"id": 1})), stream.rows(ORDERS, Insert({"id": 1})), stream.commit()]
        )
        assert set(report.failed) == {ITEMS.oid}
        assert sum(world.rows(ORDERS).values()) == 1

    def test_dropping_a_table_twice_is_harmless(self, kit: DestinationKit) -> None:
        world = World(kit)
        table = world.copy(ORDERS, [{"id": 1}])
        world.writer.drop(ORDERS.oid)
        world.destination.drop_table(table)
        assert world.destination.describe(table) is None
        assert ORDERS.oid not in world.destination.watermarks()

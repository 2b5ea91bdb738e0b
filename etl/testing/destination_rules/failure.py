"""What one table's fault does, and what it does not."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from etl.events import Event
from etl.lsn import Lsn, Position
from etl.testing.builders import INT8, TEXT, Insert, Stream, altered, column
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, World, multiset


class FailureRules:
    """What one table's fault does, and what it does not."""

    def test_a_value_that_does_not_fit_fails_its_table_alone_and_names_the_column(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        world.copy(ITEMS, [{"id": 1, "amount": 5}])
        retyped = altered(ITEMS, column("id", 1, INT8), column("amount", 2, TEXT))
        events: list[Event] = [
            stream.rows(ORDERS, Insert({"id": 1})),
            stream.relation(retyped),
            stream.rows(retyped, Insert({"id": 2, "amount": "7"}), Insert({"id": 3, "amount": "private"})),
            stream.rows(ORDERS, Insert({"id": 2})),
        ]
        report = world.writer.write(events)
        error = report.failed[ITEMS.oid]
        assert "'amount'" in error.message
        assert error.table == world.table(ITEMS).name
        assert (
            "private"
            not in f"{error}{error.__cause__}{error.__context__ if not error.__suppress_context__ else ''}"
        )
        assert sum(world.rows(ORDERS).values()) == 2
        assert world.rows(ITEMS) == multiset([{"id": 1, "amount": 5}])

    def test_a_value_that_fits_goes_on_into_the_old_type(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ITEMS)
        retyped = altered(ITEMS, column("id", 1, INT8), column("amount", 2, INT8))
        report = world.write(
            [stream.relation(retyped), stream.rows(retyped, Insert({"id": 1, "amount": 2**31 - 1}))]
        )
        assert [skip.column for skip in report.skipped[ITEMS.oid]] == ["amount"]
        assert world.rows(ITEMS) == multiset([{"id": 1, "amount": 2**31 - 1}])

    def test_the_events_of_a_failed_table_are_dropped_until_it_is_taken_again(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ITEMS)
        retyped = altered(ITEMS, column("id", 1, INT8), column("amount", 2, TEXT))
        bad: list[Event] = [
            stream.relation(retyped),
            stream.rows(retyped, Insert({"id": 1, "amount": "x"})),
            stream.commit(),
        ]
        good: list[Event] = [stream.rows(retyped, Insert({"id": 2, "amount": "2"})), stream.commit()]
        assert ITEMS.oid in world.writer.write(bad).failed
        assert not world.writer.write(good).rows
        assert not world.rows(ITEMS)
        assert set(world.writer.failed) == {ITEMS.oid}
        world.writer.retry(ITEMS.oid)
        assert ITEMS.oid in world.writer.write([*bad, *good]).failed
        world.copy(retyped, [{"id": 1, "amount": "x"}], watermark=Position.end_of(Lsn(0x1000)))
        world.write([*bad, *good])
        assert world.rows(retyped) == multiset([{"id": 1, "amount": "x"}, {"id": 2, "amount": "2"}])

    def test_a_table_that_is_gone_is_an_error_and_never_comes_back_empty(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        table = world.copy(ORDERS, [{"id": 1}])
        world.copy(ITEMS)
        world.destination.drop_table(table)
        changed = altered(ORDERS, *ORDERS.columns, column("more", 4))
        rows: list[Event] = [
            stream.rows(ORDERS, Insert({"id": 2})),
            stream.rows(ITEMS, Insert({"id": 1, "amount": 1})),
        ]
        assert "gone" in world.writer.write(rows).failed[ORDERS.oid].message
        world.restart()
        report = world.writer.write([stream.relation(changed), stream.rows(changed, Insert({"id": 3}))])
        assert "gone" in report.failed[ORDERS.oid].message
        assert world.destination.describe(table) is None
        assert sum(world.rows(ITEMS).values()) == 1

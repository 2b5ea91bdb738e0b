"""Copies beside complete tables, and copies beside the stream."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from etl.destinations.base import CopyBatch, TableMode
from etl.errors import DestinationTableError
from etl.lsn import Lsn, Position
from etl.schema.table import ReplicatedTableSchema
from etl.testing.builders import (
    INT4,
    INT8,
    TEXT,
    Insert,
    PlainRow,
    Stream,
    Update,
    altered,
    batch,
    column,
    table_schema,
)
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, World, multiset

_OLD: list[PlainRow] = [{"id": 1, "note": "old", "doc": None}]
_NEW: list[PlainRow] = [{"id": number, "note": "new", "doc": None} for number in (2, 3)]
#: Rows of a batch.
_ROWS = 50
_LATER = Position.end_of(Lsn(0x500))


class CopyBesideRules:
    """A new copy of a complete table: out of sight until it is whole."""

    def test_a_new_copy_is_out_of_sight_until_it_is_finished_and_the_stream_goes_on_elsewhere(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, _OLD)
        world.copy(ITEMS)
        world.copies.create(ORDERS)
        for number, row in enumerate(_NEW):
            world.copies.copy_rows(ORDERS, CopyBatch(batch(ORDERS, [row])))
            world.write([stream.rows(ITEMS, Insert({"id": number, "amount": number})), stream.commit()])
            assert world.rows(ORDERS) == multiset(_OLD)
            assert world.destination.watermarks()[ORDERS.oid] == Position.ZERO
        world.finish(ORDERS, 2, _LATER)
        assert world.rows(ORDERS) == multiset(_NEW)
        assert world.rows(ITEMS) == multiset([{"id": number, "amount": number} for number in (0, 1)])
        world.restart()
        assert world.destination.watermarks()[ORDERS.oid] == _LATER

    @pytest.mark.parametrize("end", ["lacks rows", "killed", "abandoned"])
    def test_a_copy_that_did_not_come_to_its_end_leaves_what_was_there(
        self, kit: DestinationKit, end: str
    ) -> None:
        world = World(kit)
        world.copy(ORDERS, _OLD)
        for schema in (ORDERS, ITEMS):
            world.copies.create(schema)
            world.copies.copy_rows(schema, CopyBatch(batch(schema, [{"id": 5}])))
            _end(world, schema, end)
        assert world.destination.watermarks() == {ORDERS.oid: Position.ZERO}
        assert world.rows(ORDERS) == multiset(_OLD)
        world.copy(ORDERS, _NEW)
        world.copy(ITEMS)
        assert world.rows(ORDERS) == multiset(_NEW)
        assert not world.rows(ITEMS)

    def test_a_copy_that_is_begun_twice_begins_from_nothing_and_may_be_abandoned_twice(
        self, kit: DestinationKit
    ) -> None:
        world = World(kit)
        world.copies.abandon(ORDERS)
        for rows in (_OLD, _NEW):
            world.copies.create(ORDERS)
            world.copies.copy_rows(ORDERS, CopyBatch(batch(ORDERS, rows)))
        world.finish(ORDERS, 2)
        assert world.rows(ORDERS) == multiset(_NEW)
        world.copies.abandon(ORDERS)
        assert world.rows(ORDERS) == multiset(_NEW)

    def test_a_copy_brings_its_name_and_schema_and_the_stream_goes_on_from_it(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        before = altered(
            ORDERS, column("id", 1, INT8), column("n", 2, INT4), column("gone", 3), column("name", 4)
        )
        old_rows: list[PlainRow] = [{"id": 1, "n": 1, "gone": "g", "name": "a"}]
        old = world.copy(before, old_rows)
        title = column("title", 4, default_expression="'none'::text")
        after = _named(altered(before, column("id", 1, INT8), column("n", 2, TEXT), title, column("name", 5)))
        world.copies.create(after)
        world.copies.copy_rows(
            after, CopyBatch(batch(after, [{"id": 2, "n": "two", "title": "a", "name": "b"}]))
        )
        assert multiset(kit.rows(old)) == multiset(old_rows)
        world.finish(after, 1)
        assert world.destination.describe(old) is None
        assert world.columns(after) == {("id", 1), ("n", 2), ("title", 4), ("name", 5)}
        actual = world.destination.describe(world.table(after))
        assert actual is not None
        assert [c.name for c in actual.columns if c.default is not None] == ["title"]
        later = altered(after, column("id", 1, INT8), column("n", 2, TEXT), column("label", 4))
        world.write([stream.relation(later), stream.rows(later, Insert({"id": 3, "n": "drei"}))])
        # the same name, another schema, and what the stream made of the table meanwhile
        world.copy(after, [{"id": 4, "n": "four", "title": None, "name": "d"}])
        world.write([stream.rows(after, Update({"id": 4, "n": "vier", "title": "t", "name": "d"}))])
        world.restart()
        assert world.rows(after) == multiset([{"id": 4, "n": "vier", "title": "t", "name": "d"}])

    def test_a_changelog_keeps_its_rows_and_takes_those_of_a_new_copy(self, kit: DestinationKit) -> None:
        world, stream = World(kit, modes=lambda _: TableMode.CHANGELOG), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "one"}])
        world.write([stream.rows(ORDERS, Insert({"id": 2, "note": "2"}))])
        world.copy(ORDERS, [{"id": 3, "note": "3"}], _LATER)
        assert _logged(world, ORDERS, "note") == [("copy", "3"), ("copy", "one"), ("insert", "2")]
        assert world.destination.watermarks()[ORDERS.oid] == _LATER
        wider = altered(ORDERS, column("id", 1, TEXT), column("text", 2), column("more", 9))
        world.copy(wider, [{"id": "4", "text": "4"}], _LATER)
        assert world.columns(wider) == {("id", 1), ("text", 2), ("more", 9)}
        assert _logged(world, wider, "text") == [
            ("copy", "3"),
            ("copy", "4"),
            ("copy", "one"),
            ("insert", "2"),
        ]
        retyped = altered(ORDERS, column("id", 1, INT8), column("text", 2, INT8))
        with pytest.raises(DestinationTableError, match="'text'"):
            world.copy(retyped, [{"id": 5, "text": 5}])
        assert len(_logged(world, wider, "text")) == 4
        world.write([stream.commit()])


class CopyingThreadRules:
    """Copying threads beside the thread that streams."""

    def test_threads_copy_tables_and_parts_of_one_while_another_is_streamed_into(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        batches, parts = (8, 4) if kit.thorough else (1, 2)
        whole = [_copied(number) for number in range(parts)]
        shared = _copied(9)
        world.copy(ORDERS)
        # these are there already
        world.copy(whole[0], [{"id": -1}])
        world.copy(shared, [{"id": -1}])
        with ThreadPoolExecutor(2 * parts) as threads:
            copies = [threads.submit(_copy, world, schema, batches) for schema in whole]
            world.copies.create(shared)
            copies += [threads.submit(_copy_rows, world, shared, part, batches) for part in range(parts)]
            _stream_until(world, stream, lambda: all(copy.done() for copy in copies))
            for copy in copies:
                copy.result()
        world.finish(shared, parts * batches * _ROWS)
        assert world.rows(shared) == multiset(_ids(0, parts * batches * _ROWS))
        for schema in whole:
            world.writer.retry(schema.oid)
            assert world.rows(schema) == multiset(_ids(0, batches * _ROWS))
        world.write([stream.rows(whole[0], Insert({"id": -2}))])
        assert sum(world.rows(whole[0]).values()) == batches * _ROWS + 1
        assert sum(world.rows(ORDERS).values()) == world.destination.watermarks()[ORDERS.oid].ordinal


def _end(world: World, schema: ReplicatedTableSchema, end: str) -> None:
    match end:
        case "lacks rows":
            with pytest.raises(DestinationTableError, match=r" 1 rows.* 7 ") as refused:
                world.finish(schema, 7, _LATER)
            assert refused.value.table == world.table(schema).name
        case "killed":
            world.restart()
        case "abandoned":
            world.copies.abandon(schema)
            with pytest.raises(DestinationTableError):
                world.copies.copy_rows(schema, CopyBatch(batch(schema, [{"id": 6}])))


def _named(schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
    return replace(schema, schema=replace(schema.schema, schema="other", name="bills"))


def _copied(number: int) -> ReplicatedTableSchema:
    columns = column("id", 1, INT8), column("note", 2)
    return table_schema(*columns, oid=100 + number, name=f"copied{number}")


def _ids(start: int, count: int) -> list[PlainRow]:
    return [{"id": number, "note": "n"} for number in range(start, start + count)]


def _copy(world: World, schema: ReplicatedTableSchema, batches: int) -> None:
    world.copies.create(schema)
    _copy_rows(world, schema, 0, batches)
    world.copies.finish(schema, Position.ZERO, batches * _ROWS)


def _copy_rows(world: World, schema: ReplicatedTableSchema, part: int, batches: int) -> None:
    for number in range(part * batches, (part + 1) * batches):
        world.copies.copy_rows(schema, CopyBatch(batch(schema, _ids(number * _ROWS, _ROWS))))


def _stream_until(world: World, stream: Stream, is_over: Callable[[], bool]) -> None:
    """One row a write, at least one; all in one transaction, so that the watermark's ordinal counts them."""
    number = 0
    while not number or not is_over():
        number += 1
        world.write([stream.rows(ORDERS, Insert({"id": number}))])


def _logged(world: World, schema: ReplicatedTableSchema, name: str) -> Sequence[tuple[object, object]]:
    rows = world.kit.rows(world.destination.destination_table(schema, TableMode.CHANGELOG))
    return sorted((str(row["_etl_op"]), str(row[name])) for row in rows)

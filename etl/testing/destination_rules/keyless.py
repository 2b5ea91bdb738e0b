"""Tables without a key: rows are told apart by all their columns, equal ones only counted."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

import pytest

from etl.errors import DestinationTableError
from etl.events import Event
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.testing.builders import INT8, Delete, Insert, PlainRow, Stream, Update, altered, column, table_schema
from etl.testing.destination_kit import LOG, DestinationKit, Scenario, World, multiset


class KeylessRules:
    """Tables without a key."""

    def test_of_equal_rows_each_delete_takes_exactly_one(self, kit: DestinationKit) -> None:
        world, stream = _world(kit, LOG, [{"a": 1, "b": None}] * 3 + [{"a": 1, "b": ""}]), Stream()
        if world is not None:
            world.write([stream.rows(LOG, Delete({"a": 1}), Update({"a": 2}, old={"a": 1}))])
            assert world.rows(LOG) == multiset([{"a": 1, "b": None}, {"a": 1, "b": ""}, {"a": 2, "b": None}])

    def test_the_order_of_equal_rows_inside_a_batch_does_not_matter(self, kit: DestinationKit) -> None:
        world, stream = _world(kit, LOG, [{"a": 1, "b": "x"}]), Stream()
        if world is not None:
            row = {"a": 1, "b": "x"}
            scenario = Scenario(stream)
            scenario.start(LOG, [row])
            scenario.rows(
                LOG,
                Insert(row),
                Update({"a": 2}, old=row),
                Delete(row),
                Insert(row),
                Update(row, old={"a": 2}),
            )
            world.write(scenario.events)
            assert world.rows(LOG) == scenario.expected(LOG)

    def test_a_row_to_delete_that_is_not_there_is_counted(self, kit: DestinationKit) -> None:
        world, stream = _world(kit, LOG, [{"a": 1, "b": "x"}]), Stream()
        if world is not None:
            report = world.write(
                [stream.rows(LOG, Delete({"a": 1, "b": "x"}), Delete({"a": 1, "b": "x"}), Delete({"a": 3}))]
            )
            assert report.unmatched == {LOG.oid: 2}
            assert not world.rows(LOG)

    @pytest.mark.parametrize("sent", ["dd", None], ids=["the missing value", "NULL, as older servers send"])
    def test_a_row_older_than_a_column_is_found_by_its_old_image(
        self, kit: DestinationKit, sent: str | None
    ) -> None:
        world, stream = _world(kit, LOG, [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]), Stream()
        if world is not None:
            wider = altered(
                LOG, *LOG.columns, column("d", 3, missing_value="dd", default_expression="'dd'::text")
            )
            old = {"a": 1, "b": "x", "d": sent}
            events: list[Event] = [
                stream.relation(wider),
                stream.rows(wider, Insert({"a": 1, "b": "x", "d": "dd"}), Insert({"a": 9, "d": "other"})),
                stream.rows(wider, Update({"a": 5, "b": "x", "d": "dd"}, old=old)),
            ]
            assert not world.write(events).unmatched
            left = world.rows(wider)
            rest: list[PlainRow] = [
                {"a": 2, "b": "y", "d": None},
                {"a": 5, "b": "x", "d": "dd"},
                {"a": 9, "b": None, "d": "other"},
            ]
            other = multiset([{"a": 1, "b": "x", "d": None}]), multiset([{"a": 1, "b": "x", "d": "dd"}])
            assert left - multiset(rest) in other
            assert not world.write([stream.rows(wider, Delete({"a": 1, "b": "x", "d": "dd"}))]).unmatched
            assert world.rows(wider) == multiset(rest)

    def test_a_row_copied_with_the_missing_value_is_found_when_an_older_server_sends_null(
        self, kit: DestinationKit
    ) -> None:
        wider = altered(LOG, *LOG.columns, column("d", 3, missing_value="dd"))
        world, stream = (
            _world(kit, wider, [{"a": 1, "b": "x", "d": "dd"}, {"a": 1, "b": "x", "d": "no"}]),
            Stream(),
        )
        if world is not None:
            assert not world.write([stream.rows(wider, Delete({"a": 1, "b": "x", "d": None}))]).unmatched
            assert world.rows(wider) == multiset([{"a": 1, "b": "x", "d": "no"}])

    @pytest.mark.parametrize("identity", [ReplicaIdentity.NOTHING, ReplicaIdentity.DEFAULT])
    def test_a_table_without_identity_only_grows(
        self, kit: DestinationKit, identity: ReplicaIdentity
    ) -> None:
        schema = table_schema(column("a", 1, INT8), key=(), identity=identity)
        world, stream = World(kit), Stream()
        world.copy(schema, [{"a": 1}])
        world.write([stream.rows(schema, Insert({"a": 1}), Insert({"a": 2})), stream.commit()])
        assert world.rows(schema) == multiset([{"a": 1}, {"a": 1}, {"a": 2}])


def _world(kit: DestinationKit, schema: ReplicatedTableSchema, rows: list[PlainRow]) -> World | None:
    """None where such tables cannot be mirrored: then creating one says so."""
    world = World(kit)
    if not world.destination.capabilities.exact_old_rows:
        with pytest.raises(DestinationTableError):
            world.copy(schema, rows)
        return None
    world.copy(schema, rows)
    return world

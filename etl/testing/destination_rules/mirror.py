"""Tables with a key: the destination shows the current state."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.testing.builders import (
    INT8,
    JSONB,
    NUMERIC,
    NUMERIC_10_2,
    Delete,
    Insert,
    PlainRow,
    Stream,
    Update,
    column,
    table_schema,
)
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, Scenario, World, multiset


class MirrorRules:
    """Tables with a key: the destination shows the current state."""

    def test_inserts_updates_and_deletes_of_one_key_in_one_batch(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.rows(
            ORDERS, Update({"id": 1, "note": "x"}), Delete({"id": 2}), Insert({"id": 2, "note": "back"})
        )
        scenario.rows(
            ORDERS, Insert({"id": 3}), Update({"id": 3, "note": "y"}), Delete({"id": 3}), Delete({"id": 1})
        )
        _run(kit, scenario, ORDERS, rows)

    def test_a_changed_key_moves_the_row(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.rows(
            ORDERS, Update({"id": 3, "note": "moved"}, old={"id": 1}), Insert({"id": 1, "note": "new one"})
        )
        _run(kit, scenario, ORDERS, rows)

    def test_keys_that_change_places_through_a_third_one(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.rows(
            ORDERS,
            Update({"id": 9, "note": "was 1"}, old={"id": 1}),
            Update({"id": 1, "note": "was 2"}, old={"id": 2}),
            Update({"id": 2, "note": "was 1"}, old={"id": 9}),
        )
        _run(kit, scenario, ORDERS, rows)

    def test_a_value_that_was_not_sent_keeps_what_the_row_had(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.rows(ORDERS, Update({"id": 1, "note": "x"}, unchanged=frozenset({"doc"})))
        _run(kit, scenario, ORDERS, rows)

    def test_a_value_that_was_not_sent_may_be_one_of_the_same_batch(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.rows(
            ORDERS,
            Insert({"id": 5, "note": "n", "doc": "D5"}),
            Update({"id": 5, "note": "m"}, unchanged=frozenset({"doc"})),
            Update({"id": 5, "doc": "D6"}, unchanged=frozenset({"note"})),
            Update({"id": 1, "note": "x"}, unchanged=frozenset({"doc"})),
            Update({"id": 1, "note": "y", "doc": None}),
            Update({"id": 2, "doc": None}, unchanged=frozenset({"note"})),
        )
        _run(kit, scenario, ORDERS, rows)

    def test_a_value_that_was_not_sent_follows_its_row_to_a_new_key(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        unchanged = frozenset({"doc"})
        scenario.rows(
            ORDERS,
            Update({"id": 10, "note": "a"}, old={"id": 1}, unchanged=unchanged),
            Insert({"id": 1, "note": "b", "doc": "other"}),
            Update({"id": 11, "note": "c"}, old={"id": 10}, unchanged=unchanged),
            Update({"id": 10, "note": "d"}, old={"id": 2}, unchanged=unchanged),
            Update({"id": 2, "note": "e"}, old={"id": 1}, unchanged=unchanged),
        )
        _run(kit, scenario, ORDERS, rows)

    def test_a_key_of_several_columns_in_another_order_than_the_table(self, kit: DestinationKit) -> None:
        schema = table_schema(
            column("b", 1), column("v", 2), column("a", 3, NUMERIC, typmod=NUMERIC_10_2), key=("a", "b")
        )
        scenario = Scenario()
        rows: list[PlainRow] = [{"b": "x", "v": "1", "a": number} for number in range(4)]
        scenario.start(schema, rows)
        scenario.rows(
            schema,
            Update({"b": "x", "v": "2", "a": 1}),
            Update({"b": "y", "v": "3", "a": 2}, old={"b": "x", "a": 2}),
            Delete({"b": "x", "a": 3}),
            Insert({"b": "x", "v": "4", "a": 2}),
        )
        _run(kit, scenario, schema, rows)

    def test_full_identity_with_a_key_is_mirrored_by_the_key(self, kit: DestinationKit) -> None:
        schema = table_schema(*ORDERS.columns, identity=ReplicaIdentity.FULL)
        scenario, rows = _start(schema)
        scenario.rows(
            schema,
            Update({"id": 1, "note": "x", "doc": "E"}, old=rows[0]),
            Update({"id": 3, "note": "z", "doc": "D2"}, old=rows[1]),
            Delete({"id": 1, "note": "x", "doc": "E"}),
        )
        _run(kit, scenario, schema, rows)

    def test_truncate_stands_in_order_with_the_rows(self, kit: DestinationKit) -> None:
        scenario, rows = _start()
        scenario.start(ITEMS)
        scenario.rows(ORDERS, Insert({"id": 3}))
        scenario.truncate(ORDERS, ITEMS)
        scenario.rows(ORDERS, Insert({"id": 4}))
        scenario.rows(ITEMS, Insert({"id": 1, "amount": 2}))
        scenario.truncate(ORDERS)
        scenario.rows(ORDERS, Insert({"id": 5, "note": "last"}), Update({"id": 5, "note": "really"}))
        world = World(kit)
        world.copy(ORDERS, rows)
        world.copy(ITEMS)
        world.write(scenario.events)
        assert world.rows(ORDERS) == scenario.expected(ORDERS)
        assert world.rows(ITEMS) == scenario.expected(ITEMS)

    def test_an_old_row_that_is_not_there_is_counted(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1}])
        report = world.write(
            [stream.rows(ORDERS, Delete({"id": 8}), Update({"id": 9, "note": "x"}), Delete({"id": 1}))]
        )
        assert report.unmatched == {ORDERS.oid: 2}
        assert world.rows(ORDERS) == multiset([{"id": 9, "note": "x", "doc": None}])

    def test_a_key_value_that_is_null_is_refused(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        report = world.writer.write([stream.rows(ORDERS, Insert({"id": None, "note": "secret"}))])
        assert "'id'" in report.failed[ORDERS.oid].message
        assert "secret" not in str(report.failed[ORDERS.oid])


class ValueRules:
    """Values arrive as they were."""

    def test_json_text_and_empty_strings_are_kept_as_sent(self, kit: DestinationKit) -> None:
        schema = table_schema(column("id", 1, INT8), column("j", 2, JSONB), column("t", 3))
        rows: list[PlainRow] = [
            {"id": 1, "j": '{"b": 1, "a": [1.50, null]}', "t": ""},
            {"id": 2, "j": "null", "t": None},
        ]
        world, stream = World(kit), Stream()
        world.copy(schema, rows)
        world.write([stream.rows(schema, *(Insert({**row, "id": row["id"] + 10}) for row in rows))])
        assert world.rows(schema) == multiset([*rows, *({**row, "id": row["id"] + 10} for row in rows)])

    def test_an_unrepresentable_value_is_null_in_its_column(self, kit: DestinationKit) -> None:
        schema = table_schema(column("id", 1, INT8), column("n", 2, NUMERIC, typmod=NUMERIC_10_2))
        world, stream = World(kit), Stream()
        world.copy(schema)
        run = stream.rows(schema, Insert({"id": 1, "n": None}, unrepresentable={"n": "NaN"}))
        world.write([run])
        assert world.rows(schema) == multiset([{"id": 1, "n": None}])


def _run(
    kit: DestinationKit, scenario: Scenario, schema: ReplicatedTableSchema, rows: list[PlainRow]
) -> World:
    world = World(kit)
    world.copy(schema, rows)
    world.write(scenario.events)
    assert world.rows(schema) == scenario.expected(schema)
    return world


def _start(schema: ReplicatedTableSchema = ORDERS) -> tuple[Scenario, list[PlainRow]]:
    rows: list[PlainRow] = [{"id": 1, "note": "one", "doc": "D1"}, {"id": 2, "note": "two", "doc": "D2"}]
    scenario = Scenario()
    scenario.start(schema, rows)
    return scenario, rows

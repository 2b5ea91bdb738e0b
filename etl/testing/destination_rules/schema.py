"""Schema changes: a Relation is the point from which rows are under the new schema."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.ddl.operations import ActualColumn
from etl.destinations.base import SchemaStatus
from etl.destinations.writer import WriteReport
from etl.errors import DestinationTableError
from etl.schema.defaults import parse_default
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.testing.builders import (
    BOOL,
    DATE,
    INT8,
    JSONB,
    NUMERIC,
    NUMERIC_10_2,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Delete,
    Insert,
    Stream,
    Update,
    altered,
    column,
    table_schema,
)
from etl.testing.destination_kit import ITEMS, ORDERS, DestinationKit, Scenario, World, multiset

#: Defaults of every supported shape, and the type of a column that has it.
DEFAULTS: dict[str, tuple[int, int, str]] = {
    "string": (TEXT, -1, "'pending'::text"),
    "string with quotes": (TEXT, -1, "'don''t; -- \\ \"x\"'::text"),
    "empty string": (TEXT, -1, "''::text"),
    "integer": (INT8, -1, "42"),
    "negative integer": (INT8, -1, "'-1'::integer"),
    "numeric": (NUMERIC, NUMERIC_10_2, "42.10"),
    "unbounded numeric": (NUMERIC, -1, "'12345678901234567890123456789012345678901234567890.5'::numeric"),
    "true": (BOOL, -1, "true"),
    "false": (BOOL, -1, "false"),
    "date": (DATE, -1, "'2026-01-01'::date"),
    "time": (TIME, -1, "'12:30:00'::time without time zone"),
    "timestamp": (TIMESTAMP, -1, "'2026-01-01 12:30:00'::timestamp without time zone"),
    "timestamptz": (TIMESTAMPTZ, -1, "'2026-01-01 12:30:00+02'::timestamp with time zone"),
    "json": (JSONB, -1, '\'{"enabled": true, "n": [1, null]}\'::jsonb'),
    "uuid": (UUID, -1, "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid"),
}


class SchemaRules:
    """Adds, drops, renames, defaults; what is skipped and what is refused."""

    def test_a_batch_may_hold_several_relations_of_one_table(self, kit: DestinationKit) -> None:
        world, scenario = World(kit), Scenario()
        rows = [{"id": 1, "note": "one", "doc": "D"}]
        world.copy(ORDERS, rows)
        scenario.start(ORDERS, rows)
        schema = ORDERS
        for step in range(1, 5):
            names = ("note", f"name{step}") if step % 2 else (f"name{step}", "note")
            schema = altered(
                ORDERS, column("id", 1, INT8), column(names[0], 2), column(names[1], 3 + step), at=step
            )
            scenario.relation(schema)
            scenario.rows(
                schema,
                Insert({"id": 10 + step, names[0]: "p", names[1]: "q"}),
                Update({"id": 1, names[0]: f"{step}"}),
            )
        report = world.write(scenario.events)
        assert report.schema_changes == {ORDERS.oid: 4}
        assert world.rows(schema) == scenario.expected(schema)

    def test_rows_before_a_relation_are_under_the_old_schema_and_rows_after_it_under_the_new(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        swapped = altered(ORDERS, column("id", 1, INT8), column("doc", 2), column("note", 3))
        row = {"note": "n", "doc": "d"}
        world.write(
            [
                stream.rows(ORDERS, Insert({"id": 1, **row})),
                stream.relation(swapped),
                stream.rows(swapped, Insert({"id": 2, **row})),
            ]
        )
        assert world.rows(swapped) == multiset(
            [{"id": 1, "doc": "n", "note": "d"}, {"id": 2, "doc": "d", "note": "n"}]
        )

    def test_an_added_column_is_null_in_rows_that_were_there(self, kit: DestinationKit) -> None:
        later = altered(
            ORDERS, *ORDERS.columns, column("state", 4, default_expression="'new'::text", missing_value="new")
        )
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1}])
        world.write([stream.relation(later), stream.rows(later, Insert({"id": 2, "state": "sent"}))])
        assert {dict(row)["id"]: dict(row)["state"] for row in world.rows(later)} == {1: None, 2: "sent"}

    def test_a_dropped_name_comes_back_as_a_new_column(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "old"}])
        again = altered(ORDERS, column("id", 1, INT8), column("doc", 3), column("note", 4, INT8))
        world.write([stream.relation(again), stream.rows(again, Insert({"id": 2, "note": 5}))])
        assert {dict(row)["id"]: dict(row)["note"] for row in world.rows(again)} == {1: None, 2: 5}

    def test_every_column_may_be_replaced_by_another(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [])
        other = altered(ORDERS, column("id", 5, INT8), column("note", 6, INT8), key=("id",))
        world.write([stream.relation(other), stream.rows(other, Insert({"id": 1, "note": 2}))])
        assert world.rows(other) == multiset([{"id": 1, "note": 2}])

    def test_a_rename_that_only_changes_the_case(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "n"}])
        loud = altered(ORDERS, column("id", 1, INT8), column("NOTE", 2), column("doc", 3))
        world.write([stream.relation(loud), stream.rows(loud, Update({"id": 1, "NOTE": "m"}))])
        assert world.rows(loud) == multiset([{"id": 1, "NOTE": "m", "doc": None}])

    def test_a_renamed_key_still_finds_its_rows(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "n"}])
        renamed = altered(ORDERS, column("order_id", 1, INT8), column("note", 2), column("doc", 3))
        world.write([stream.relation(renamed), stream.rows(renamed, Delete({"order_id": 1}))])
        assert not world.rows(renamed)

    def test_a_column_that_carries_a_comment_of_the_source_keeps_its_identity(
        self, kit: DestinationKit
    ) -> None:
        world = World(kit)
        noted = replace(ORDERS.columns[1], comment="what's `said`; -- pg:1.1")
        world.copy(altered(ORDERS, ORDERS.columns[0], noted, ORDERS.columns[2]), [{"id": 1, "note": "one"}])
        renamed = altered(ORDERS, ORDERS.columns[0], column("text", 2), ORDERS.columns[2])
        world.write([Stream().relation(renamed)])
        assert world.rows(renamed) == multiset([{"id": 1, "text": "one", "doc": None}])

    def test_the_same_relation_again_changes_nothing(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        again = replace(
            ORDERS, schema=ORDERS.schema.at(altered(ORDERS, *ORDERS.columns, at=9).schema.snapshot_id)
        )
        report = world.write(
            [stream.relation(ORDERS), stream.rows(ORDERS, Insert({"id": 1})), stream.relation(again)]
        )
        assert not report.schema_changes

    @pytest.mark.parametrize("shape", DEFAULTS)
    def test_a_supported_default_is_installed_and_removed(self, kit: DestinationKit, shape: str) -> None:
        type_oid, typmod, expression = DEFAULTS[shape]
        plain = column("d", 4, type_oid, typmod=typmod)
        with_default = replace(plain, default_expression=expression)
        world = World(kit)
        if rendered(world, with_default) is None:
            _expect_skipped(world, with_default)
            return
        world.copy(altered(ORDERS, *ORDERS.columns, plain))
        _change(world, with_default, at=1)
        assert described(world, ORDERS, "d").default == rendered(world, with_default)
        _change(world, plain, at=2)
        assert described(world, ORDERS, "d").default is None
        _change(world, with_default, at=3)
        _change(world, replace(plain, default_expression="now()"), at=4)
        assert described(world, ORDERS, "d").default is None

    @pytest.mark.parametrize("shape", DEFAULTS)
    def test_a_new_column_and_a_new_table_get_their_defaults(self, kit: DestinationKit, shape: str) -> None:
        type_oid, typmod, expression = DEFAULTS[shape]
        with_default = column("d", 4, type_oid, typmod=typmod, default_expression=expression)
        world = World(kit)
        world.copy(ORDERS, [{"id": 1}])
        _change(world, with_default, at=1)
        assert described(world, ORDERS, "d").default == rendered(world, with_default)
        created = table_schema(*ORDERS.columns, with_default, oid=3, name="other")
        world.copy(created)
        assert described(world, created, "d").default == rendered(world, with_default)

    @pytest.mark.parametrize("expression", ["now()", "nextval('s'::regclass)", "md5('x'::text)", "ARRAY[1]"])
    def test_a_default_that_is_no_literal_is_reported_and_rows_go_on(
        self, kit: DestinationKit, expression: str
    ) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        later = altered(ORDERS, *ORDERS.columns, column("d", 4, default_expression=expression))
        report = world.write([stream.relation(later), stream.rows(later, Insert({"id": 1, "d": "v"}))])
        assert [(skip.column, skip.attnum) for skip in report.skipped[ORDERS.oid]] == [("d", 4)]
        assert described(world, later, "d").default is None
        assert sum(world.rows(later).values()) == 1

    def test_nullability_is_reported_and_not_applied(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS)
        strict = altered(ORDERS, column("id", 1, INT8), column("note", 2, nullable=False), column("doc", 3))
        report = world.write([stream.relation(strict), stream.rows(strict, Insert({"id": 1, "note": "n"}))])
        assert [skip.column for skip in report.skipped[ORDERS.oid]] == ["note"]
        world.write([stream.relation(ORDERS), stream.rows(ORDERS, Insert({"id": 2, "note": None}))])
        assert sum(world.rows(ORDERS).values()) == 2

    def test_columns_hidden_and_shown_by_the_publication_come_and_go(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        hidden = replace(ORDERS, replication_mask=(True, True, False))
        world.copy(hidden, [{"id": 1, "note": "n"}])
        report = world.write([stream.relation(ORDERS), stream.rows(ORDERS, Insert({"id": 2, "doc": "d"}))])
        assert report.schema_changes == {ORDERS.oid: 1}
        assert world.rows(ORDERS) == multiset(
            [{"id": 1, "note": "n", "doc": None}, {"id": 2, "note": None, "doc": "d"}]
        )
        world.write([stream.relation(hidden), stream.rows(hidden, Update({"id": 2, "note": "m"}))])
        assert world.rows(hidden) == multiset([{"id": 1, "note": "n"}, {"id": 2, "note": "m"}])

    def test_names_that_collide_by_case_are_refused_where_case_does_not_count(
        self, kit: DestinationKit
    ) -> None:
        world, stream = World(kit), Stream()
        both = altered(ORDERS, *ORDERS.columns, column("Note", 4))
        world.copy(ORDERS, [{"id": 1}])
        world.copy(ITEMS)
        report = world.writer.write(
            [
                stream.relation(both),
                stream.rows(both, Insert({"id": 2, "note": "a", "Note": "b"})),
                stream.rows(ITEMS, Insert({"id": 1})),
            ]
        )
        if not world.destination.capabilities.case_insensitive_names:
            assert not report.failed
            return
        assert "'note'" in report.failed[ORDERS.oid].message
        assert "'Note'" in report.failed[ORDERS.oid].message
        assert world.journal.recorded[ORDERS.oid].status is SchemaStatus.APPLIED
        assert world.columns(ORDERS) == {("id", 1), ("note", 2), ("doc", 3)}
        assert sum(world.rows(ITEMS).values()) == 1
        with pytest.raises(DestinationTableError, match="'Note'"):
            world.copy(table_schema(*both.columns, oid=9, name="colliding"))

    def test_a_key_that_existing_rows_lack_is_refused(self, kit: DestinationKit) -> None:
        rekeyed = altered(ORDERS, *ORDERS.columns, column("uid", 4, INT8), key=("uid",))
        for rows, fails in (([{"id": 1}], True), ([], False)):
            world, stream = World(kit.fresh()), Stream()
            world.copy(ORDERS, rows)
            report = world.writer.write(
                [stream.relation(rekeyed), stream.rows(rekeyed, Insert({"id": 2, "uid": 3}))]
            )
            assert (ORDERS.oid in report.failed) is fails

    def test_another_key_of_columns_that_were_always_there_is_taken(self, kit: DestinationKit) -> None:
        world, stream = World(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "a"}, {"id": 1, "note": "b"}])
        rekeyed = altered(ORDERS, *ORDERS.columns, key=("note", "id"))
        world.write([stream.relation(rekeyed), stream.rows(rekeyed, Delete({"id": 1, "note": "b"}))])
        assert world.rows(rekeyed) == multiset([{"id": 1, "note": "a", "doc": None}])


def described(world: World, schema: ReplicatedTableSchema, name: str) -> ActualColumn:
    """One column as it really is."""
    actual = world.destination.describe(world.table(schema))
    assert actual is not None
    return next(found for found in actual.columns if found.name == name)


def rendered(world: World, source: ColumnSchema) -> str | None:
    """The column's default in the destination's normal form."""
    literal = parse_default(source.default_expression, source.type_oid)
    assert literal is not None
    return world.destination.render_default(source, literal)


def _change(world: World, new: ColumnSchema, at: int) -> WriteReport:
    later = altered(ORDERS, *ORDERS.columns, new, at=at)
    return world.write([Stream(commit_lsn=0x1000 * at).relation(later)])


def _expect_skipped(world: World, with_default: ColumnSchema) -> None:
    world.copy(ORDERS)
    report = _change(world, with_default, at=1)
    assert [skip.column for skip in report.skipped[ORDERS.oid]] == ["d"]
    assert described(world, ORDERS, "d").default is None

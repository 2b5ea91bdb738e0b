"""Changelog mode: every change is one more row."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from etl.destinations.base import TableMode
from etl.events import Event
from etl.schema.table import ReplicatedTableSchema
from etl.testing.builders import INT8, Delete, Insert, PlainRow, Stream, Update, altered, column, table_schema
from etl.testing.destination_kit import ORDERS, DestinationKit, World

_METADATA = ("_etl_op", "_etl_commit_lsn", "_etl_ordinal", "_etl_commit_ts", "_etl_unchanged")


class ChangelogRules:
    """What is appended, in which order, and that nothing is ever taken back."""

    def test_every_change_is_appended_with_its_operation_and_place(self, kit: DestinationKit) -> None:
        world, stream = _world(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "one", "doc": "D"}])
        world.write(
            [
                stream.rows(
                    ORDERS,
                    Insert({"id": 2, "note": "two"}),
                    Update({"id": 1, "note": "x"}, unchanged=frozenset({"doc"})),
                    Delete({"id": 2}),
                ),
                stream.commit(),
                stream.truncate(ORDERS),
            ]
        )
        rows = _log(world, ORDERS)
        assert [(row["_etl_op"], row["id"], row["note"], row["doc"]) for row in rows] == [
            ("copy", 1, "one", "D"),
            ("insert", 2, "two", None),
            ("update", 1, "x", None),
            ("delete", 2, None, None),
            ("truncate", None, None, None),
        ]
        places = [(0, 0), (0x1000, 1), (0x1000, 2), (0x1000, 3), (0x1100, 1)]
        assert [(row["_etl_commit_lsn"], row["_etl_ordinal"]) for row in rows] == places
        assert [row["_etl_unchanged"] for row in rows] == [None, None, ["doc"], None, None]
        assert rows[0]["_etl_commit_ts"] is None
        assert rows[1]["_etl_commit_ts"] == datetime.fromtimestamp(1_700_000_000, UTC)
        assert rows[4]["_etl_commit_ts"] == datetime.fromtimestamp(1_700_000_001, UTC)

    def test_a_changed_schema_changes_the_changelog_too(self, kit: DestinationKit) -> None:
        world, stream = _world(kit), Stream()
        world.copy(ORDERS, [{"id": 1, "note": "one", "doc": "D"}])
        later = altered(ORDERS, column("id", 1, INT8), column("text", 2), column("new", 4))
        world.write([stream.relation(later), stream.rows(later, Insert({"id": 2, "text": "t", "new": "n"}))])
        assert world.columns(later) == {("id", 1), ("text", 2), ("new", 4)}
        rows = [{name: row[name] for name in ("id", "text", "new")} for row in _log(world, later)]
        assert rows == [{"id": 1, "text": "one", "new": None}, {"id": 2, "text": "t", "new": "n"}]

    def test_replaying_appends_nothing(self, kit: DestinationKit) -> None:
        world, stream = _world(kit), Stream()
        world.copy(ORDERS)
        events: list[Event] = [
            stream.rows(ORDERS, Insert({"id": 1}), Delete({"id": 1})),
            stream.truncate(ORDERS),
            stream.rows(ORDERS, Insert({"id": 1})),
        ]
        world.write(events)
        world.restart()
        for start in range(len(events)):
            world.write(events[start:])
        assert [row["_etl_op"] for row in _log(world, ORDERS)] == [
            "insert",
            "delete",
            "truncate",
            "insert",
        ]

    def test_a_column_with_a_metadata_name_is_refused_here_and_only_here(self, kit: DestinationKit) -> None:
        schema = table_schema(column("id", 1, INT8), column("_etl_op", 2))
        world = _world(kit)
        report = None
        try:
            world.copy(schema)
        except Exception as error:  # noqa: BLE001 -- the rule is about which one it is
            report = error
        assert type(report).__name__ == "DestinationTableError"
        assert "_etl_op" in str(report)
        mirror = World(kit.fresh())
        mirror.copy(schema, [{"id": 1, "_etl_op": "mine"}])
        assert sum(mirror.rows(schema).values()) == 1


def _world(kit: DestinationKit) -> World:
    return World(kit, modes=lambda _: TableMode.CHANGELOG)


def _log(world: World, schema: ReplicatedTableSchema) -> Sequence[PlainRow]:
    rows = world.kit.rows(world.table(schema))
    assert all(set(_METADATA) <= set(row) for row in rows)
    return sorted(rows, key=lambda row: (row["_etl_commit_lsn"], row["_etl_ordinal"]))

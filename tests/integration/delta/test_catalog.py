"""Tables that a catalog of Spark keeps: the same rules, other names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl.destinations.base import DestinationTable
from etl.destinations.delta.places import Places
from etl.errors import DestinationTableError
from etl.spark.session import new_session
from etl.testing.builders import INT8, Delete, Insert, PlainRow, Stream, Update, altered, column, table_schema
from etl.testing.delta_kit import TEST_SPARK, DeltaKit
from etl.testing.destination_kit import World, multiset

ORDERS = table_schema(column("id", 1, INT8), column("note", 2), schema="Shop.eu", name="or`ders; --")
NAMESPACE = "shop_x2e_eu"


class CatalogKit(DeltaKit):
    """Tables in ``spark_catalog``; only Spark knows where they lie."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.settings = replace(
            self.settings, path=None, catalog="spark_catalog", staging=str(directory / "staging")
        )

    def rows(self, table: DestinationTable) -> list[PlainRow]:
        return [row.asDict() for row in sql(f"SELECT * FROM {Places(self.settings).table(table.name).sql}")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    drop_all()
    yield World(CatalogKit(tmp_path))
    drop_all()


def sql(statement: str) -> list[Any]:
    return new_session(TEST_SPARK).sql(statement).collect()


def drop_all() -> None:
    for namespace in ("`Shop_x2e_eu`", "_etl"):
        sql(f"DROP NAMESPACE IF EXISTS {namespace} CASCADE")


def test_a_table_lives_in_the_namespace_of_its_schema_through_all_its_life(world: World) -> None:
    stream = Stream()
    world.copy(ORDERS, [{"id": 1, "note": "one"}])
    renamed = altered(ORDERS, column("id", 1, INT8), column("text", 2), column("more", 3))
    world.write([stream.rows(ORDERS, Insert({"id": 2, "note": "two"}), Update({"id": 1, "note": "uno"}))])
    world.restart()
    world.write(
        [stream.relation(renamed), stream.rows(renamed, Insert({"id": 3, "more": "m"}), Delete({"id": 2}))]
    )
    assert world.rows(renamed) == multiset(
        [{"id": 1, "text": "uno", "more": None}, {"id": 3, "text": None, "more": "m"}]
    )
    assert [row.namespace for row in sql("SHOW TABLES IN Shop_x2e_eu")] == [NAMESPACE]
    world.copies.create(renamed)
    assert sum(world.rows(renamed).values()) == 2
    world.finish(renamed, 0)
    assert not world.rows(renamed)
    assert world.columns(renamed) == {("id", 1), ("text", 2), ("more", 3)}
    assert [row.tableName for row in sql("SHOW TABLES IN _etl")] == ["control", "unrepresentable"]
    world.destination.drop_table(world.table(ORDERS))
    assert sql("SHOW TABLES IN Shop_x2e_eu") == []


def test_a_table_that_somebody_else_made_is_never_overwritten(world: World) -> None:
    world.copy(ORDERS)
    sql("CREATE TABLE Shop_x2e_eu.theirs (id INT) USING delta")
    theirs = table_schema(column("id", 1, INT8), oid=77, schema="Shop.eu", name="theirs")
    with pytest.raises(DestinationTableError, match="was not made by this pipeline"):
        world.copies.create(theirs)
    assert sql("SELECT * FROM Shop_x2e_eu.theirs") == []

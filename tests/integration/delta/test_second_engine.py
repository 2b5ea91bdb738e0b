"""A second engine reads what Spark wrote: delta-rs, which shares no code with Spark, finds the same rows.

It is asked through its query engine. Its other way, a PyArrow dataset, does not know column mapping and says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaProtocolError

from etl.destinations.base import CopyBatch, TableMode
from etl.destinations.delta.config import DeltaSettings
from etl.destinations.delta.places import Places
from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema
from etl.spark.session import new_session
from etl.testing.builders import (
    INT4,
    INT8,
    Change,
    Delete,
    Insert,
    Stream,
    Update,
    altered,
    column,
    table_schema,
)
from etl.testing.delta_kit import DeltaKit
from etl.testing.destination_kit import World
from tests.integration.delta.samples import ROWS, SAMPLES, stored

ID, NOTE, AMOUNT = column("id", 1, INT8), column("note", 2), column("amount", 3, INT4)


def settings_of(world: World) -> DeltaSettings:
    assert isinstance(world.kit, DeltaKit)
    return world.kit.settings


def by_spark(world: World, schema: ReplicatedTableSchema) -> pa.Table:
    place = Places(settings_of(world)).table(world.table(schema).name)
    return new_session(settings_of(world).spark).sql(f"SELECT * FROM {place.sql} ORDER BY 1").toArrow()


def by_delta_rs(world: World, schema: ReplicatedTableSchema) -> pa.Table:
    folder = Places(settings_of(world)).table(world.table(schema).name).folder
    assert folder is not None
    query = QueryBuilder().register("t", DeltaTable(folder)).execute("SELECT * FROM t ORDER BY 1")
    return pa.table(query.read_all())


def counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    """Rows without their order, each with the values of all columns by name."""
    names = sorted(rows.schema.names)
    return Counter(zip(*(map(repr, values(rows.column(name))) for name in names), strict=True))


def values(column: pa.ChunkedArray) -> list[Any]:
    return stored(plain(column))


def plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Views and large types as the types they are views and large ones of."""
    return column.cast(plain_type(column.type))


def plain_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


class Story:
    """A table, what happens to it, and what both engines say after each step."""

    def __init__(self, world: World, schema: ReplicatedTableSchema) -> None:
        self.world, self.schema, self.stream = world, schema, Stream()

    def becomes(self, columns: tuple[ColumnSchema, ...], *changes: Change) -> None:
        self.schema = altered(self.schema, *columns)
        rows = [self.stream.rows(self.schema, *changes)] if changes else []
        self.world.write([self.stream.relation(self.schema), *rows])

    def rows(self, *changes: Change) -> None:
        self.world.write([self.stream.rows(self.schema, *changes)])

    def truncate(self) -> None:
        self.world.write([self.stream.truncate(self.schema)])


STRANGE = "é, `;{}()= ${env:HOME}"
STEPS: list[tuple[str, Callable[[Story], None]]] = [
    (
        "changes of every kind",
        lambda s: s.rows(
            *(Insert({"id": n, "note": f"n{n}", "amount": n}) for n in range(10, 20)),
            Update({"id": 3, "note": "changed"}),
            Update({"id": 10, "note": "", "amount": -1}),
            Delete({"id": 2}),
            Delete({"id": 11}),
        ),
    ),
    (
        "keys that change, also without the values that were not sent",
        lambda s: s.rows(
            Update({"id": 99, "note": "moved"}, {"id": 1}),
            Update({"id": 98}, {"id": 12}, frozenset({"note", "amount"})),
        ),
    ),
    (
        "a rename",
        lambda s: s.becomes(
            (ID, column("remark", 2), AMOUNT), Insert({"id": 30, "remark": "r", "amount": 3})
        ),
    ),
    (
        "a swap of names",
        lambda s: s.becomes(
            (ID, column("amount", 2), column("remark", 3, INT4)),
            Update({"id": 30, "amount": "text", "remark": 4}),
        ),
    ),
    ("a drop", lambda s: s.becomes((ID, column("amount", 2)))),
    (
        "the name again and a strange one, as other columns",
        lambda s: s.becomes(
            (ID, column("amount", 2), column("remark", 4), column(STRANGE, 5)),
            Insert({"id": 31, "amount": "a", "remark": "new", STRANGE: "s"}),
            Delete({"id": 13}),
        ),
    ),
    ("a truncate", Story.truncate),
    ("rows after the truncate", lambda s: s.rows(Insert({"id": 1, "amount": "a"}))),
]


def test_after_every_step_of_a_table_delta_rs_reads_the_rows_that_spark_reads(lake: World):
    schema = table_schema(ID, NOTE, AMOUNT, oid=18000, name="second_engine")
    lake.copy(schema, [{"id": n, "note": f"c{n}"} for n in range(1, 6)])
    story = Story(lake, schema)
    told = {"the copy": both(story)}
    for name, step in STEPS:
        step(story)
        told[name] = both(story)
    differing = {name: pair for name, pair in told.items() if pair[0] != pair[1]}
    assert not differing
    assert told["the copy"][0].total() == 5
    assert told["the name again and a strange one, as other columns"][0].total() > 10
    assert told["a truncate"][0].total() == 0
    assert told["rows after the truncate"][0] == Counter({("'a'", "1", "None", "None"): 1})


def both(story: Story) -> tuple[Counter[tuple[Any, ...]], Counter[tuple[Any, ...]]]:
    spark, delta_rs = by_spark(story.world, story.schema), by_delta_rs(story.world, story.schema)
    assert delta_rs.schema.names == spark.schema.names
    return counted(spark), counted(delta_rs)


def test_equal_rows_of_a_table_without_a_key_are_counted_alike(lake: World):
    schema = table_schema(
        ID, NOTE, AMOUNT, key=(), identity=ReplicaIdentity.FULL, oid=18001, name="second_log"
    )
    twice = {"id": 1, "note": "twice", "amount": None}
    lake.copy(schema, [twice, twice, {"id": 2}, {}])
    story = Story(lake, schema)
    story.rows(Insert(twice), Delete({"id": 2, "note": None, "amount": None}), Update({"id": 3}, twice))
    spark, delta_rs = both(story)
    assert (
        delta_rs
        == spark
        == Counter({("None", "1", "'twice'"): 2, ("None",) * 3: 1, ("None", "3", "None"): 1})
    )


def test_a_changelog_is_read_alike(lake: World):
    world = World(lake.kit.fresh(), modes=lambda _: TableMode.CHANGELOG)
    schema = table_schema(ID, NOTE, AMOUNT, oid=18002, name="second_changes")
    world.copy(schema, [{"id": 1, "note": "copied"}])
    story = Story(world, schema)
    story.rows(
        Insert({"id": 2}), Update({"id": 2, "note": "n"}, unchanged=frozenset({"amount"})), Delete({"id": 1})
    )
    story.truncate()
    spark, delta_rs = both(story)
    assert delta_rs == spark
    assert sorted(by_delta_rs(world, schema)["_etl_op"].to_pylist()) == [
        "copy",
        "delete",
        "insert",
        "truncate",
        "update",
    ]


def test_values_of_every_type_are_read_alike(lake: World):
    schema = table_schema(ID, *(s.column for s in SAMPLES), oid=18003, name="second_types")
    lake.copies.create(schema)
    arrays = [pa.array(np.arange(ROWS)), *(s.array for s in SAMPLES)]
    lake.copies.copy_rows(schema, CopyBatch(pa.record_batch(arrays, names=[c.name for c in schema.columns])))
    lake.finish(schema, ROWS)
    spark, delta_rs = by_spark(lake, schema), by_delta_rs(lake, schema)
    assert delta_rs.schema.names == spark.schema.names
    differing = [
        f"{sample.column.type_name}: {theirs.type}"
        for sample in SAMPLES
        for ours, theirs in [(spark[sample.column.name], delta_rs[sample.column.name])]
        if (plain_type(ours.type), values(ours)) != (plain_type(theirs.type), values(theirs))
    ]
    assert not differing


def test_the_dataset_of_delta_rs_refuses_column_mapping_and_reads_nothing_wrong(lake: World):
    schema = table_schema(ID, oid=18004, name="second_dataset")
    lake.copy(schema, [{"id": 1}])
    folder = Places(settings_of(lake)).table(lake.table(schema).name).folder
    assert folder is not None
    with pytest.raises(DeltaProtocolError, match="columnMapping"):
        DeltaTable(folder).to_pyarrow_table()

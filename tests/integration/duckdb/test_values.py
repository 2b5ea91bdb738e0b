"""Types and values: what a column becomes, what fits into it later, and that nothing is bent to fit."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.destinations.base import CopyBatch
from etl.destinations.duckdb.dialect import (
    column_type,
    literal,
    quote,
    render_default,
    same_name,
)
from etl.destinations.naming import printable_name, split_name
from etl.events import Unrepresentable
from etl.schema.defaults import DefaultLiteral, LiteralKind
from etl.schema.table import ReplicatedTableSchema
from etl.schema.types import TypeOptions, known_types
from etl.testing.builders import (
    BOOL,
    DATE,
    INT4,
    INT8,
    JSON,
    JSONB,
    NUMERIC,
    NUMERIC_10_2,
    TEXT,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    Insert,
    Stream,
    Update,
    altered,
    batch,
    column,
    table_schema,
)
from etl.testing.destination_kit import World
from etl.testing.duckdb_kit import DuckDBKit

BYTEA, FLOAT4, FLOAT8, INT2, OID, INT4_ARRAY, TEXT_ARRAY, UUID_ARRAY, JSONB_ARRAY, INTERVAL, TIMETZ, INET = (
    17,
    700,
    701,
    21,
    26,
    1007,
    1009,
    2951,
    3807,
    1186,
    1266,
    869,
)
SOME_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

#: type oid, typmod, the DuckDB type, a value
TYPES: list[tuple[int, int, str, Any]] = [
    (BOOL, -1, "BOOLEAN", True),
    (INT2, -1, "SMALLINT", -(2**15)),
    (INT4, -1, "INTEGER", 2**31 - 1),
    (INT8, -1, "BIGINT", -(2**63)),
    (OID, -1, "UINTEGER", 2**32 - 1),
    (FLOAT4, -1, "FLOAT", 0.5),
    (FLOAT8, -1, "DOUBLE", 1e300),
    (FLOAT8, -1, "DOUBLE", float("inf")),
    (NUMERIC, NUMERIC_10_2, "DECIMAL(10,2)", Decimal("-12345678.90")),
    (NUMERIC, (38 << 16 | 38) + 4, "DECIMAL(38,38)", Decimal("0." + "9" * 38)),
    (NUMERIC, -1, "VARCHAR", "1" * 500 + ".50"),
    (TEXT, -1, "VARCHAR", "a\nb\\'\"é😀"),
    (BYTEA, -1, "BLOB", b"\x00\xff"),
    (DATE, -1, "DATE", date(1, 1, 1)),
    (TIME, -1, "TIME", time(23, 59, 59, 999999)),
    (TIMESTAMP, -1, "TIMESTAMP", datetime(2026, 1, 1, 12, 30, 0, 1)),  # noqa: DTZ001 -- has none
    (TIMESTAMPTZ, -1, "TIMESTAMP WITH TIME ZONE", datetime(2026, 1, 1, 12, 30, tzinfo=UTC)),
    (JSONB, -1, "JSON", '{"a": [1.50, null]}'),
    (JSON, -1, "JSON", '{"a":"\\ud800"}'),
    (JSONB, -1, "JSON", "1" + "0" * 400),
    (UUID, -1, "UUID", SOME_UUID),
    (INT4_ARRAY, -1, "INTEGER[]", [1, None, -3]),
    (TEXT_ARRAY, -1, "VARCHAR[]", ["", None, "NULL", '{"x"}']),
    (UUID_ARRAY, -1, "UUID[]", [SOME_UUID, None]),
    (JSONB_ARRAY, -1, "VARCHAR[]", ['{"a": 1}', None]),
    (INTERVAL, -1, "VARCHAR", "-1 years -2 mons +3 days -04:05:06"),
    (TIMETZ, -1, "VARCHAR", "04:05:06-08:30:15"),
    (INET, -1, "VARCHAR", "10.0.0.1/8"),
    (999_999, -1, "VARCHAR", "an enum's label"),
]


def plain(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(plain, value))
    return str(value) if type(value).__name__ == "UUID" else value


def stored(world: World, schema: ReplicatedTableSchema, name: str = "v") -> list[object]:
    rows = world.kit.rows(world.table(schema))
    return [plain(row[name]) for row in sorted(rows, key=lambda row: row["id"])]


@pytest.mark.parametrize(("type_oid", "typmod", "duckdb_type", "value"), TYPES)
def test_a_value_comes_back_as_it_went_in(
    tmp_path: Path, type_oid: int, typmod: int, duckdb_type: str, value: Any
):
    schema = table_schema(column("id", 1, INT8), column("v", 2, type_oid, typmod=typmod))
    world, stream = World(DuckDBKit(tmp_path)), Stream()
    table = world.copy(schema, [{"id": 1, "v": value}, {"id": 2, "v": None}])
    actual = world.destination.describe(table)
    assert actual is not None
    assert actual.columns[1].type == duckdb_type == column_type(schema.columns[1], TypeOptions())
    world.write([stream.rows(schema, Insert({"id": 3, "v": value}), Update({"id": 1, "v": None}))])
    assert stored(world, schema) == [None, None, plain(value)]


@pytest.mark.parametrize(("type_oid", "typmod", "duckdb_type", "value"), TYPES)
def test_a_value_that_was_not_sent_survives_in_its_type(
    tmp_path: Path, type_oid: int, typmod: int, duckdb_type: str, value: Any
):
    schema = table_schema(
        column("id", 1, INT8), column("v", 2, type_oid, typmod=typmod), column("w", 3, INT4)
    )
    world, stream = World(DuckDBKit(tmp_path)), Stream()
    world.copy(schema, [{"id": 1, "v": value}])
    unchanged = frozenset({"v"})
    run = stream.rows(
        schema,
        Insert({"id": 2, "v": value}),
        Update({"id": 2, "w": 1}, unchanged=unchanged),
        Update({"id": 1, "w": 1}, unchanged=unchanged),
    )
    world.write([run])
    assert stored(world, schema) == [plain(value)] * 2
    assert stored(world, schema, "w") == [1, 1]


def test_every_known_type_has_a_column_type_that_duckdb_spells_the_same(tmp_path: Path):
    columns = [column("id", 1, INT8)]
    columns += [column(f"c{t.oid}", place, t.oid) for place, t in enumerate(known_types(), start=2)]
    schema = table_schema(*columns)
    for options in (TypeOptions(), None):
        world = World(DuckDBKit(tmp_path))
        actual = world.destination.describe(world.copy(schema))
        assert actual is not None
        assert [c.type for c in actual.columns] == [column_type(c, options or TypeOptions()) for c in columns]
        world.destination.close()


@pytest.mark.parametrize(
    ("was", "becomes", "fits", "does_not"),
    [
        ((INT4, -1), (INT8, -1), 7, 2**40),
        ((INT4, -1), (TEXT, -1), "7", "07"),
        ((INT8, -1), (FLOAT8, -1), 3.0, 3.5),
        ((NUMERIC, NUMERIC_10_2), (NUMERIC, (12 << 16 | 4) + 4), Decimal("1.25"), Decimal("1.2345")),
        ((NUMERIC, NUMERIC_10_2), (NUMERIC, -1), "1.25", "NaN"),
        ((DATE, -1), (TIMESTAMP, -1), datetime(2026, 1, 1), datetime(2026, 1, 1, 1)),  # noqa: DTZ001
        ((JSONB, -1), (TEXT, -1), "[1]", "hello"),
        ((UUID, -1), (TEXT, -1), SOME_UUID, "no uuid"),
        ((BOOL, -1), (INT4, -1), 1, 2),
        ((FLOAT4, -1), (FLOAT8, -1), 0.5, 0.1),
        ((INT4_ARRAY, -1), (TEXT_ARRAY, -1), ["1"], ["x"]),
    ],
)
def test_after_a_type_change_a_value_goes_into_the_old_type_unchanged_or_not_at_all(
    tmp_path: Path, was: tuple[int, int], becomes: tuple[int, int], fits: Any, does_not: Any
):
    before = table_schema(column("id", 1, INT8), column("v", 2, was[0], typmod=was[1]))
    after = altered(before, column("id", 1, INT8), column("v", 2, becomes[0], typmod=becomes[1]))
    world, stream = World(DuckDBKit(tmp_path)), Stream()
    world.copy(before)
    world.write([stream.relation(after), stream.rows(after, Insert({"id": 1, "v": fits}))])
    assert len(stored(world, after)) == 1
    report = world.writer.write([stream.rows(after, Insert({"id": 2, "v": does_not}))])
    assert "'v'" in report.failed[after.oid].message
    assert str(does_not) not in str(report.failed[after.oid])
    assert len(stored(world, after)) == 1


@pytest.mark.parametrize(
    "becomes", [(INT8, -1, 5, "5"), (JSONB, -1, "[1]", "[1]"), (UUID, -1, SOME_UUID, SOME_UUID)]
)
def test_a_text_column_takes_the_values_of_what_it_became(tmp_path: Path, becomes: tuple[int, int, Any, str]):
    type_oid, typmod, value, text = becomes
    before = table_schema(column("id", 1, INT8), column("v", 2))
    after = altered(before, column("id", 1, INT8), column("v", 2, type_oid, typmod=typmod))
    world, stream = World(DuckDBKit(tmp_path)), Stream()
    world.copy(before)
    world.write([stream.relation(after), stream.rows(after, Insert({"id": 1, "v": value}))])
    assert stored(world, after) == [text]


def test_exact_texts_of_unrepresentable_values_are_kept_with_their_place(tmp_path: Path):
    schema = table_schema(column("id", 1, INT8), column("n", 2, NUMERIC, typmod=NUMERIC_10_2))
    kit = DuckDBKit(tmp_path)
    world, stream = World(kit), Stream()
    world.copy(schema)
    world.write([stream.rows(schema, Insert({"id": 1}), Insert({"id": 2}, unrepresentable={"n": "NaN"}))])
    kept = kit.query("SELECT table_oid, column_attnum, commit_lsn, ordinal, value FROM _etl.unrepresentable")
    assert kept == [
        {"table_oid": schema.oid, "column_attnum": 2, "commit_lsn": 0x1000, "ordinal": 2, "value": "NaN"}
    ]
    known = {"NaN"}
    for texts in (["NaN", "Infinity"], ["-Infinity"]):
        world.copies.create(schema)
        for text in texts:
            unheld = (Unrepresentable(0, 2, text),)
            world.copies.copy_rows(schema, CopyBatch(batch(schema, [{"id": 1}]), unheld))
        assert {row["value"] for row in kit.query("SELECT value FROM _etl.unrepresentable")} == known
        world.finish(schema, len(texts))
        known = set(texts)
        assert {row["value"] for row in kit.query("SELECT value FROM _etl.unrepresentable")} == known
    world.copy(schema)
    assert not kit.query("SELECT * FROM _etl.unrepresentable")
    assert not kit.query("SELECT * FROM _etl.copied_unrepresentable")


def test_nulls_are_equal_and_values_exact_when_rows_without_a_key_are_matched(tmp_path: Path):
    from etl.schema.table import ReplicaIdentity
    from etl.testing.builders import Delete

    columns = [
        column(f"c{place}", place, oid, typmod=typmod) for place, (oid, typmod, _, _) in enumerate(TYPES, 1)
    ]
    schema = table_schema(*columns, key=(), identity=ReplicaIdentity.FULL)
    full = {f"c{place}": value for place, (_, _, _, value) in enumerate(TYPES, 1)}
    world, stream = World(DuckDBKit(tmp_path)), Stream()
    world.copy(schema, [full, full, {}, {}])
    report = world.write([stream.rows(schema, Delete(full), Delete({}), Delete({**full, "c12": "other"}))])
    assert report.unmatched == {schema.oid: 1}
    assert len(world.kit.rows(world.table(schema))) == 2


@pytest.fixture(scope="module")
def memory() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        yield connection


# --- the dialect, purely ----------------------------------------------------------------------------------------

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_a_table_name_prints_injectively(schema: str, table: str):
    assert split_name(printable_name(schema, table)) == (schema, table)


@given(NAMES)
def test_a_quoted_name_and_a_literal_are_one_token(memory: duckdb.DuckDBPyConnection, name: str):
    described = memory.execute(f"SELECT {literal(name)} AS {quote(name)}")
    assert described.description is not None
    assert described.description[0][0] == name
    assert described.fetchall() == [(name,)]


@given(NAMES, NAMES)
@settings(max_examples=200)
def test_names_are_one_to_us_exactly_when_they_are_one_to_duckdb(
    memory: duckdb.DuckDBPyConnection, one: str, other: str
):
    memory.execute(f"CREATE OR REPLACE TABLE t ({quote(one)} INTEGER)")
    try:
        memory.execute(f"ALTER TABLE t ADD COLUMN {quote(other)} INTEGER")
    except duckdb.CatalogException:
        assert same_name(one) == same_name(other)
    else:
        assert same_name(one) != same_name(other)


@pytest.mark.parametrize("bad", ["", "a\0b"])
def test_what_is_no_identifier_is_refused(bad: str):
    with pytest.raises(ValueError, match="NUL"):
        quote(bad)


NUMBERS = st.decimals(
    allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9
).map(str)


@given(
    st.sampled_from([INT2, INT4, INT8, NUMERIC, FLOAT4, FLOAT8]),
    st.one_of(NUMBERS, st.integers(-(2**70), 2**70).map(str)),
)
@settings(max_examples=200)
def test_a_rendered_number_is_stored_as_written_and_means_the_number(
    memory: duckdb.DuckDBPyConnection, type_oid: int, text: str
):
    check_default(
        memory,
        column("d", 1, type_oid, typmod=NUMERIC_10_2 if type_oid == NUMERIC else -1),
        LiteralKind.NUMERIC,
        text,
    )


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40))
def test_a_rendered_string_is_stored_as_written_and_means_the_string(
    memory: duckdb.DuckDBPyConnection, text: str
):
    check_default(memory, column("d", 1, TEXT), LiteralKind.STRING, text)


@pytest.mark.parametrize(
    ("type_oid", "kind", "text"),
    [
        (INT4, LiteralKind.STRING, "1"),
        (INT4, LiteralKind.NUMERIC, "2147483648"),
        (INT4, LiteralKind.NUMERIC, "1.5"),
        (NUMERIC, LiteralKind.NUMERIC, "1.234"),
        (TIMESTAMPTZ, LiteralKind.TIMESTAMPTZ, "2026-01-01 12:30:00"),
        (DATE, LiteralKind.DATE, "infinity"),
        (TIME, LiteralKind.TIME, "24:00:00"),
        (INT4_ARRAY, LiteralKind.STRING, "{}"),
        (INET, LiteralKind.STRING, "10.0.0.1"),
    ],
)
def test_a_default_that_the_column_would_read_otherwise_is_not_rendered(
    type_oid: int, kind: LiteralKind, text: str
):
    typmod = NUMERIC_10_2 if type_oid == NUMERIC else -1
    rendered = render_default(
        column("d", 1, type_oid, typmod=typmod), DefaultLiteral(kind, text), TypeOptions()
    )
    assert rendered is None


def check_default(connection: duckdb.DuckDBPyConnection, source: Any, kind: LiteralKind, text: str) -> None:
    rendered = render_default(source, DefaultLiteral(kind, text), TypeOptions())
    if rendered is None:
        return
    connection.execute(f"CREATE OR REPLACE TABLE t (id INTEGER, d {column_type(source, TypeOptions())})")
    connection.execute(f"ALTER TABLE t ALTER COLUMN d SET DEFAULT {rendered}")
    shown = connection.execute(
        "SELECT column_default FROM duckdb_columns() WHERE table_name = 't' AND column_name = 'd'"
    ).fetchall()
    assert shown == [(rendered,)]
    connection.execute("INSERT INTO t (id) VALUES (1)")
    value = connection.execute("SELECT d FROM t").fetchall()[0][0]
    if kind is LiteralKind.NUMERIC:
        tolerance = abs(Decimal(text)) * Decimal("1e-6") if isinstance(value, float) else 0
        assert abs(Decimal(value) - Decimal(text)) <= tolerance
    else:
        assert value == text

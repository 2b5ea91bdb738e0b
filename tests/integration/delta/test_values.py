"""Every type of Postgres through Spark: what comes back is what went in, whichever way it went in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etl.destinations.base import CopyBatch
from etl.destinations.delta.dialect import column_type, literal, quote, same_name
from etl.destinations.delta.places import Places
from etl.events import OP_INSERT, OP_UPDATE, RowChanges, Unrepresentable
from etl.schema.table import ReplicaIdentity
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    TypeOptions,
)
from etl.spark.session import new_session
from etl.testing.builders import INT8, Delete, Stream, Update, batch, column, table_schema
from etl.testing.delta_kit import DeltaKit
from etl.testing.destination_kit import World
from tests.integration.delta.samples import ROWS, SAMPLES, TEXTS, Sampled, stored

INFINITE = {DATE_INFINITY, DATE_MINUS_INFINITY, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY}

EVERY_TYPE = table_schema(
    column("id", 1, INT8), *(sample.column for sample in SAMPLES), oid=17000, name="every_type"
)
#: The rows of each way in have ids from here on.
WAYS = {"copied": 0, "inserted": 100, "updated": 200, "left out of an update": 300}


def settings_of(lake: World) -> Any:
    assert isinstance(lake.kit, DeltaKit)
    return lake.kit.settings


def read(lake: World, sql: str) -> pa.Table:
    """Rows as Arrow has them: Python's own types know less."""
    return new_session(settings_of(lake).spark).sql(sql).toArrow()


def place(lake: World, schema: Any) -> str:
    return Places(settings_of(lake)).table(lake.table(schema).name).sql


def rows_of(way: str, samples: bool) -> pa.RecordBatch:
    ids = pa.array(np.arange(ROWS) + WAYS[way])
    values = [s.array if samples else pa.nulls(ROWS, s.array.type) for s in SAMPLES]
    return pa.record_batch([ids, *values], names=[c.name for c in EVERY_TYPE.columns])


def unrepresentable(start: int = 0) -> tuple[Unrepresentable, ...]:
    return tuple(
        Unrepresentable(row + start, s.column.attnum, text)
        for s in SAMPLES
        for row, text in s.unrepresentable
    )


def changes() -> RowChanges:
    """Inserts of the samples, updates to them, and updates that leave every value out."""
    count = 3 * ROWS
    return RowChanges(
        schema=EVERY_TYPE,
        ops=np.array([OP_INSERT] * ROWS + [OP_UPDATE] * 2 * ROWS, np.uint8),
        commit_lsn=np.full(count, 0x1000, np.uint64),
        ordinal=np.arange(1, count + 1, dtype=np.uint32),
        commit_timestamp=np.zeros(count, np.int64),
        new=pa.concat_batches(
            [
                rows_of("inserted", samples=True),
                rows_of("updated", samples=True),
                rows_of("left out of an update", samples=False),
            ]
        ),
        old=None,
        old_index=np.full(count, -1, np.int64),
        unchanged={s.column.name: np.arange(count) >= 2 * ROWS for s in SAMPLES},
        unrepresentable=unrepresentable() + unrepresentable(ROWS),
    )


@pytest.fixture(scope="module")
def written(lake: World) -> pa.Table:
    lake.copies.create(EVERY_TYPE)
    for way, samples in (("copied", True), ("updated", False), ("left out of an update", True)):
        known = unrepresentable() if way == "copied" else ()
        lake.copies.copy_rows(EVERY_TYPE, CopyBatch(rows_of(way, samples=samples), known))
    lake.finish(EVERY_TYPE, 3 * ROWS)
    lake.write([changes()])
    return read(lake, f"SELECT * FROM {place(lake, EVERY_TYPE)} ORDER BY id")


def expected(sample: Sampled) -> list[Any]:
    """What a column should hold: what was carried, times of day as text, and NULL for what Spark has no value for."""
    if pa.types.is_time64(sample.array.type):
        return sample.texts
    if pa.types.is_list(sample.array.type) and pa.types.is_time64(sample.array.type.value_type):
        return [elements(text) for text in sample.texts]
    temporal = pa.types.is_temporal(getattr(sample.array.type, "value_type", sample.array.type))
    return [None if temporal and is_infinite(value) else value for value in stored(sample.array)]


def elements(text: str) -> list[str | None]:
    return [None if item == "NULL" else item.strip('"') for item in text.strip("{}").split(",") if item]


def is_infinite(value: Any) -> bool:
    return value is not None and not INFINITE.isdisjoint(value if isinstance(value, list) else [value])


NAMES = [f"{s.column.type_name}-{s.column.attnum}" for s in SAMPLES]


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_values_of_every_type_come_back_whichever_way_they_went_in(written: pa.Table, sample: Sampled):
    assert written["id"].to_pylist() == [start + n for start in WAYS.values() for n in range(ROWS)]
    values = stored(written[sample.column.name])
    for way, start in enumerate(WAYS):
        assert values[way * ROWS : (way + 1) * ROWS] == expected(sample), start


def test_every_type_has_a_column_type_that_spark_spells_the_same(lake: World, written: pa.Table):
    actual = lake.destination.describe(lake.table(EVERY_TYPE))
    assert actual is not None
    types = {c.attnum: c.type for c in actual.columns}
    assert types == {c.attnum: column_type(c, TypeOptions()) for c in EVERY_TYPE.columns}


def test_what_became_null_is_kept_as_the_text_that_postgres_prints(lake: World, written: pa.Table):
    texts = Places(settings_of(lake)).housekeeping("unrepresentable").sql
    kept = read(
        lake,
        f"SELECT commit_lsn, ordinal, column_attnum, value FROM {texts} WHERE table_oid = {EVERY_TYPE.oid}",
    )
    told = {
        (sample.column.attnum, row, sample.texts[row])
        for sample in SAMPLES
        for row, value in enumerate(expected(sample))
        if value is None
    }
    assert {text for _, _, text in told} >= {"infinity", "-infinity", "NaN"}
    copied = {(0, row, attnum, text) for attnum, row, text in told}
    left_out = {entry for entry in copied if "infinity" in entry[3]}
    streamed = {(0x1000, row + start + 1, attnum, text) for attnum, row, text in told for start in (0, ROWS)}
    found = {tuple(map(unquoted, row.values())) for row in kept.to_pylist()}
    assert found == {tuple(map(unquoted, entry)) for entry in chain(copied, left_out, streamed)}


def unquoted(value: Any) -> Any:
    """Whether an element of an array is quoted does not matter to its value."""
    return value.replace('"', "") if isinstance(value, str) else value


#: A type, one of its texts, an expression of Spark over the column `v`, and what it should say.
WITNESSES = [
    ("timestamptz", "2024-02-29 12:34:56.7+00", "date_format(v, 'yyyy-MM-dd HH:mm:ss.S xxx')", "2024-02-29 12:34:56.7 +00:00"),
    ("timestamptz", "2024-02-29 12:34:56.7+00", "to_utc_timestamp(v, 'Asia/Kathmandu') = v - INTERVAL '05:45' HOUR TO MINUTE", True),
    ("timestamptz", "2024-02-29 12:34:56.7+00", "unix_micros(v)", 1709210096700000),
    ("timestamp", "2024-02-29 12:34:56.7", "CAST(v AS string)", "2024-02-29 12:34:56.7"),
    ("timestamp", "1582-10-10 12:00:00", "CAST(v AS string)", "1582-10-10 12:00:00"),
    ("timestamp", "4714-11-24 00:00:00 BC", "year(v)", -4713),
    ("timestamp", "294247-01-10 04:00:54.775806", "CAST(v AS string)", "+294247-01-10 04:00:54.775806"),
    ("date", "4714-11-24 BC", "unix_date(v)", -2440588),
    ("date", "5874897-12-31", "CAST(v AS string)", "+5874897-12-31"),
    ("date", "1582-10-10", "CAST(v AS string)", "1582-10-10"),
    ("float8", "NaN", "isnan(v)", True),
    ("float8", "-Infinity", "v < -1.7976931348623157E308D", True),
    ("float8", "5e-324", "CAST(v AS string)", "4.9E-324"),
    ("numeric(38,38)", "0." + "9" * 38, "CAST(v AS string)", "0." + "9" * 38),
    ("numeric(38,0)", "-" + "9" * 38, "CAST(v AS string)", "-" + "9" * 38),
    ("numeric(10,2)", "-0.01", "v + 0.01 = 0", True),
    ("oid", "4294967295", "v = 4294967295", True),
    ("bytea", r"\xff5c00", "hex(v)", "FF5C00"),
    ("time", "24:00:00", "v", "24:00:00"),
    ("text", "${env:HOME}", "length(v)", 11),
    ("jsonb", '{"a": "${env:HOME}"}', "get_json_object(v, '$.a')", "${env:HOME}"),
    ("_int4", '{"2147483647",NULL}', "v[0] = 2147483647 AND v[1] IS NULL AND size(v) = 2", True),
]  # fmt: skip


def test_spark_reads_a_value_as_postgres_means_it(lake: World, written: pa.Table):
    by_name = {s.column.type_name: s for s in SAMPLES}
    selects = []
    for name, text, expression, _ in WITNESSES:
        sample = by_name[name]
        row = sample.texts.index(text)
        cell = f"(SELECT {sample.column.name} AS v FROM {place(lake, EVERY_TYPE)} WHERE id = {row})"
        selects.append(f"SELECT CAST({expression} AS string) AS said FROM {cell}")
    said = [read(lake, select)["said"].to_pylist() for select in selects]
    assert said == [
        [str(value).lower() if isinstance(value, bool) else str(value)] for *_, value in WITNESSES
    ]


# --- rows found by their values -----------------------------------------------------------------------------------

#: Types that can be a key, with a value that only an exact comparison finds.
KEY_TEXTS = {
    "bool": "t",
    "int2": "-32768",
    "oid": "4294967295",
    "bytea": r"\xff5c00",
    "text": "\"q\",'x'`{}\\",
    "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "date": "4714-11-24 BC",
    "time": "24:00:00",
    "timestamp": "294247-01-10 04:00:54.775806",
    "timestamptz": "0001-12-31 23:59:59.999999+00 BC",
    "float8": "0.30000000000000004",
    "numeric(38,38)": "-0." + "9" * 38,
    "numeric": "1.500",
}


def test_a_row_is_found_by_a_key_of_any_type(lake: World):
    chosen = [s for s in SAMPLES if s.column.type_name in KEY_TEXTS]
    keys = [s.column.name for s in chosen]
    schema = table_schema(
        *(s.column for s in chosen), column("v", 900, INT8), key=keys, oid=17001, name="by_anything"
    )
    cells = [s.array.slice(s.texts.index(KEY_TEXTS[s.column.type_name]), 1) for s in chosen]
    row = pa.record_batch([*cells, pa.array([1])], names=[*keys, "v"])
    lake.copies.create(schema)
    lake.copies.copy_rows(schema, CopyBatch(row))
    lake.finish(schema, 1)
    stream = Stream()
    lake.write([with_rows(stream.rows(schema, Update({"v": 2})), [*cells, pa.array([2])])])
    assert read(lake, f"SELECT v FROM {place(lake, schema)}")["v"].to_pylist() == [2]
    gone = stream.rows(schema, Delete(dict.fromkeys(keys)))
    old = pa.record_batch([*cells, pa.nulls(1, pa.int64())], names=[*keys, "v"])
    lake.write([replaced(gone, old=old)])
    assert read(lake, f"SELECT v FROM {place(lake, schema)}").num_rows == 0


def with_rows(run: RowChanges, arrays: list[pa.Array]) -> RowChanges:
    return replaced(run, new=pa.record_batch(arrays, names=run.new.schema.names))


def replaced(run: RowChanges, **fields: Any) -> RowChanges:
    return RowChanges(**{name: fields.get(name, getattr(run, name)) for name in RowChanges.__slots__})


def test_a_row_without_a_key_is_found_by_values_of_every_type(lake: World):
    chosen = SAMPLES
    schema = table_schema(
        *(s.column for s in chosen), key=(), identity=ReplicaIdentity.FULL, oid=17002, name="by_everything"
    )
    rows = pa.record_batch([s.array for s in chosen], names=[c.name for c in schema.columns])
    nothing = batch(schema, [{}])
    lake.copies.create(schema)
    lake.copies.copy_rows(schema, CopyBatch(pa.concat_batches([rows, rows, nothing, nothing])))
    lake.finish(schema, 2 * ROWS + 2)
    run = Stream().rows(schema, *(Delete({}) for _ in range(ROWS + 1)))
    report = lake.write([replaced(run, old=pa.concat_batches([rows, nothing]))])
    assert not report.unmatched
    left = read(lake, f"SELECT * FROM {place(lake, schema)}")
    assert left.num_rows == ROWS + 1


# --- names, literals and defaults ---------------------------------------------------------------------------------

NAMES_AND_TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)


@given(NAMES_AND_TEXTS.filter(bool), NAMES_AND_TEXTS)
@example("`", "'")
@example("\\", "\\")
@example("${env:HOME}", "${system:user.name} ${spark:spark.app.name} ${spark.app.name}")
@example("a.b", "\\'; DROP TABLE t --")
@settings(max_examples=25)
def test_a_quoted_name_and_a_literal_are_one_token(lake: World, name: str, text: str):
    answer = read(lake, f"SELECT {literal(text)} AS {quote(name)}")
    assert answer.schema.names == [name]
    assert answer.column(0).to_pylist() == [text]


def test_letters_that_spark_takes_for_one_are_one_to_us(lake: World, resolver: Callable[[str, str], bool]):
    letters = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    mapped = [
        (letter, other)
        for letter in letters
        for other in {letter.upper(), letter.lower(), letter.casefold(), letter.title()} - {letter}
    ]
    assert len(mapped) > 2000
    for one, other in mapped:
        if resolver(one, other):
            assert same_name(one) == same_name(other), (one, other)


@pytest.fixture(scope="module")
def resolver(lake: World) -> Callable[[str, str], bool]:
    """Spark's own comparison of names."""
    session: Any = new_session(settings_of(lake).spark)
    analysis = getattr(session._jvm.org.apache.spark.sql.catalyst.analysis, "package$")
    compare = getattr(analysis, "MODULE$").caseInsensitiveResolution()
    return lambda one, other: bool(compare.apply(one, other))


#: type oid, typmod, the default as Postgres shows it, what a row that does not say it has
DEFAULTS: list[tuple[int, int, str, str]] = [
    (21, -1, "'-32768'::integer", "-32768"),
    (23, -1, "'-2147483648'::integer", "-2147483648"),
    (20, -1, "'-9223372036854775808'::bigint", "-9223372036854775808"),
    (26, -1, "'4294967295'::oid", "4294967295"),
    (700, -1, "0.1", "0.1"),
    (701, -1, "0.30000000000000004", "0.30000000000000004"),
    (701, -1, "3", "3.0"),
    (1700, (3 << 16 | 2) + 4, "5", "5.00"),
    (1700, (38 << 16 | 38) + 4, "0." + "1" * 37, "0." + "1" * 37 + "0"),
    (1700, (38 << 16 | 0) + 4, "9" * 38, "9" * 38),
    (1700, -1, "1.50", "1.50"),
    (16, -1, "true", "true"),
    (25, -1, "'it''s \\ ${env:HOME} \"é😀\" \\u0041'::text", 'it\'s \\ ${env:HOME} "é😀" \\u0041'),
    (25, -1, "''::text", ""),
    (1082, -1, "'0001-01-01'::date", "0001-01-01"),
    (1083, -1, "'12:30:00.5'::time without time zone", "12:30:00.5"),
    (1114, -1, "'1582-10-10 12:30:00.5'::timestamp without time zone", "1582-10-10 12:30:00.5"),
    (1184, -1, "'2026-01-01 12:30:00+05:30'::timestamp with time zone", "2026-01-01 07:00:00"),
    (2950, -1, "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    (3802, -1, "'{\"a\": [1, null]}'::jsonb", '{"a": [1, null]}'),
    (114, -1, '\'{"b":1,  "a":2}\'::json', '{"b":1,  "a":2}'),
]


def test_a_row_that_says_nothing_has_the_defaults_of_the_source(lake: World):
    columns = [
        column(f"d{n}", n + 2, oid, typmod=typmod, default_expression=default)
        for n, (oid, typmod, default, _) in enumerate(DEFAULTS)
    ]
    schema = table_schema(column("id", 1, INT8), *columns, oid=17003, name="defaults")
    lake.copy(schema)
    where = place(lake, schema)
    read(lake, f"INSERT INTO {where} (id) VALUES (1)")
    texts = ", ".join(f"CAST({c.name} AS string) AS {c.name}" for c in columns)
    (row,) = read(lake, f"SELECT {texts} FROM {where}").to_pylist()
    assert row == {c.name: value for c, (*_, value) in zip(columns, DEFAULTS, strict=True)}


def test_names_of_columns_may_hold_anything(lake: World):
    names = [text.strip("x") or "x" for text in TEXTS if text] + [
        "a.b",
        "`",
        "a b,;{}()\n\t=",
        "${env:HOME}x",
    ]
    columns = [column(name, n + 2, INT8) for n, name in enumerate(dict.fromkeys(names))]
    schema = table_schema(column("id", 1, INT8), *columns, oid=17004, name="strange")
    row = {"id": 1, **{c.name: c.attnum for c in columns}}
    lake.copy(schema, [row])
    lake.write([Stream().rows(schema, Update({**row, columns[0].name: 0}))])
    assert lake.kit.rows(lake.table(schema)) == [{**row, columns[0].name: 0}]

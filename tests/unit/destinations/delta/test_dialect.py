"""Spark's SQL as we write it: one token per name and literal, one type per Arrow type, defaults that mean the same."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.destinations.delta.dialect import (
    arrow_of,
    column_type,
    literal,
    quote,
    render_default,
    same_name,
    type_of,
)
from etl.schema.defaults import DefaultLiteral, LiteralKind
from etl.schema.types import ArrayForm, NumericForm, TypeOptions, arrow_type, known_types
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
    VARCHAR,
    column,
)

BYTEA, INT2, OID, FLOAT4, FLOAT8, INTERVAL, TIMETZ, INET, MONEY, ENUM, INT4_ARRAY, TEXT_ARRAY = (
    *(17, 21, 26, 700, 701, 1186, 1266, 869, 790, 999_999),
    *(1007, 1009),
)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=30)
NAMES = TEXTS.filter(bool)
SOME_UUID = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
KINDS = LiteralKind


# --- names and literals -----------------------------------------------------------------------------------------


@given(NAMES)
def test_a_quoted_name_ends_where_it_should_and_reads_as_the_name(name: str):
    quoted = quote(name)
    assert quoted[0] == quoted[-1] == "`"
    assert "`" not in quoted[1:-1].replace("``", "")
    assert quoted[1:-1].replace("``", "`") == name


@given(TEXTS)
def test_a_literal_ends_where_it_should_and_reads_as_the_text(text: str):
    assert read_literal(literal(text)) == text


def read_literal(sql: str) -> str:
    """A string literal as Spark's lexer and `unescapeSQLString` read it, where escapes are as simple as ours."""
    assert sql[0] == "'"
    read, place = "", 1
    while sql[place] != "'":
        if sql[place] == "\\":
            place += 1
            assert sql[place] in {"\\", "'"}
        read += sql[place]
        place += 1
    assert place == len(sql) - 1
    return read


@pytest.mark.parametrize("bad", ["", "a\0b", "\0"])
def test_what_can_be_no_identifier_is_refused(bad: str):
    with pytest.raises(ValueError, match="NUL"):
        quote(bad)


def test_a_literal_with_a_nul_is_refused():
    with pytest.raises(ValueError, match="NUL"):
        literal("a\0b")


@pytest.mark.parametrize(
    ("one", "other"), [("Id", "iD"), ("É", "é"), ("ẞ", "ß"), ("İ", "i̇"), ("𐐀", "𐐨"), ("K", "k")]
)
def test_names_that_differ_in_case_are_one(one: str, other: str):
    assert same_name(one) == same_name(other)


@pytest.mark.parametrize(
    ("one", "other"), [("i", "\u0131"), ("S", "\u017f"), ("\u03c3", "\u03c2"), ("\u00b5", "\u03bc")]
)
def test_names_that_spark_will_not_merge_into_one_table_are_one(one: str, other: str):
    assert same_name(one) == same_name(other)


@pytest.mark.parametrize(("one", "other"), [("a", "b"), ("e", "é"), ("ss", "ß"), ("a", "a "), ("ﬅ", "ﬆ")])
def test_names_that_differ_otherwise_are_two(one: str, other: str):
    assert same_name(one) != same_name(other)


# --- types ------------------------------------------------------------------------------------------------------

FORMS = [TypeOptions(), TypeOptions(NumericForm.TEXT, ArrayForm.TEXT)]
#: What Spark has no type of its own for, and the one that holds all of its values.
WIDENED = {pa.uint32(): pa.int64(), pa.time64("us"): pa.string()}


@pytest.mark.parametrize("options", FORMS, ids=["natural", "as text"])
def test_every_known_type_becomes_a_spark_type_that_holds_what_it_carries(options: TypeOptions):
    for kind in known_types():
        carried = arrow_type(kind.oid, -1, options)
        assert arrow_of(type_of(carried)) == widened(carried), kind.name
        assert column_type(column("v", 1, kind.oid), options) == type_of(carried)


def widened(carried: pa.DataType) -> pa.DataType:
    if pa.types.is_list(carried):
        return pa.list_(widened(carried.value_type))
    return WIDENED.get(carried, carried)


@pytest.mark.parametrize("precision", range(1, 39))
def test_every_decimal_keeps_precision_and_scale(precision: int):
    for scale in range(precision + 1):
        carried = pa.decimal128(precision, scale)
        assert type_of(carried) == f"decimal({precision},{scale})"
        assert arrow_of(type_of(carried)) == carried
        assert arrow_of(type_of(pa.list_(carried))) == pa.list_(carried)


@pytest.mark.parametrize(
    ("oid", "typmod", "spark_type"),
    [
        (BOOL, -1, "boolean"),
        (INT2, -1, "smallint"),
        (INT4, -1, "int"),
        (INT8, -1, "bigint"),
        (OID, -1, "bigint"),
        (FLOAT4, -1, "float"),
        (FLOAT8, -1, "double"),
        (NUMERIC, -1, "string"),
        (NUMERIC, NUMERIC_10_2, "decimal(10,2)"),
        (NUMERIC, (38 << 16 | 38) + 4, "decimal(38,38)"),
        (NUMERIC, (39 << 16 | 0) + 4, "string"),
        (TEXT, -1, "string"),
        (VARCHAR, 14, "string"),
        (BYTEA, -1, "binary"),
        (DATE, -1, "date"),
        (TIME, -1, "string"),
        (TIMETZ, -1, "string"),
        (TIMESTAMP, -1, "timestamp_ntz"),
        (TIMESTAMPTZ, -1, "timestamp"),
        (INTERVAL, -1, "string"),
        (JSONB, -1, "string"),
        (UUID, -1, "string"),
        (ENUM, -1, "string"),
        (INT4_ARRAY, -1, "array<int>"),
        (TEXT_ARRAY, -1, "array<string>"),
        (1231, NUMERIC_10_2, "array<decimal(10,2)>"),
        (1185, -1, "array<timestamp>"),
        (1028, -1, "array<bigint>"),
    ],
)
def test_a_source_type_becomes(oid: int, typmod: int, spark_type: str):
    assert column_type(column("v", 1, oid, typmod=typmod), TypeOptions()) == spark_type


@pytest.mark.parametrize(
    "spark_type",
    ["", "struct<a:int>", "map<string,int>", "array<struct<a:int>>", "void", "variant", "char(3)", "INT"],
)
def test_a_type_that_we_never_write_has_no_arrow_type(spark_type: str):
    assert arrow_of(spark_type) is None


# --- defaults ---------------------------------------------------------------------------------------------------


def rendered(oid: int, kind: LiteralKind, text: str, typmod: int = -1) -> str | None:
    return render_default(column("d", 1, oid, typmod=typmod), DefaultLiteral(kind, text), TypeOptions())


RENDERED = [
    (BOOL, KINDS.BOOLEAN, "true", "true"),
    (INT2, KINDS.NUMERIC, "-32768", "-32768"),
    (INT4, KINDS.NUMERIC, "2147483647", "2147483647"),
    (INT8, KINDS.NUMERIC, "-9223372036854775808", "-9223372036854775808"),
    (OID, KINDS.NUMERIC, "4294967295", "4294967295"),
    (FLOAT4, KINDS.NUMERIC, "0.1", "0.1"),
    (FLOAT8, KINDS.NUMERIC, "1" * 38, "1" * 38),
    (NUMERIC, KINDS.NUMERIC, "1.50", "'1.50'"),
    (TEXT, KINDS.STRING, "", "''"),
    (TEXT, KINDS.STRING, r"it's \ ${env:HOME}", r"'it\'s \\ ${env:HOME}'"),
    (VARCHAR, KINDS.STRING, "new", "'new'"),
    (ENUM, KINDS.STRING, "sad", "'sad'"),
    (DATE, KINDS.DATE, "2026-02-28", "DATE'2026-02-28'"),
    (TIME, KINDS.TIME, "12:30:00.5", "'12:30:00.5'"),
    (TIMESTAMP, KINDS.TIMESTAMP, "2026-01-01 12:30:00", "TIMESTAMP_NTZ'2026-01-01 12:30:00'"),
    (TIMESTAMPTZ, KINDS.TIMESTAMPTZ, "2026-01-01 12:30:00+05:30", "TIMESTAMP'2026-01-01 12:30:00+05:30'"),
    (JSON, KINDS.JSON, '{"b":1,  "a":2}', '\'{"b":1,  "a":2}\''),
    (JSONB, KINDS.JSON, '{"a": [1, null]}', "'{\"a\": [1, null]}'"),
    (UUID, KINDS.UUID, SOME_UUID, f"'{SOME_UUID}'"),
]


@pytest.mark.parametrize(("oid", "kind", "text", "sql"), RENDERED)
def test_a_default_is_rendered_as_a_literal_of_the_columns_type(
    oid: int, kind: LiteralKind, text: str, sql: str
):
    assert rendered(oid, kind, text) == sql


REFUSED = [
    # of another kind than the column
    *(
        (oid, KINDS.STRING, "1")
        for oid in (BOOL, INT4, FLOAT8, DATE, TIMESTAMP, BYTEA, INT4_ARRAY, INTERVAL, INET)
    ),
    *((oid, KINDS.NUMERIC, "1") for oid in (BOOL, DATE, TIMESTAMP, TIMESTAMPTZ, BYTEA, INT4_ARRAY)),
    *((oid, KINDS.BOOLEAN, "true") for oid in (INT4, TEXT, DATE, JSONB)),
    (TIMESTAMP, KINDS.TIMESTAMPTZ, "2026-01-01 12:30:00+00"),
    (TIMESTAMPTZ, KINDS.TIMESTAMP, "2026-01-01 12:30:00"),
    (TEXT, KINDS.TIME, "12:30:00"),
    (TEXT_ARRAY, KINDS.STRING, "{}"),
    (MONEY, KINDS.STRING, "1"),
    # out of range, or with more digits than the column
    (INT2, KINDS.NUMERIC, "32768"),
    (INT4, KINDS.NUMERIC, "-2147483649"),
    (INT8, KINDS.NUMERIC, "9223372036854775808"),
    (INT4, KINDS.NUMERIC, "1.5"),
    (FLOAT8, KINDS.NUMERIC, "1" * 39),
    # no plain number
    *(
        (INT4, KINDS.NUMERIC, text)
        for text in ("", "+1", "01", "1e3", "NaN", "1.", ".5", "--1", "1 ", "\u0661")
    ),
    # minus zero: a sign that some types keep and others lose
    *((oid, KINDS.NUMERIC, text) for oid in (INT4, FLOAT8, NUMERIC) for text in ("-0", "-0.00")),
    # what one of the two reads otherwise
    (BOOL, KINDS.BOOLEAN, "yes"),
    (DATE, KINDS.DATE, "infinity"),
    (DATE, KINDS.DATE, "10000-01-01"),
    (TIME, KINDS.TIME, "24:00:00"),
    (TIME, KINDS.TIME, "12:30:00.50"),
    (TIME, KINDS.TIME, "12:30"),
    (TIMESTAMP, KINDS.TIMESTAMP, "2026-01-01 24:00:00"),
    (TIMESTAMP, KINDS.TIMESTAMP, "2026-01-01"),
    (TIMESTAMPTZ, KINDS.TIMESTAMPTZ, "2026-01-01 12:30:00"),
    (TIMESTAMPTZ, KINDS.TIMESTAMPTZ, "2026-01-01 12:30:00+05:30:15"),
    (TIMESTAMPTZ, KINDS.TIMESTAMPTZ, "2026-01-01 12:30:00 America/New_York"),
    (UUID, KINDS.UUID, SOME_UUID.upper()),
    (UUID, KINDS.UUID, SOME_UUID.replace("-", "")),
    # a text with a NUL is none
    (TEXT, KINDS.STRING, "a\0b"),
]


@pytest.mark.parametrize(("oid", "kind", "text"), REFUSED)
def test_a_default_that_the_column_would_read_otherwise_is_not_rendered(
    oid: int, kind: LiteralKind, text: str
):
    assert rendered(oid, kind, text) is None


@pytest.mark.parametrize(
    ("precision", "scale", "text", "fits"),
    [
        (10, 2, "12345678.90", True),
        (10, 2, "1.500", True),
        (10, 2, "1.234", False),
        (10, 2, "123456789", False),
        (3, 3, "0.5", True),
        (3, 3, "1", False),
        (38, 0, "9" * 38, True),
        (38, 38, "0." + "9" * 38, False),
    ],
)
def test_a_number_is_rendered_for_a_decimal_that_holds_it(precision: int, scale: int, text: str, fits: bool):
    typmod = (precision << 16 | scale) + 4
    assert rendered(NUMERIC, KINDS.NUMERIC, text, typmod) == (text if fits else None)


@pytest.mark.parametrize(
    "text",
    ["1", '"x"', "null", "true", "[]", "{}", "[1, 2]", '{"a": 1}', '["é"]', '{"a": "\\"b\\\\"}', "1.0"],
)
def test_jsonb_that_prints_itself_is_normal(text: str):
    assert rendered(JSONB, KINDS.JSON, text) == literal(text)
    assert json.dumps(json.loads(text), ensure_ascii=False) == text


@pytest.mark.parametrize(
    "text",
    [
        "[1,2]",
        '{"a":1}',
        '{"b": 1, "a": 2}',
        '[{"b": 1}]',
        '"\\u0041"',
        "1e3",
        "1E+2",
        "1.10",
        " 1",
        "1e+16",
        "1e-07",
        "-0.0",
        "NaN",
        "-Infinity",
        "{",
        "",
        "[" * 3000,
    ],
)
def test_jsonb_that_would_print_otherwise_is_not(text: str):
    assert rendered(JSONB, KINDS.JSON, text) is None


@given(st.sampled_from(LiteralKind), TEXTS | st.from_regex(r"-?[0-9]{1,45}(\.[0-9]{0,9})?", fullmatch=True))
def test_whatever_the_literal_every_type_renders_it_as_one_literal_or_not_at_all(
    kind: LiteralKind, text: str
):
    for known in known_types():
        sql = rendered(known.oid, kind, text)
        if sql is None or sql in {"true", "false"}:
            continue
        _, quotes, rest = sql.partition("'")
        read = read_literal(quotes + rest) if quotes else sql
        assert read == text

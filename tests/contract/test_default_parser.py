"""The contract's sentences about column defaults: on raw text, and through a real Postgres."""

from __future__ import annotations

import string
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.schema.defaults import DefaultLiteral, LiteralKind, parse_default
from etl.schema.types import known_types, pg_type
from etl.testing.postgres import Database

K = LiteralKind
BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT = 16, 17, 18, 19, 20, 21, 23, 25
JSON, XML, MONEY, FLOAT4, FLOAT8, BPCHAR, VARCHAR = 114, 142, 790, 700, 701, 1042, 1043
DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ = 1082, 1083, 1114, 1184, 1186, 1266
BIT, NUMERIC, UUID, JSONB, TEXT_ARRAY, ENUM = 1560, 1700, 2950, 3802, 1009, 99_999

UUID_TEXT = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"

#: (sentence or shape of the contract, expression, column type, literal)
CONTRACT_ACCEPTS = [
    ("string literals", "'pending'::text", TEXT, (K.STRING, "pending")),
    ("string literals in parentheses", "('don''t'::text)", TEXT, (K.STRING, "don't")),
    ("numeric literals", "42", INT4, (K.NUMERIC, "42")),
    ("negative numeric literals", "-1", INT4, (K.NUMERIC, "-1")),
    ("numeric literals with a cast", "'42.10'::numeric(10,2)", NUMERIC, (K.NUMERIC, "42.10")),
    ("boolean literals", "true", BOOL, (K.BOOLEAN, "true")),
    ("boolean literals", "false", BOOL, (K.BOOLEAN, "false")),
    ("boolean literals with a cast", "'true'::boolean", BOOL, (K.BOOLEAN, "true")),
    ("date literals", "'2026-01-01'::date", DATE, (K.DATE, "2026-01-01")),
    ("time literals", "'12:30:00'::time", TIME, (K.TIME, "12:30:00")),
    (
        "timestamp literals",
        "'2026-01-01 12:30:00'::timestamp",
        TIMESTAMP,
        (K.TIMESTAMP, "2026-01-01 12:30:00"),
    ),
    ("jsonb literals", "'{}'::jsonb", JSONB, (K.JSON, "{}")),
    ("json literals", """'{"enabled": true}'::json""", JSON, (K.JSON, '{"enabled": true}')),
    ("uuid literals", f"'{UUID_TEXT}'::uuid", UUID, (K.UUID, UUID_TEXT)),
]

#: The contract's examples of unsupported defaults, each with a type of column it may stand on.
CONTRACT_REJECTS = [
    ("nextval('users_id_seq')", INT4),
    ("'a' || 'b'", TEXT),
    ("lower('USER' || '_ID')", TEXT),
    ("concat('a', 'b')", TEXT),
    ("md5('x')", TEXT),
    ("random()", FLOAT8),
    ("clock_timestamp()", TIMESTAMPTZ),
    ("now()", TIMESTAMPTZ),
    ("current_timestamp", TIMESTAMPTZ),
    ("current_user", TEXT),
    ("gen_random_uuid()", UUID),
    ("uuid_generate_v4()", UUID),
    ("timezone('UTC', now())", TIMESTAMP),
    ("array['a', 'b']", TEXT_ARRAY),
    ("(select 'x')", TEXT),
    ("current_setting('app.tenant_id')", TEXT),
    ("1e6", FLOAT8),
    ("interval '1 day 2 hours'", INTERVAL),
]


@pytest.mark.parametrize(
    ("expression", "type_oid", "literal"),
    [case[1:] for case in CONTRACT_ACCEPTS],
    ids=[f"{shape}: {expression}" for shape, expression, _, _ in CONTRACT_ACCEPTS],
)
def test_the_shared_parser_recognises_the_source_default_shapes(
    expression: str, type_oid: int, literal: tuple[LiteralKind, str]
):
    assert parse_default(expression, type_oid) == DefaultLiteral(*literal)


@pytest.mark.parametrize(("expression", "type_oid"), CONTRACT_REJECTS, ids=[e for e, _ in CONTRACT_REJECTS])
def test_the_examples_of_unsupported_expressions_are_unsupported(expression: str, type_oid: int):
    assert parse_default(expression, type_oid) is None


@pytest.mark.parametrize(("expression", "_"), CONTRACT_REJECTS, ids=[e for e, _ in CONTRACT_REJECTS])
def test_the_examples_of_unsupported_expressions_are_unsupported_on_a_column_of_any_type(
    expression: str, _: int
):
    assert {parse_default(expression, t.oid) for t in known_types()} == {None}


def test_a_column_without_a_default_has_no_literal():
    assert parse_default(None, TEXT) is None


WRITTEN = {
    "by Postgres for a negative integer": [
        ("'-1'::integer", INT4, (K.NUMERIC, "-1")),
        ("'-1'::integer", INT8, (K.NUMERIC, "-1")),
        ("(-1)", INT4, (K.NUMERIC, "-1")),
        ("(- 1)", INT4, (K.NUMERIC, "-1")),
        ("(+ 7)", INT4, (K.NUMERIC, "7")),
    ],
    "by Postgres for an exponent": [
        ("'1000000'::numeric", FLOAT8, (K.NUMERIC, "1000000")),
        ("'1000'::numeric", INT4, (K.NUMERIC, "1000")),
        ("'1000000'::double precision", FLOAT8, (K.NUMERIC, "1000000")),
        ("'1e+300'::double precision", FLOAT8, None),
        ("-1e6", FLOAT8, None),
        ("1.5e3", NUMERIC, None),
    ],
    "as a number that is none": [
        ("'NaN'::numeric", NUMERIC, None),
        ("'Infinity'::double precision", FLOAT8, None),
        ("'12a'::numeric", NUMERIC, None),
        ("'1.2.3'::numeric", NUMERIC, None),
        ("1.2.3", NUMERIC, None),
        ("' 1'::numeric", NUMERIC, None),
        ("''::numeric", NUMERIC, None),
        ("0x1F", INT4, None),
        ("1_000", INT4, None),
        (".5", NUMERIC, None),
    ],
    "with a cast that keeps the number": [
        ("42.10::numeric(10,2)", NUMERIC, (K.NUMERIC, "42.10")),
        ("(- (1)::numeric(3,1))", NUMERIC, (K.NUMERIC, "-1.0")),
        ("42.100::numeric(10,1)", NUMERIC, (K.NUMERIC, "42.1")),
        ("(0)::numeric(10,2)", NUMERIC, (K.NUMERIC, "0.00")),
        ("42.00::numeric(10)", NUMERIC, (K.NUMERIC, "42")),
        ("1.00", INT4, (K.NUMERIC, "1")),
        ("(5)::smallint", INT4, (K.NUMERIC, "5")),
        ("'9223372036854775807'::bigint", INT8, (K.NUMERIC, "9223372036854775807")),
        ("(0.1)::real", FLOAT4, (K.NUMERIC, "0.1")),
        ("'5'::oid", 26, (K.NUMERIC, "5")),
    ],
    "with a cast that computes another number": [
        ("42.105::numeric(10,2)", NUMERIC, None),
        ("42.5::numeric(10)", NUMERIC, None),
        ("(1234)::numeric(4,-2)", NUMERIC, None),
        ("(0.1)::real", FLOAT8, None),
        ("'0.1'::double precision", NUMERIC, None),
        ("(1.6)::integer", NUMERIC, None),
        ("1.6", INT4, None),
        ("(true)::integer", INT4, None),
        ("'5'::text", INT4, None),
        ("'$1.50'::money", MONEY, None),
        ("1.5", MONEY, None),
    ],
    "as a string with whatever inside": [
        ("'a::b'::text", TEXT, (K.STRING, "a::b")),
        ("'please select one'::text", TEXT, (K.STRING, "please select one")),
        ("'now'::text", TEXT, (K.STRING, "now")),
        ("'nextval(''s'')'::text", TEXT, (K.STRING, "nextval('s')")),
        ("'a || b'::text", TEXT, (K.STRING, "a || b")),
        ("')'::text", TEXT, (K.STRING, ")")),
        ("'null'::text", TEXT, (K.STRING, "null")),
        ("''::text", TEXT, (K.STRING, "")),
        ("''''::text", TEXT, (K.STRING, "'")),
        ("'a\\b'::text", TEXT, (K.STRING, "a\\b")),
        ("'line\nline'::text", TEXT, (K.STRING, "line\nline")),
        ("'naïve ☃'::text", TEXT, (K.STRING, "naïve ☃")),
        ("'x'", TEXT, (K.STRING, "x")),
        ("(('x'::text))", TEXT, (K.STRING, "x")),
        ("  'x' :: text  ", TEXT, (K.STRING, "x")),
    ],
    "with a cast of any spelling": [
        ("'x'::character varying", VARCHAR, (K.STRING, "x")),
        ("'x'::character varying(10)", TEXT, (K.STRING, "x")),
        ("('x'::text)::character varying(3)", VARCHAR, (K.STRING, "x")),
        ("'x'::bpchar", BPCHAR, (K.STRING, "x")),
        ("'x'::character(3)", BPCHAR, (K.STRING, "x")),
        ("'x'::\"char\"", CHAR, (K.STRING, "x")),
        ("'x'::name", NAME, (K.STRING, "x")),
        ("'x'::VARCHAR(3)", VARCHAR, (K.STRING, "x")),
        ("'x'::pg_catalog.text", TEXT, (K.STRING, "x")),
        (
            "'2026-01-01 12:30:00'::timestamp without time zone",
            TIMESTAMP,
            (K.TIMESTAMP, "2026-01-01 12:30:00"),
        ),
    ],
    "with a cast that cuts the string": [
        ("'abcdef'::character varying(3)", VARCHAR, None),
        ("'abc'::character(1)", TEXT, None),
        ("'abc'::char", TEXT, None),
        ("('abc'::text)::\"char\"", TEXT, None),
        ("'abc'::text", CHAR, None),
        (f"'{'x' * 64}'::text", NAME, None),
    ],
    "as another kind of constant, never guessed": [
        ("E'a\\nb'", TEXT, None),
        ("e'a'::text", TEXT, None),
        ("B'101'", BIT, None),
        ("X'1F'", BIT, None),
        ("U&'\\0041'", TEXT, None),
        ("$$a$$", TEXT, None),
        ("DATE '2026-01-01'", DATE, None),
        ("'101'::\"bit\"", BIT, None),
        ("'\\xde'::bytea", BYTEA, None),
        ("'<a/>'::xml", XML, None),
    ],
    "as no default at all": [
        ("NULL", TEXT, None),
        ("null", INT4, None),
        ("NULL::text", TEXT, None),
        ("(NULL::character varying)", VARCHAR, None),
        ("", TEXT, None),
    ],
    "on a text column with another kind of literal": [
        ("42", TEXT, (K.STRING, "42")),
        ("42.10", VARCHAR, (K.STRING, "42.10")),
        ("'-42.10'::numeric", TEXT, (K.STRING, "-42.10")),
        ("true", TEXT, (K.STRING, "true")),
        ("'5'::integer", TEXT, (K.STRING, "5")),
        ("42.1::numeric(10,2)", TEXT, None),
        ("007", TEXT, None),
        ("'2026-01-01'::date", TEXT, None),
        ("'2026-01-01 00:00:00+00'::timestamp with time zone", TEXT, None),
        ("'{}'::jsonb", TEXT, None),
        ("5", CHAR, None),
    ],
    "as a boolean": [
        ("(true)", BOOL, (K.BOOLEAN, "true")),
        ("'false'::boolean", BOOL, (K.BOOLEAN, "false")),
        ("TRUE", BOOL, (K.BOOLEAN, "true")),
        ("'t'::boolean", BOOL, None),
        ("'yes'::boolean", BOOL, None),
        ("(1)::boolean", BOOL, None),
        ("1", BOOL, None),
    ],
    "as a date or time": [
        ("'2026-01-01'::date", TIMESTAMP, None),
        (
            "'2026-01-01 12:30:00.123456'::timestamp without time zone",
            TIMESTAMP,
            (K.TIMESTAMP, "2026-01-01 12:30:00.123456"),
        ),
        ("'12:30:00.5'::time without time zone", TIME, (K.TIME, "12:30:00.5")),
        ("'12:30:00'::time(2) without time zone", TIME, (K.TIME, "12:30:00")),
        (
            "'2026-01-01 12:30:00+00'::timestamp with time zone",
            TIMESTAMPTZ,
            (K.TIMESTAMPTZ, "2026-01-01 12:30:00+00"),
        ),
        (
            "'2026-01-01 12:30:00-03:30'::timestamptz",
            TIMESTAMPTZ,
            (K.TIMESTAMPTZ, "2026-01-01 12:30:00-03:30"),
        ),
    ],
    "as a date or time that does not mean the same everywhere": [
        ("'infinity'::timestamp without time zone", TIMESTAMP, None),
        ("'-infinity'::date", DATE, None),
        ("'now'::timestamp", TIMESTAMP, None),
        ("'today'::date", DATE, None),
        ("'0044-03-15 BC'::date", DATE, None),
        ("'20000-01-01'::date", DATE, None),
        ("'01/02/2026'::date", DATE, None),
        ("'24:00:00'::time without time zone", TIME, None),
        ("'12:30:00.123'::time(1) without time zone", TIME, None),
        ("'2026-01-01 12:30:00'::timestamp with time zone", TIMESTAMPTZ, None),
        ("'2026-01-01 12:30:00'::timestamp without time zone", TIMESTAMPTZ, None),
        ("'12:30:00+02'::time with time zone", TIMETZ, None),
        ("CURRENT_DATE", DATE, None),
        ("LOCALTIMESTAMP", TIMESTAMP, None),
        ("'1 day 02:00:00'::interval", INTERVAL, None),
    ],
    "as json or uuid": [
        ("'{}'::jsonb", JSON, (K.JSON, "{}")),
        ('\'{"b": 1, "a": 2}\'::json', JSONB, None),
        ("'not a uuid'::uuid", UUID, None),
    ],
    "on a column of a user's type": [
        ("'sad'::mood", ENUM, (K.STRING, "sad")),
        ("'sad'::myschema.mood", ENUM, (K.STRING, "sad")),
        ("'x'::\"MyEnum\"", ENUM, (K.STRING, "x")),
        ('\'x\'::"my schema"."My ""Enum"', ENUM, (K.STRING, "x")),
        ("('sad'::text)::mood", ENUM, (K.STRING, "sad")),
        ("'x'::text", ENUM, (K.STRING, "x")),
        ("'{sad,ok}'::mood[]", ENUM, None),
        ("'x'::bpchar", ENUM, None),
        ("5", ENUM, None),
        ("true", ENUM, None),
        ("'1 day'::interval", ENUM, None),
        ("now()", ENUM, None),
        ("'sad'::mood", TEXT, None),
    ],
    "as an array": [
        ("'{}'::text[]", TEXT_ARRAY, None),
        ("ARRAY['a'::text]", TEXT_ARRAY, None),
        ("'{}'::text[]", TEXT, None),
    ],
    "as more than one literal": [
        ("'a' 'b'", TEXT, None),
        ("1 2", INT4, None),
        ("'a'::text COLLATE \"C\"", TEXT, None),
        ("(1 + 1)", INT4, None),
        ("- -1", INT4, None),
        ("(- '5'::integer)", INT4, None),
        ("CASE\n    WHEN true THEN 1\n    ELSE 2\nEND", INT4, None),
        ("ROW(1)", INT4, None),
        ("'a'::text; DROP TABLE t", TEXT, None),
    ],
    "cut short": [
        ("'a", TEXT, None),
        ("('a'::text", TEXT, None),
        ("'a'::text)", TEXT, None),
        ("'a'::", TEXT, None),
        ("'a'::numeric(", TEXT, None),
        ("'a'::text[", TEXT, None),
    ],
}
CASES = [(how, *case) for how, cases in WRITTEN.items() for case in cases]


@pytest.mark.parametrize(
    ("expression", "type_oid", "literal"),
    [case[1:] for case in CASES],
    ids=[f"{how}: {expression} on {pg_type(oid).name or 'a user type'}" for how, expression, oid, _ in CASES],
)
def test_a_default_written(expression: str, type_oid: int, literal: tuple[LiteralKind, str] | None):
    assert parse_default(expression, type_oid) == (DefaultLiteral(*literal) if literal else None)


@given(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")))
def test_any_string_comes_back_as_it_was_quoted(text: str):
    quoted = "'" + text.replace("'", "''") + "'::text"
    assert parse_default(quoted, TEXT) == DefaultLiteral(K.STRING, text)


@given(
    st.text(alphabet="()':,.\"+-[] aeEBU1" + string.ascii_lowercase, max_size=40),
    st.sampled_from(known_types()),
)
def test_any_text_is_read_or_refused_without_an_error(text: str, pg: Any):
    parse_default(text, pg.oid)


def test_reading_is_linear_in_the_length_of_the_default():
    deep = 200_000
    assert parse_default("(" * deep + "1" + ")" * deep, INT4) == DefaultLiteral(K.NUMERIC, "1")
    assert parse_default("(" * deep + "1", INT4) is None
    assert parse_default("'" + "''" * deep, TEXT) is None


# --- through Postgres -------------------------------------------------------------------------------------------------

#: (column type, DEFAULT clause as a user writes it, the literal's kind or None)
REAL = [
    ("text", "'pending'", K.STRING),
    ("text", "'don''t'", K.STRING),
    ("text", "'a::b'", K.STRING),
    ("text", "E'tab\\t and \\\\ backslash'", K.STRING),
    ("text", "'back\\slash'", K.STRING),
    ("text", "'please select one'", K.STRING),
    ("text", "'now'", K.STRING),
    ("text", "''", K.STRING),
    ("text", "$$it's$$", K.STRING),
    ("text", "U&'\\0041'", K.STRING),
    ("text", "42", K.STRING),
    ("text", "-42.10", K.STRING),
    ("text", "true", K.STRING),
    ("text", "'x'::varchar(3)", K.STRING),
    ("text", "'x' COLLATE \"C\"", K.STRING),
    ("varchar(10)", "'x'", K.STRING),
    ("char(3)", "'x'", K.STRING),
    ("bpchar", "'x '", K.STRING),
    ('"char"', "'x'", K.STRING),
    ("name", "'x'", K.STRING),
    ("int", "42", K.NUMERIC),
    ("int", "-1", K.NUMERIC),
    ("int", "+7", K.NUMERIC),
    ("int", "'5'", K.NUMERIC),
    ("int", "1e3", K.NUMERIC),
    ("smallint", "-1", K.NUMERIC),
    ("bigint", "9223372036854775807", K.NUMERIC),
    ("bigint", "-9223372036854775808", K.NUMERIC),
    ("oid", "5", K.NUMERIC),
    ("numeric(10,2)", "42.10", K.NUMERIC),
    ("numeric(10,2)", "'42.10'::numeric(10,2)", K.NUMERIC),
    ("numeric", "-1::numeric(3,1)", K.NUMERIC),
    ("numeric", "1e100", K.NUMERIC),
    ("numeric", "1e-7", K.NUMERIC),
    ("float8", "1e6", K.NUMERIC),
    ("float8", "'1e6'", K.NUMERIC),
    ("float8", "0.1", K.NUMERIC),
    ("float4", "0.1::real", K.NUMERIC),
    ("boolean", "true", K.BOOLEAN),
    ("boolean", "'t'", K.BOOLEAN),
    ("boolean", "'yes'", K.BOOLEAN),
    ("boolean", "'off'", K.BOOLEAN),
    ("date", "'2026-01-01'", K.DATE),
    ("date", "date '2026-01-01'", K.DATE),
    ("time", "'12:30:00'", K.TIME),
    ("time(2)", "'12:30:00.25'", K.TIME),
    ("timestamp", "'2026-01-01 12:30:00'", K.TIMESTAMP),
    ("timestamp", "'2026-01-01'", K.TIMESTAMP),
    ("timestamptz", "'2026-01-01 12:30:00+02'", K.TIMESTAMPTZ),
    ("jsonb", "'{}'", K.JSON),
    ("jsonb", """'{"b":1, "a":[null]}'""", K.JSON),
    ("json", """'{"enabled": true}'""", K.JSON),
    ("json", "'{}'::jsonb", K.JSON),
    ("uuid", f"'{UUID_TEXT.upper()}'", K.UUID),
    ("myschema.mood", "'sad'", K.STRING),
    ('"MyEnum"', "'x'", K.STRING),
    ("label", "'x'", K.STRING),
    ("text", "NULL", None),
    ("text", "'2026-01-01'::date", None),
    ("varchar(3)", "'abcdef'::varchar(3)", None),
    ("int", "1 + 1", None),
    ("int", "1.6", None),
    ("int", "true::int", None),
    ("int", "nextval('counter')", None),
    ("int", "CASE WHEN true THEN 1 ELSE 2 END", None),
    ("numeric", "42.105::numeric(10,2)", None),
    ("numeric", "'NaN'", None),
    ("float8", "'1e300'", None),
    ("float8", "0.1::real", None),
    ("float8", "random()", None),
    ("boolean", "1::boolean", None),
    ("text", "'a' || 'b'", None),
    ("text", "lower('USER' || '_ID')", None),
    ("text", "concat('a', 'b')", None),
    ("text", "md5('x')", None),
    ("text", "current_user", None),
    ("text", "current_setting('app.tenant_id', true)", None),
    ("uuid", "gen_random_uuid()", None),
    ("date", "current_date", None),
    ("date", "'infinity'", None),
    ("date", "'0044-03-15 BC'", None),
    ("time", "'24:00:00'", None),
    ("timetz", "'12:30:00+02'", None),
    ("timestamp", "'infinity'", None),
    ("timestamp", "localtimestamp", None),
    ("timestamp", "timezone('UTC', now())", None),
    ("timestamptz", "now()", None),
    ("timestamptz", "clock_timestamp()", None),
    ("timestamptz", "current_timestamp", None),
    ("timestamptz", "'2026-01-01'::date", None),
    ("interval", "interval '1 day 2 hours'", None),
    ("text[]", "array['a', 'b']", None),
    ("text[]", "'{}'", None),
    ("bytea", "'\\xde'", None),
    ("bit(3)", "B'101'", None),
    ("money", "'1.50'", None),
    ("inet", "'10.0.0.1'", None),
    ("int4range", "'[1,2)'", None),
    ("quantity", "5", None),
    ("label", "current_user", None),
]

TYPES = """
    CREATE SCHEMA myschema;
    CREATE TYPE myschema.mood AS ENUM ('sad', 'ok');
    CREATE TYPE "MyEnum" AS ENUM ('x');
    CREATE DOMAIN label AS text;
    CREATE DOMAIN quantity AS numeric(10, 2);
    CREATE SEQUENCE counter;
"""


@pytest.fixture
def source(database: Database) -> Any:
    with database.connect() as connection:
        connection.execute(TYPES)
        yield connection


def described(connection: psycopg.Connection[Any], type_name: str, clause: str) -> tuple[str | None, int]:
    connection.execute(f"CREATE TABLE t (a {type_name} DEFAULT {clause})")
    row = connection.execute(
        "SELECT pg_get_expr(d.adbin, d.adrelid), a.atttypid::bigint FROM pg_attribute a"
        " LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum"
        " WHERE a.attrelid = 't'::regclass AND a.attnum = 1"
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def test_defaults_through_postgres_are_recognised_by_kind_and_their_text_is_the_value_rows_get(source: Any):
    for type_name, clause, kind in REAL:
        expression, type_oid = described(source, type_name, clause)
        literal = parse_default(expression, type_oid)
        assert (literal.kind if literal else None) == kind, (type_name, clause, expression)
        if literal is not None:
            source.execute("INSERT INTO t DEFAULT VALUES")
            same = source.execute(
                f"SELECT a::text IS NOT DISTINCT FROM (%s::text)::{type_name}::text,"
                f" ({expression})::{type_name}::text IS NOT DISTINCT FROM (%s::text)::{type_name}::text FROM t",
                (literal.text, literal.text),
            ).fetchone()
            assert same == (True, True), (type_name, clause, expression, literal)
        source.execute("DROP TABLE t")


def test_the_pinned_settings_of_the_trigger_make_dates_iso_whatever_the_session_prefers(source: Any):
    source.execute("SET datestyle = 'SQL, DMY'; SET timezone = 'Europe/Amsterdam'")
    expression, type_oid = described(source, "timestamptz", "'2026-01-02 12:30:00+00'")
    assert expression is not None
    assert parse_default(expression, type_oid) is None
    source.execute("SET datestyle = 'ISO, MDY'; SET timezone = 'UTC'")
    row = source.execute(
        "SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 't'::regclass"
    ).fetchone()
    assert parse_default(row[0], type_oid) == DefaultLiteral(K.TIMESTAMPTZ, "2026-01-02 12:30:00+00")

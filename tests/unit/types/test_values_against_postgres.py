"""What a real server prints, converted, is what the same server sends in binary: exact, or listed.

The binary form of a value (``typsend``) is read here by a few lines of our own, so that text and its parsers have a
witness that never saw the text. The database's and the session's defaults are hostile; our connection settings pin.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from etl.pgoutput.values import convert
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    arrow_type,
    element_type,
    pg_type,
)
from etl.source.connection import PINNED_SETTINGS
from etl.testing.postgres import Database, PostgresServer

Connection = psycopg.Connection[tuple[Any, ...]]
Raw = Callable[[pa.Array], list[Any]]

HOSTILE = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "America/St_Johns",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
}


@pytest.fixture(scope="module")
def connection(postgres: PostgresServer) -> Iterator[Connection]:
    with postgres.database() as database:
        with database.connect() as administrator:
            for name, value in HOSTILE.items():
                setting = sql.SQL("ALTER DATABASE {} SET {} = {}")
                administrator.execute(
                    setting.format(sql.Identifier(database.name), sql.Identifier(name), sql.Literal(value))
                )
            administrator.execute("CREATE TYPE mood AS ENUM ('sad', 'happy, or not')")
            administrator.execute("CREATE DOMAIN positive AS int CHECK (VALUE > 0)")
            administrator.execute("CREATE DOMAIN smaller AS positive CHECK (VALUE < 10)")
            administrator.execute("CREATE TYPE pair AS (a int, b text)")
        options = " ".join(
            f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in PINNED_SETTINGS.items()
        )
        with database.connect(options=options, prepare_threshold=None) as pinned:
            yield pinned


# --- the witness: Postgres' binary form (typsend) -------------------------------------------------------------

EPOCH_DAYS = 10957  # 2000-01-01, where Postgres counts from
DAY = 86_400_000_000


def of_date(wire: bytes) -> int:
    (days,) = struct.unpack("!i", wire)
    return {2**31 - 1: DATE_INFINITY, -(2**31): DATE_MINUS_INFINITY}.get(days, days + EPOCH_DAYS)


def of_timestamp(wire: bytes) -> int:
    (micros,) = struct.unpack("!q", wire)
    infinities = {2**63 - 1: TIMESTAMP_INFINITY, -(2**63): TIMESTAMP_MINUS_INFINITY}
    return infinities.get(micros, micros + EPOCH_DAYS * DAY)


def of_numeric(wire: bytes) -> Decimal:
    count, weight, sign, _ = struct.unpack("!hhHH", wire[:8])
    special = {0xC000: "NaN", 0xD000: "Infinity", 0xF000: "-Infinity"}.get(sign)
    if special:
        return Decimal(special)
    groups = struct.unpack(f"!{count}H", wire[8:])
    digits = "".join(f"{group:04}" for group in groups) or "0"
    exponent = (weight + 1 - count) * 4
    return Decimal(f"{'-' if sign else ''}{digits}e{exponent}")


WITNESS: dict[str, Callable[[bytes], Any]] = {
    "bool": lambda wire: wire == b"\1",
    "bytea": bytes,
    "int2": lambda wire: struct.unpack("!h", wire)[0],
    "int4": lambda wire: struct.unpack("!i", wire)[0],
    "int8": lambda wire: struct.unpack("!q", wire)[0],
    "oid": lambda wire: struct.unpack("!I", wire)[0],
    "float4": lambda wire: wire,
    "float8": lambda wire: wire,
    "date": of_date,
    "time": lambda wire: struct.unpack("!q", wire)[0],
    "timestamp": of_timestamp,
    "timestamptz": of_timestamp,
    "numeric": of_numeric,
    "text": lambda wire: wire.decode(),
}


def of_array(wire: bytes, element: Callable[[bytes], Any]) -> list[Any]:
    """One dimension (``array_send``): number of dimensions, flags, element oid, length and lower bound, elements."""
    dimensions, _, _ = struct.unpack_from("!iiI", wire)
    assert dimensions <= 1
    values, offset = [], 20
    while dimensions and offset < len(wire):
        (length,) = struct.unpack_from("!i", wire, offset)
        offset += 4
        values.append(None if length < 0 else element(wire[offset : offset + length]))
        offset += max(length, 0)
    return values


def exact(value: Any, oid: int) -> Any:
    """A value of our column in the form of the witness: floats as their bits."""
    if isinstance(value, list):
        return [exact(item, element_type(oid).oid) for item in value]
    width = {700: "!f", 701: "!d"}.get(oid)
    return value if value is None or width is None else struct.pack(width, value)


def check(
    connection: Connection, declared: str, expressions: str, raw: Raw, unrepresentable: Callable[[str], bool]
) -> None:
    """Store the rows of `expressions` in a column of the type, and compare what comes back both ways."""
    connection.execute("DROP TABLE IF EXISTS checked")
    connection.execute(f"CREATE TABLE checked (n serial, v {declared})")
    connection.execute(f"INSERT INTO checked (v) {expressions}")
    oid, modifier = connection.execute(
        "SELECT atttypid::int, atttypmod FROM pg_attribute WHERE attrelid = 'checked'::regclass AND attname = 'v'"
    ).fetchone()
    texts = as_printed(connection, "SELECT v FROM checked ORDER BY n")
    converted = convert(pa.array(texts, pa.binary()), oid, modifier)
    assert converted.array.type == arrow_type(oid, modifier)

    reported = dict(converted.unrepresentable)
    printed = [None if text is None else text.decode() for text in texts]
    assert reported == {
        i: text for i, text in enumerate(printed) if text is not None and unrepresentable(text)
    }
    witnesses = binary_values(connection, oid, modifier, printed)
    for row, (value, witness) in enumerate(zip(raw(converted.array), witnesses, strict=True)):
        assert exact(value, oid) == (None if row in reported else witness), printed[row]


def as_printed(connection: Connection, query: str) -> list[bytes | None]:
    """The first column's text as it came over the wire."""
    result = connection.execute(query).pgresult
    return [result.get_value(row, 0) for row in range(result.ntuples)]


def binary_values(connection: Connection, oid: int, modifier: int, printed: list[str | None]) -> list[Any]:
    target, element = arrow_type(oid, modifier), element_type(oid)
    if pa.types.is_string(target):
        return printed  # the text itself is the value
    if element is None:
        name = pg_type(oid).name
        wires = connection.execute(
            f"SELECT {SEND.get(name, name + '_send')}(v) FROM checked ORDER BY n"
        ).fetchall()
        return [None if wire is None else WITNESS[name](wire) for (wire,) in wires]
    textual = pa.types.is_string(target.value_type)
    wires = connection.execute(
        f"SELECT CASE WHEN array_ndims(v) > 1 THEN NULL ELSE array_send(v{'::text[]' if textual else ''}) END "
        "FROM checked ORDER BY n"
    ).fetchall()
    witness = WITNESS["text" if textual else element.name]
    return [None if wire is None else of_array(wire, witness) for (wire,) in wires]


#: The send functions without an underscore.
SEND = {name: f"{name}send" for name in ("bool", "bytea", "int2", "int4", "int8", "oid", "float4", "float8")}


# --- edge values ----------------------------------------------------------------------------------------------


def never(_: str) -> bool:
    return False


def not_finite(text: str) -> bool:
    return text in {"NaN", "Infinity", "-Infinity"}


def shaped(text: str) -> bool:
    return text.startswith(("{{", "["))


def far(text: str) -> bool:
    return text >= "294247-01-10 04:00:54.775807" and text[6:7] == "-"


MOMENTS = [
    "infinity", "-infinity", "epoch", "4714-11-24 00:00:00 BC", "0001-12-31 23:59:59.999999 BC",
    "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:34:56.7", "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00", "294247-01-10 04:00:54.775806", "294247-01-10 04:00:54.775807",
    "294276-12-31 23:59:59.999999",
]  # fmt: skip

EDGES: list[tuple[str, list[str | None], Callable[[str], bool]]] = [
    ("bool", ["true", "false"], never),
    ("bytea", [r"\x", r"\x00", r"\xff5c00", r"\x" + "00ff" * 5000], never),
    ("int2", ["-32768", "32767", "0"], never),
    ("int4", ["-2147483648", "2147483647"], never),
    ("int8", ["-9223372036854775808", "9223372036854775807"], never),
    ("oid", ["0", "4294967295"], never),
    ("float4", ["NaN", "Infinity", "-Infinity", "-0", "1e-45", "3.4028235e38", "0.1", "16777217"], never),
    (
        "float8",
        ["NaN", "Infinity", "-Infinity", "-0", "5e-324", "1.7976931348623157e308", "0.1", "0.30000000000000004"],
        never,
    ),
    ("numeric", ["NaN", "Infinity", "-Infinity", "0", "1.500", "9" * 131072, "-0." + "9" * 16383], never),
    ("numeric(12,2)", ["NaN", "1.5", "-0.005", "9999999999.99", "-9999999999.99", "0"], not_finite),
    ("numeric(38,0)", ["9" * 38, "-" + "9" * 38, "NaN"], not_finite),
    ("numeric(38,38)", ["0." + "9" * 38, "-0." + "9" * 38, "1e-38"], not_finite),
    ("numeric(38,10)", ["-" + "9" * 28 + "." + "9" * 10, "1e-10"], not_finite),
    ("numeric(1,1)", ["0.9", "-0.9"], not_finite),
    ("numeric(40,2)", ["9" * 38 + ".99", "NaN"], never),
    ("date", ["infinity", "-infinity", "epoch", "4714-11-24 BC", "0005-02-29 BC", "0001-12-31 BC", "0001-01-01",
              "2024-02-29", "9999-12-31", "10000-01-01", "5874897-12-31"], never),
    ("time", ["00:00", "24:00:00", "23:59:59.999999", "12:34:56.7", "allballs", "23:59:59.9999999"], never),
    ("time(3)", ["12:34:56.7891", "24:00:00"], never),
    ("timetz", ["24:00:00-15:59:59", "12:00:00.5+05:30"], never),
    ("timestamp", MOMENTS, far),
    ("timestamptz", [*(f"{m}+00" if m[0].isdigit() and "BC" not in m else m for m in MOMENTS),
                     "2026-01-01 12:00:00.5+05:30", "1883-11-18 12:03:57.5-07:52:58", "0044-03-15 12:00+00 BC"], far),
    ("interval", ["1 year -2 mons 3 days 04:05:06.789", "-178000000 years", "00:00"], never),
    ("uuid", ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"], never),
    ("json", ['{"a": "\\u0000", "b":  1e400}', '"\\ud800"', "null"], never),
    ("jsonb", ['{"b": 1.0000000000000000000000001, "a": []}', '"é"', "null"], never),
    ("text", ["", "NULL", r"\N", "é😀", "a\nb\t\\"], never),
    ("varchar(3)", ["abc", ""], never),
    ("char(3)", ["a", ""], never),
    ('"char"', ["a", ""], never),
    ("name", ["a" * 63], never),
    ("money", ["-92233720368547758.08", "1.005"], never),
    ("inet", ["10.0.0.1/8", "::1", "::ffff:1.2.3.4"], never),
    ("cidr", ["10.0.0.0/8"], never),
    ("macaddr", ["08:00:2b:01:02:03"], never),
    ("macaddr8", ["08:00:2b:01:02:03:04:05"], never),
    ("bit(3)", ["101"], never),
    ("varbit", ["", "10101"], never),
    # not xml: a server may be built without it
    ("point", ["(1e-300,Infinity)"], never),
    ("box", ["(1,1),(0,0)"], never),
    ("int4range", ["[1,5)", "empty", "(,)"], never),
    ("tstzrange", ["[2026-01-01 00:00:00+00,infinity)"], never),
    ("int4multirange", ["{[1,3),[5,7)}", "{}"], never),
    ("tsvector", ["'a':1A 'b c':2"], never),
    ("tsquery", ["'a' & !'b'"], never),
    ("jsonpath", ["$.a[*]"], never),
    ("pg_lsn", ["16/B374D848"], never),
    ("regclass", ["pg_class"], never),
    ("xid8", ["18446744073709551615"], never),
    ("mood", ["sad", "happy, or not"], never),
    ("smaller", ["9"], never),
    ("pair", ['(1,"a,b")', "(,)"], never),
    ("bool[]", ["{t,f,NULL}", "{}"], never),
    ("bytea[]", [r'{"\\x00ff","\\x",NULL}'], never),
    ("int2[]", ["{-32768,NULL}"], never),
    ("int4[]", ["{1,2}", "{}", "{NULL}", "{{1,2},{3,4}}", "[0:1]={1,2}", "[2:2]={7}", "{{{1}}}"], shaped),
    ("int8[]", ["{9223372036854775807}"], never),
    ("float4[]", ["{NaN,-0,0.1,Infinity}"], never),
    ("float8[]", ["{NaN,-0,5e-324,-Infinity,NULL}"], never),
    ("numeric[]", ["{NaN,1.50,Infinity}"], never),
    ("numeric(5,2)[]", ["{1.5,-0.01,NULL}", "{}", "{1,NaN}"], lambda text: "NaN" in text),
    ("date[]", ['{infinity,2026-01-01,"0044-03-15 BC",10000-01-01}'], never),
    ("time[]", ["{24:00:00,12:00:00.5}"], never),
    ("timestamp[]", ['{infinity,"2026-01-01 00:00:00.5"}', '{"294276-12-31 23:59:59"}'], lambda t: "294276" in t),
    ("timestamptz[]", ['{-infinity,"2026-01-01 00:00:00+05:30","0044-03-15 12:00:00 BC"}'], never),
    ("text[]", [r'{a,"b c","NULL",NULL,"","\"","\\","{","}",",","é",nul,"a\\\"b"}', "{{a},{b}}", "[0:0]={x}"], shaped),
    ("uuid[]", ["{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"], never),
    ("jsonb[]", [r'{"{\"a\": \"\\\"\"}",null,NULL}'], never),
    ("interval[]", ['{"1 day","1 year"}'], never),
    ("inet[]", ["{10.0.0.1/8}"], never),
    ("int4range[]", ['{"[1,5)",empty}'], never),
    ("box[]", ["{(1,1),(0,0);(2,2),(1,1)}"], never),
    ("point[]", ['{"(1,2)"}'], never),
    ("mood[]", ['{sad,"happy, or not"}'], never),
    ("pair[]", ['{"(1,\\"a,b\\")"}'], never),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "values", "unrepresentable"), EDGES, ids=[edge[0] for edge in EDGES])
def test_every_edge_value_is_exact_or_listed(
    connection: Connection, declared: str, values: list[str], unrepresentable: Callable[[str], bool], raw: Raw
):
    literals = [*(sql.Literal(value).as_string(connection) for value in values), "NULL"]
    # parsed one by one, not as an array: a value may be an array itself
    rows = " UNION ALL ".join(f"SELECT {literal}::{declared}" for literal in literals)
    check(connection, declared, rows, raw, unrepresentable)


WORDS_OF_THE_SYNTAX = r"""
array(SELECT substr('{},"\ NULLé', (random() * 10)::int, (random() * 4)::int) FROM generate_series(1, n % 6))
"""

RANDOM = [
    ("int8", "(random() * 1e18)::int8 * (1 - 2 * (n % 2))", never),
    ("float8", "(random() - 0.5) * 10::float8 ^ ((random() * 600)::int - 300)", never),
    ("float4", "((random() - 0.5) * 10::float8 ^ ((random() * 70)::int - 35))::float4", never),
    ("numeric(30,10)", "((random() - 0.5) * 1e19)::numeric", never),
    ("numeric(9,4)", "((random() - 0.5) * 1e5)::numeric", never),
    ("date", "date '4714-11-24 BC' + (random() * 2147480000)::int", never),
    ("date", "date '1900-01-01' + (random() * 60000)::int", never),
    ("time", "time '00:00' + random() * interval '1 day'", never),
    ("timestamp", "timestamp '4714-11-24 BC' + random() * interval '298980 years'", far),
    ("timestamp", "timestamp '2000-01-01' + random() * interval '50 years'", far),
    ("timestamptz", "timestamptz '4714-11-24 BC' + random() * interval '298980 years'", far),
    ("timestamptz", "timestamptz '2000-01-01' + random() * interval '50 years'", far),
    ("bytea", "decode(repeat(md5(random()::text), n % 5), 'hex')", never),
    ("text[]", WORDS_OF_THE_SYNTAX, never),
    ("int4[]", "array(SELECT nullif((random() * 5)::int, 0) FROM generate_series(1, n % 6))", never),
    ("timestamptz[]", "array(SELECT now() + random() * interval '1 day' FROM generate_series(1, n % 3))", never),
]  # fmt: skip


@pytest.mark.parametrize(
    ("declared", "expression", "unrepresentable"), RANDOM, ids=[f"{r[0]} {i}" for i, r in enumerate(RANDOM)]
)
def test_random_values_over_the_whole_range_are_exact_or_listed(
    connection: Connection, declared: str, expression: str, unrepresentable: Callable[[str], bool], raw: Raw
):
    rows = f"SELECT CASE WHEN n % 17 = 0 THEN NULL ELSE {expression} END FROM generate_series(1, 1500) n"
    check(connection, declared, rows, raw, unrepresentable)


def test_bytes_of_a_database_without_encoding_reach_the_column_escaped(postgres: PostgresServer):
    with postgres.database(encoding="SQL_ASCII", template="template0", locale="C") as database:
        converted = latin_text(database)
    assert converted.array.to_pylist() == ["caf\\xe9", "plain"]
    assert converted.escaped_rows == 1


def latin_text(database: Database) -> Any:
    with database.connect(options="-c client_encoding=SQL_ASCII") as connection:
        connection.execute("CREATE TABLE t (n serial, v text)")
        connection.execute("INSERT INTO t (v) VALUES (convert_from('\\x636166e9', 'SQL_ASCII')), ('plain')")
        texts = as_printed(connection, "SELECT v FROM t ORDER BY n")
    return convert(pa.array(texts, pa.binary()), 25)

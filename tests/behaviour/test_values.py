"""Values: whatever type they have, the copy and the stream bring the same, whatever the role's settings.

The same rows are there before the copy in one table and inserted after it in another. The ``live`` pipeline of every
story connects as a role with hostile settings for dates, intervals, floats, bytes and more (tests/stories.py).
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.stories import HOSTILE_SETTINGS, Outcome, story

#: Type → SQL expressions of values. NULL is added to each.
MATRIX: Final[dict[str, tuple[str, ...]]] = {
    "bool": ("true", "false"),
    "int2": ("-32768", "32767", "0"),
    "int4": ("-2147483648", "2147483647"),
    "int8": ("-9223372036854775808", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "float4": ("'NaN'", "'Infinity'", "'-Infinity'", "'3.4028235e38'", "'1.4e-45'", "'-0'", "0.1"),
    "float8": (
        "'NaN'",
        "'Infinity'",
        "'-Infinity'",
        "1.7976931348623157e308",
        "5e-324",
        "0.1::float8 + 0.2::float8",
    ),
    "numeric": ("'NaN'", "'Infinity'", "repeat('9', 2000)::numeric", "0.00000000000000000001", "-0.0"),
    "numeric(10,2)": ("12345678.90", "-0.01", "'NaN'"),
    "numeric(38,10)": ("1234567890123456789012345678.0123456789",),
    "numeric(50,5)": ("'123456789012345678901234567890123456789012345.12345'",),
    "money": ("12.34::money", "'-1'::money"),
    "text": (
        "''",
        "'NULL'",
        r"'\N'",
        "'a\tb\nc\r\nd'",
        "'\"q\",''x''{}'",
        "'sélect ☃ 𝄞'",
        "repeat('long', 5000)",
    ),
    "varchar(5)": ("'abcde'", "''"),
    "char(5)": ("'ab'", "''"),
    '"char"': ("'x'", "''"),
    "name": ("'a name'",),
    "bytea": (r"'\x'", r"'\x00ff5c27'", "decode(repeat('ab', 3000), 'hex')"),
    "date": (
        "'0001-01-01'",
        "'4713-01-01 BC'",
        "'infinity'",
        "'-infinity'",
        "'5874897-12-31'",
        "'2024-02-29'",
    ),
    "time": ("'00:00:00'", "'23:59:59.999999'", "'24:00:00'"),
    "timetz": ("'12:30:00.5+05:45'", "'24:00:00-15:59'"),
    "timestamp": (
        "'infinity'",
        "'-infinity'",
        "'294276-12-31 23:59:59.999999'",
        "'4713-01-01 00:00:00 BC'",
        "'1999-12-31 23:59:59.5'",
    ),
    "timestamptz": (
        "'infinity'",
        "'2026-06-01 12:00:00.123456+05:45'",
        "'1850-01-01 00:00:00+00'",
        "'0044-03-15 12:00:00+00 BC'",
    ),
    "timestamp(0)": ("'2026-01-01 00:00:00.6'",),
    "interval": ("'1 year 2 mons -3 days 04:05:06.789'", "'-1 day -00:00:01'", "'178000000 years'"),
    "uuid": ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
    "json": ('\'{"b": 1, "a":  [1, null]}\'', "'null'", "'\"\\ud83d\"'", "'12345678901234567890123'"),
    "jsonb": ('\'{"b": 1, "a": [1, null]}\'', "'null'", "'\"text\"'", "'1e400'"),
    "xml": ("'<a b=\"c\">&amp;</a>'::xml",),
    "inet": ("'192.168.0.1/24'", "'::1'"),
    "cidr": ("'10.0.0.0/8'",),
    "macaddr": ("'08:00:2b:01:02:03'",),
    "bit(4)": ("B'1010'",),
    "varbit": ("B''", "B'10101'"),
    "point": ("'(1.5,-2)'",),
    "box": ("'(1,1),(0,0)'",),
    "int4range": ("'[1,5)'", "'empty'", "'(,)'"),
    "tstzrange": ("'[2026-01-01 00:00:00+00,infinity]'",),
    "int4multirange": ("'{[1,3),[5,7)}'", "'{}'"),
    "tsvector": ("to_tsvector('simple', 'a fat cat')",),
    "pg_lsn": ("'16/B374D848'",),
    "int4[]": ("'{}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"),
    "text[]": ("'{}'", "ARRAY['NULL', NULL, '', 'a\"b', 'c,d', '{e}', ' f ', E'g\\\\h', E'i\\nj']"),
    "numeric(6,2)[]": ("'{1.5,NULL,-2.25}'", "'{NaN}'"),
    "timestamptz[]": ("'{\"2026-01-01 00:00:00+00\",infinity,NULL}'",),
    "bytea[]": (r"ARRAY['\x00ff'::bytea, NULL]",),
    "jsonb[]": ("ARRAY['{\"a\": 1}'::jsonb, 'null', NULL]",),
    "bool[]": ("'{t,f,NULL}'",),
    "box[]": ("'{(1,1),(0,0);(2,2),(1,1)}'",),
    "mood": ("'ok'", "'so, \"so\"'"),
    "mood[]": ('\'{ok,"so, \\"so\\"",NULL}\'',),
    "code": ("'K1'",),
    "code[]": ("ARRAY['K1', NULL]::code[]",),
    "pair": ("ROW(1, 'a,\"b\"')::pair", "ROW(NULL, NULL)::pair"),
    "pair[]": ("ARRAY[ROW(1, 'x')::pair, NULL]",),
}
GIVEN = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'so, \"so\"')",
    "CREATE DOMAIN code_base AS text CHECK (VALUE <> '')",
    "CREATE DOMAIN code AS code_base",
    "CREATE TYPE pair AS (n int, t text)",
)


def _rows(table: str) -> str:
    """One row per value: its own column is set, the others are NULL; and one with NULL only."""
    inserts = [f"INSERT INTO {table} (id) VALUES (0)"]
    number = 0
    for place, values in enumerate(MATRIX.values()):
        for value in values:
            number += 1
            inserts.append(f"INSERT INTO {table} (id, v{place}) VALUES ({number}, {value})")
    return "; ".join(inserts)


_COLUMNS = ", ".join(f"v{place} {kind}" for place, kind in enumerate(MATRIX))
TOLD = story(
    [
        *GIVEN,
        f"CREATE TABLE copied (id int PRIMARY KEY, {_COLUMNS})",
        f"CREATE TABLE streamed (id int PRIMARY KEY, {_COLUMNS})",
        f"CREATE TABLE updated (id int PRIMARY KEY, {_COLUMNS})",
        f"CREATE TABLE unkeyed (id int, {_COLUMNS})",
        "ALTER TABLE unkeyed REPLICA IDENTITY FULL",
        _rows("copied"),
        _rows("updated"),
        _rows("unkeyed"),
        _rows("unkeyed"),
    ],
    when=[
        _rows("streamed"),
        "UPDATE updated SET id = -id",
        "DELETE FROM unkeyed WHERE ctid IN (SELECT min(ctid) FROM unkeyed GROUP BY id)",
        "UPDATE unkeyed SET id = -id",
    ],
)


@TOLD
@pytest.mark.parametrize("place", range(len(MATRIX)), ids=list(MATRIX))
class TestEveryType:
    def test_has_the_same_value_by_copy_and_by_stream(self, outcome: Outcome, place: int):
        column = f"v{place}::VARCHAR"
        assert outcome.types("copied")[f"v{place}"] == outcome.types("streamed")[f"v{place}"]
        assert outcome.rows("copied", f"id, {column}") == outcome.rows("streamed", f"id, {column}")
        assert outcome.rows("copied", f"-id, {column}") == outcome.rows("updated", f"id, {column}")

    def test_identifies_its_row_where_the_full_old_row_does(self, outcome: Outcome, place: int):
        assert outcome.logged("old_rows_not_found", "unkeyed") == []
        column = f"v{place}::VARCHAR"
        assert outcome.rows("copied", f"-id, {column}") == outcome.rows("unkeyed", f"id, {column}")

    def test_is_never_null_where_the_source_is_not_unless_its_exact_text_is_kept(
        self, outcome: Outcome, place: int
    ):
        source = {
            row[0] for row in outcome.source(f"SELECT id FROM streamed WHERE v{place} IS DISTINCT FROM NULL")
        }
        stored = {row[0] for row in outcome.rows("streamed", f"id, v{place} IS NOT NULL") if row[1]}
        attnum = outcome.attnums("streamed")[f"v{place}"]
        exact = outcome.world.read(
            "SELECT count(*) FROM _etl.unrepresentable WHERE column_attnum = ? AND table_oid = ?",
            [attnum, outcome.source("SELECT 'streamed'::regclass::oid::int8")[0][0]],
        )
        assert len(source - stored) == exact[0][0]


@TOLD
def test_text_types_are_exactly_the_text_of_the_source(outcome: Outcome):
    kinds = [name for name, kind in outcome.types("streamed").items() if kind == "VARCHAR"]
    with outcome.world.database.connect() as connection:
        connection.execute("SET intervalstyle = postgres; SET timezone = 'UTC'; SET datestyle = 'ISO'")
        for name in kinds:
            rows = connection.execute(
                f"SELECT id, CASE WHEN {name} IS DISTINCT FROM NULL THEN format('%s', {name}) END"
                f' FROM "{outcome.schema}".streamed ORDER BY id'.encode()
            ).fetchall()
            assert outcome.rows("streamed", f"id, {name}") == rows, name


@TOLD
def test_the_live_pipelines_role_really_has_hostile_settings(outcome: Outcome):
    world = outcome.world
    with world.database.server.connect(world.database.name, user=world.role) as connection:
        for name, hostile in HOSTILE_SETTINGS.items():
            (setting,) = connection.execute("SELECT current_setting(%s)", (name,)).fetchone() or ("",)
            assert setting == hostile, name

"""The contract, "Column defaults are best-effort metadata translations": every listed shape, end to end into DuckDB.

A table gets one column for each default, and another table has them all from the start; then a row takes every default.
"""

from __future__ import annotations

from typing import Any

import pytest

from etl.testing.harness import Row
from tests.stories import Outcome, story

SUPPORTED = {
    "string": ("text", "'pending'::text", "'pending'"),
    "string in parentheses, with a quote": ("text", "('don''t'::text)", "'don''t'"),
    "string with the word select": ("varchar(20)", "'please select one'", "'please select one'"),
    "string with a cast inside": ("text", "'a::b'", "'a::b'"),
    "empty string": ("text", "''", "''"),
    "number": ("integer", "42", "42"),
    "negative number": ("integer", "-1", "-1"),
    "largest number": ("bigint", "9223372036854775807", "9223372036854775807"),
    "numeric": ("numeric(10,2)", "'42.10'::numeric(10,2)", "42.10"),
    "float": ("double precision", "0.5", "0.5"),
    # the contract lists the text 1e6 as unsupported; Postgres stores it as '1000000'::numeric
    "exponent as Postgres stores it": ("double precision", "1e6", "1000000"),
    "true": ("boolean", "true", "true"),
    "false": ("boolean", "false", "false"),
    "quoted boolean": ("boolean", "'true'::boolean", "true"),
    "date": ("date", "'2026-01-01'::date", "'2026-01-01'"),
    "time": ("time", "'12:30:00'::time", "'12:30:00'"),
    "timestamp": ("timestamp", "'2026-01-01 12:30:00'::timestamp", "'2026-01-01 12:30:00'"),
    "timestamp with time zone": (
        "timestamptz",
        "'2026-01-01 12:30:00+02'::timestamptz",
        "'2026-01-01 10:30:00+00'",
    ),
    "jsonb": ("jsonb", "'{}'::jsonb", "'{}'"),
    "json": ("json", """'{"enabled": true}'::json""", """'{"enabled": true}'"""),
    "uuid": (
        "uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid",
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
    ),
    "enum": ("mood", "'ok'", "'ok'"),
    "domain": ("code", "'k'", "'k'"),
}

EXPECTED = {f"v{n}": shape[2] for n, shape in enumerate(SUPPORTED.values())}

#: The contract's examples of unsupported expressions, and more of the kind. ``default (select 'x')`` is not among them:
#: Postgres itself refuses it.
UNSUPPORTED = {
    "sequence": ("bigint", "nextval('users_id_seq')"),
    "operator": ("text", "'a' || 'b'"),
    "function of an operator": ("text", "lower('USER' || '_ID')"),
    "concat": ("text", "concat('a', 'b')"),
    "hash": ("text", "md5('x')"),
    "random": ("double precision", "random()"),
    "clock": ("timestamptz", "clock_timestamp()"),
    "now": ("timestamptz", "now()"),
    "current_timestamp": ("timestamptz", "current_timestamp"),
    "current_user": ("text", "current_user"),
    "generated uuid": ("uuid", "gen_random_uuid()"),
    "uuid of an extension": ("uuid", "uuid_generate_v4()"),
    "time zone": ("timestamp", "timezone('UTC', now())"),
    "array": ("text[]", "array['a', 'b']"),
    "setting": ("text", "current_setting('app.tenant_id', true)"),
    "interval": ("interval", "interval '1 day 2 hours'"),
    "current_date": ("date", "current_date"),
    "arithmetic": ("integer", "1 + 1"),
    "bytes": ("bytea", r"'\xde00'"),
    "infinity": ("timestamp", "'infinity'"),
    "array literal": ("text[]", "'{a,b}'"),
}

GIVEN = (
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN code AS text CHECK (VALUE <> '')",
    "CREATE SEQUENCE users_id_seq",
    "CREATE FUNCTION uuid_generate_v4() RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'",
)


def told(*shapes: tuple[str, ...]) -> pytest.MarkDecorator:
    columns = [f"v{n} {shape[0]} DEFAULT {shape[1]}" for n, shape in enumerate(shapes)]
    return story(
        [
            *GIVEN,
            "CREATE TABLE items (id int PRIMARY KEY)",
            "INSERT INTO items VALUES (1)",
            f"CREATE TABLE copied (id int PRIMARY KEY, {', '.join(columns)})",
            "INSERT INTO copied VALUES (1)",
        ],
        when=[
            "SET app.tenant_id = 'tenant 7'",
            *(f"ALTER TABLE items ADD COLUMN {column}" for column in columns),
            "INSERT INTO items (id) VALUES (2)",
            "INSERT INTO copied (id) VALUES (2)",
        ],
    )


def evaluated(outcome: Outcome, table: str, column: str, text: str) -> Any:
    """What the destination makes of a default's text in that column."""
    return outcome.world.read(f"SELECT CAST({text} AS {outcome.types(table)[column]})")[0][0]


@told(*SUPPORTED.values())
@pytest.mark.parametrize("column", [f"v{n}" for n in range(len(SUPPORTED))], ids=list(SUPPORTED))
class TestALiteralDefault:
    def test_is_installed_with_an_added_column(self, outcome: Outcome, column: str):
        expected = EXPECTED[column]
        installed = evaluated(outcome, "items", column, outcome.defaults("items")[column])
        assert installed == evaluated(outcome, "items", column, expected)
        assert (column, "default") not in outcome.skipped("items")

    def test_is_installed_with_a_copied_table(self, outcome: Outcome, column: str):
        assert outcome.defaults("copied")[column] == outcome.defaults("items")[column]

    def test_is_what_future_rows_carry_and_existing_rows_do_not(self, outcome: Outcome, column: str):
        value = evaluated(outcome, "items", column, EXPECTED[column])
        assert outcome.rows("items", f"id, {column}") == [(1, None), (2, value)]
        assert outcome.rows("copied", f"id, {column}") == [(1, value), (2, value)]


@told(*UNSUPPORTED.values())
@pytest.mark.parametrize("column", [f"v{n}" for n in range(len(UNSUPPORTED))], ids=list(UNSUPPORTED))
class TestAnUnsupportedDefault:
    def test_is_skipped_with_a_warning_and_replication_does_not_fail(self, outcome: Outcome, column: str):
        assert column not in outcome.defaults("items")
        assert (column, "default") in outcome.skipped("items")
        assert outcome.error("items") is None

    def test_is_skipped_in_a_copied_table_too(self, outcome: Outcome, column: str):
        assert column not in outcome.defaults("copied")

    def test_does_not_keep_future_rows_from_carrying_the_sources_value(self, outcome: Outcome, column: str):
        for table in ("items", "copied"):
            (in_source,) = outcome.source(f"SELECT {column}::text FROM {table} WHERE id = 2")[0]
            assert in_source is not None
            assert (2, *_as_stored(outcome, column, in_source)) in outcome.rows(
                table, f"id, {column}::VARCHAR"
            )

    def test_leaves_existing_rows_null(self, outcome: Outcome, column: str):
        assert outcome.rows("items", f"id, {column} IS NULL") == [(1, True), (2, False)]


def _as_stored(outcome: Outcome, column: str, text: str) -> Row:
    """A text of Postgres as DuckDB writes the same value."""
    kind = outcome.types("copied")[column]
    if kind == "BLOB":
        return outcome.world.read("SELECT from_hex(?)::VARCHAR", [text.removeprefix(r"\x")])[0]
    if kind.endswith("[]"):
        text = "[" + text.strip("{}") + "]"
    return outcome.world.read(f"SELECT CAST(CAST(? AS {kind}) AS VARCHAR)", [text])[0]


# --- a default that changes ------------------------------------------------------------------------------------------

WITH_DEFAULT = [
    "CREATE TABLE items (id int PRIMARY KEY, v text DEFAULT 'old')",
    "INSERT INTO items VALUES (1)",
]


@story(
    WITH_DEFAULT,
    when=[
        "ALTER TABLE items ALTER COLUMN v SET DEFAULT lower('STALE')",
        "INSERT INTO items VALUES (2)",
    ],
)
def test_from_supported_to_unsupported_the_old_default_is_dropped_so_that_none_is_stale(outcome: Outcome):
    assert outcome.defaults("items") == {}
    assert outcome.skipped("items") == {("v", "default")}
    assert outcome.rows("items") == [(1, "old"), (2, "stale")]


@story(
    ["CREATE TABLE items (id int PRIMARY KEY, v text DEFAULT lower('X'))", "INSERT INTO items VALUES (1)"],
    when=["ALTER TABLE items ALTER COLUMN v SET DEFAULT 'plain'", "INSERT INTO items VALUES (2)"],
)
def test_from_unsupported_to_supported_the_default_is_installed(outcome: Outcome):
    assert outcome.defaults("items") == {"v": "'plain'"}
    assert outcome.rows("items") == [(1, "x"), (2, "plain")]


@story(
    WITH_DEFAULT,
    when=[
        "ALTER TABLE items ALTER COLUMN v SET DEFAULT 'new'",
        "INSERT INTO items VALUES (2)",
        "ALTER TABLE items ALTER COLUMN v DROP DEFAULT",
        "INSERT INTO items VALUES (3)",
        "ALTER TABLE items ALTER COLUMN v SET DEFAULT NULL",
        "INSERT INTO items VALUES (4)",
        "ALTER TABLE items ALTER COLUMN v SET DEFAULT 'again'",
        "INSERT INTO items VALUES (5)",
    ],
)
def test_defaults_set_and_dropped_in_turn_end_as_the_last_one(outcome: Outcome):
    assert outcome.defaults("items") == {"v": "'again'"}
    outcome.assert_same("items")

"""Schemas, tables and columns of any name."""

from __future__ import annotations

from tests.stories import Outcome, story

NAMES = (
    'Upper "and" quoted',
    "with.dots.in.it",
    "new\nline",
    "trailing ",
    "sélect ☃",
    "x" * 63,
    "drop table",
    "_underscore",
    "back\\slash",
    "a'b",
    "1digit",
)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@story(
    [
        f"CREATE TABLE {_quoted(table)} (id int PRIMARY KEY, "
        + ", ".join(f"{_quoted(name)} text" for name in NAMES)
        + f"); INSERT INTO {_quoted(table)} VALUES (1, 'v')"
        for table in NAMES
    ],
    when=[
        step
        for table in NAMES
        for step in (
            f"ALTER TABLE {_quoted(table)} RENAME COLUMN {_quoted(NAMES[0])} TO {_quoted(NAMES[0] + '2')}",
            f"ALTER TABLE {_quoted(table)} ADD COLUMN {_quoted('new' + NAMES[1])} text DEFAULT 'x''y'",
            f"INSERT INTO {_quoted(table)} (id, {_quoted(NAMES[2])}) VALUES (2, 'v2')",
            f"UPDATE {_quoted(table)} SET {_quoted(NAMES[3])} = 'u' WHERE id = 1",
        )
    ],
)
def test_tables_and_columns_may_have_any_name(outcome: Outcome):
    assert outcome.tables() == sorted(NAMES)
    for table in NAMES:
        assert outcome.names(table) == ["id", NAMES[0] + "2", *NAMES[1:], "new" + NAMES[1]]
        columns = f"id, {_quoted(NAMES[2])}, {_quoted(NAMES[3])}"
        assert outcome.rows(table, columns) == [(1, None, "u"), (2, "v2", None)]


SCHEMAS = ("main", "temp", "system", "warehouse", "information schema", "Upper", "s.dotted")


@story(
    [
        step
        for schema in SCHEMAS
        for step in (
            f"CREATE SCHEMA {_quoted(schema)}",
            f"CREATE TABLE {_quoted(schema)}.things (id int PRIMARY KEY, a text)",
            f"INSERT INTO {_quoted(schema)}.things VALUES (1, 'one')",
        )
    ],
    when=[
        step
        for schema in SCHEMAS
        for step in (
            f"ALTER TABLE {_quoted(schema)}.things ADD COLUMN b int DEFAULT 2",
            f"INSERT INTO {_quoted(schema)}.things VALUES (2, 'two')",
            f"UPDATE {_quoted(schema)}.things SET a = 'changed' WHERE id = 1",
        )
    ],
    publish=[f"{_quoted(schema)}.things" for schema in SCHEMAS],
)
def test_schemas_may_have_any_name(outcome: Outcome):
    for schema in SCHEMAS:
        rows = outcome.world.read(
            f"SELECT * FROM warehouse.{_quoted(schema)}.things ORDER BY id",
        )
        assert rows == [(1, "changed", 2), (2, "two", 2)], schema

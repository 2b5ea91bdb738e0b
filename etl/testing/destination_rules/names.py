"""Names and literals are data: whatever they look like, one statement is executed and no other table is touched."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from etl.errors import DestinationTableError
from etl.schema.table import ReplicatedTableSchema
from etl.testing.builders import INT8, Insert, PlainRow, Stream, altered, column, table_schema
from etl.testing.destination_kit import DestinationKit, World, multiset

_FRAGMENTS = (
    "'", '"', "`", ";", "--", "/*", "*/", "\\", "\\'", "''", '""', "``", "$$", "$tag$", "%s", "%", "?", "$1", ":name",
    "{x}", "{}", "[0]", "(", ")", ",", ".", "..", "../x", "/", "a/b", "\n", "\r\n", "\t", " ", " a ", "#", "@", "&", "|",
    "=", "<>", "~", "^", "!", "\x01", "\x1b[31m", "\x7f", "\u00a0", "\u200b", "\u202e", "é", "Ü", "日本", "😀",
    "ﬀ", "\u0131", "ß",
)  # fmt: skip
_INJECTIONS = (
    "x; DROP TABLE canary; --", "x'; DROP TABLE canary; --", 'x"; DROP TABLE canary; --', "x`; DROP TABLE canary; --",
    "x') ; DELETE FROM canary; --", 'x" INTEGER); DROP TABLE canary; CREATE TABLE y("a', "' OR '1'='1", '" OR ""="',
    "1; ATTACH 'x'", "COPY canary TO 'x'", "x' || (SELECT 1) || '", "${jndi:ldap://x}", "{{7*7}}", "<script>", "\\x00",
    "x\n;DROP TABLE canary", "x/**/;/**/DROP/**/TABLE/**/canary", "\\'; DROP TABLE canary; --", "x''; DROP TABLE canary;--",
    'x""; DROP TABLE canary;--', "pg:1.1", "etl:metadata", "supabase_etl_ddl_tmp_column", "rowid", "_metadata",
)  # fmt: skip
_WORDS = (
    "select", "SELECT", "table", "from", "where", "order", "group", "user", "default", "null", "true", "primary", "key",
    "index", "column", "values", "insert", "update", "delete", "drop", "alter", "create", "struct", "map", "array", "list",
    "date", "time", "timestamp", "interval", "all", "analyse", "and", "any", "as", "asc", "between", "case", "cast",
    "check", "collate", "constraint", "cross", "current_date", "distinct", "else", "end", "except", "exists", "false",
    "for", "full", "having", "in", "inner", "intersect", "into", "is", "join", "lateral", "left", "like", "limit",
    "merge", "natural", "not", "offset", "on", "or", "outer", "pivot", "qualify", "references", "returning", "right",
    "sample", "show", "some", "then", "to", "union", "unique", "unpivot", "using", "when", "window", "with",
)  # fmt: skip

#: Some 200 names Postgres allows: no NUL, 1 to 63 bytes.
NAMES = tuple(
    dict.fromkeys(
        name
        for name in (
            *_FRAGMENTS,
            *_INJECTIONS,
            *_WORDS,
            *(f"a{piece}b" for piece in _FRAGMENTS),
            "n" * 63,
            "é" * 31,
        )
        if len(name.encode()) <= 63
    )
)

_CANARY = table_schema(column("id", 1, INT8), oid=666, schema="main", name="canary")


class NameRules:
    """A canary table stands by; it must survive."""

    def test_every_name_can_be_that_of_a_table_a_schema_and_a_column(self, kit: DestinationKit) -> None:
        for batch in _slices(kit.sample(NAMES, 6), 40):
            world = _guarded(kit.fresh())
            for oid, name in enumerate(batch, start=1000):
                _round_trip(world, oid, name)
            _unharmed(world)

    def test_every_name_can_be_added_and_renamed_to(self, kit: DestinationKit) -> None:
        world = _guarded(kit)
        schema = table_schema(column("id", 1, INT8), column("start", 2), oid=5, name="renamed")
        world.copy(schema, [{"id": 1, "start": "kept"}])
        stream, names = Stream(), kit.sample(NAMES, 6)
        for step, name in enumerate(names, start=1):
            added = names[step % len(names)]
            columns = [column("id", 1, INT8), column(name, 2)]
            if added.lower() != name.lower():
                columns.append(column(added, 2 + step))
            schema = altered(schema, *columns, at=step)
            world.write([stream.relation(schema), stream.commit()])
            assert world.columns(schema) == {(c.name, c.attnum) for c in schema.columns}
        assert [dict(row)[names[-1]] for row in world.rows(schema)] == ["kept"]
        _unharmed(world)

    def test_every_text_can_be_a_default(self, kit: DestinationKit) -> None:
        world = _guarded(kit)
        schema = table_schema(column("id", 1, INT8), column("d", 2), oid=5, name="defaults")
        world.copy(schema)
        stream = Stream()
        for step, text in enumerate(kit.sample(NAMES, 6), start=1):
            quoted = "'" + text.replace("'", "''") + "'::text"
            with_default = altered(
                schema, column("id", 1, INT8), column("d", 2, default_expression=quoted), at=step
            )
            world.write([stream.relation(with_default), stream.commit()])
            actual = world.destination.describe(world.table(schema))
            assert actual is not None
            assert actual.columns[1].default is not None or "\\" in quoted
        _unharmed(world)

    @pytest.mark.parametrize(
        "pairs",
        [
            (("a.b", "c"), ("a", "b.c")),
            (("a_b", "c"), ("a", "b_c")),
            (('a"', "b"), ("a", '"b')),
            (('a".', "b"), ("a", '."b')),
            (("a/b", "c"), ("a", "b/c")),
            (("..", "x"), ("x", "..")),
        ],
    )
    def test_two_source_tables_never_become_one(
        self, kit: DestinationKit, pairs: tuple[tuple[str, str], tuple[str, str]]
    ) -> None:
        world = World(kit)
        schemas = [
            table_schema(column("id", 1, INT8), oid=oid, schema=schema, name=name)
            for oid, (schema, name) in enumerate(pairs, start=1)
        ]
        for schema in schemas:
            world.copy(schema, [{"id": schema.oid}])
        assert [world.rows(schema) for schema in schemas] == [multiset([{"id": 1}]), multiset([{"id": 2}])]

    def test_tables_that_collide_by_case_are_refused_where_case_does_not_count(
        self, kit: DestinationKit
    ) -> None:
        world = World(kit)
        upper, lower = (
            table_schema(column("id", 1, INT8), oid=oid, name=name)
            for oid, name in ((1, "Orders"), (2, "orders"))
        )
        world.copy(upper, [{"id": 1}])
        if world.destination.capabilities.case_insensitive_names:
            with pytest.raises(DestinationTableError, match=r"public\.Orders"):
                world.copy(lower)
        else:
            world.copy(lower)
        assert world.rows(upper) == multiset([{"id": 1}])


def _named(oid: int, name: str) -> ReplicatedTableSchema:
    other = f"k{oid}"
    return table_schema(
        column(other, 1, INT8),
        column(name, 2, INT8),
        key=(other,),
        oid=oid,
        schema=f"s{name}"[:40],
        name=f"{name}{oid}"[-50:],
    )


def _slices(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))


def _guarded(kit: DestinationKit) -> World:
    world = World(kit)
    world.copy(_CANARY, [{"id": 1}])
    return world


def _unharmed(world: World) -> None:
    assert world.rows(_CANARY) == multiset([{"id": 1}])


def _round_trip(world: World, oid: int, name: str) -> None:
    schema = _named(oid, name)
    row: PlainRow = {c.name: number for number, c in enumerate(schema.columns)}
    world.copy(schema, [row])
    world.write([Stream().rows(schema, Insert({**row, schema.columns[0].name: 100}))])
    assert world.rows(schema) == multiset([row, {**row, schema.columns[0].name: 100}])

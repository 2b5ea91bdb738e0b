"""Fixed workloads, written once per run; every consumer then reads the same WAL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from psycopg import Connection

PUBLICATION = "bench"

#: Four columns each of ten types.
_WIDE = (
    "int",
    "bigint",
    "smallint",
    "double precision",
    "numeric(14,4)",
    "text",
    "varchar(20)",
    "timestamptz",
    "date",
    "boolean",
)
_WIDE_VALUES = (
    "i % 1000", "i", "i % 100", "i * 0.5", "(i % 1000000) / 100.0", "md5(i::text)", "'v' || i % 1000",
    "timestamptz '2026-01-01' + i * interval '1 second'", "date '2026-01-01' + (i % 1000)::int", "i % 2 = 0",
)  # fmt: skip

SCHEMA = f"""
CREATE TABLE public.narrow (
    id bigint PRIMARY KEY, n int, label text, amount numeric(12,2), at timestamptz, doc jsonb
);
CREATE TABLE public.wide (
    id bigint PRIMARY KEY, {", ".join(f"c{place} {_WIDE[place % 10]}" for place in range(40))}
);
CREATE TABLE public.docs (id bigint PRIMARY KEY, doc jsonb);
CREATE TABLE public.altered (id bigint PRIMARY KEY, a text);
CREATE PUBLICATION bench FOR TABLE public.narrow, public.wide, public.docs, public.altered;
"""

_ROW = """
    i, i % 1000, md5(i::text), (i % 100000) / 100.0, timestamptz '2026-01-01' + i * interval '1 second',
    jsonb_build_object('k', i, 'tag', 'x' || i % 50)
"""


_WIDE_ROW = f"i, {', '.join(_WIDE_VALUES[place % 10] for place in range(40))}"
#: About a kilobyte.
_DOC_ROW = """
    i, jsonb_build_object('id', i, 'name', md5(i::text), 'tags', jsonb_build_array('a', 'b', i),
                          'lines', (SELECT jsonb_agg(jsonb_build_object('sku', md5((i + g)::text), 'n', g, 'price', g * 1.5))
                                      FROM generate_series(1, 12) g))
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """`statements` run one per transaction; `rows` is how many row changes they make in all, to `table`.

    `has_ddl`: schema changes are believed by a pipeline alone, so the decoder by itself is left out.
    """

    name: str
    rows: int
    statements: tuple[str, ...]
    table: str = "narrow"
    has_ddl: bool = False

    def run(self, connection: Connection[tuple[object, ...]]) -> None:
        """Write the WAL."""
        for statement in self.statements:
            connection.execute(statement.encode())


def workloads(rows: int) -> Mapping[str, Workload]:
    """By name; `rows` scales the first, the others follow it. `delete` empties what `insert` filled."""
    per = 1000
    tenth, fifth = max(rows // 10, 1), max(rows // 5, 1)
    update = "UPDATE public.narrow SET n = n + 1, label = md5(label)"
    made = (
        Workload("insert", rows, tuple(_inserts("narrow", _ROW, 0, rows, per))),
        Workload("update", rows, tuple(_by_range(update, rows, per))),
        Workload("delete", rows, tuple(_by_range("DELETE FROM public.narrow", rows, per))),
        Workload("small", tenth, tuple(_inserts("narrow", _ROW, rows, rows + tenth, 1))),
        Workload("large", 2 * rows, tuple(_inserts("narrow", _ROW, 2 * rows, 4 * rows, 2 * rows))),
        Workload("wide", fifth, tuple(_inserts("wide", _WIDE_ROW, 0, fifth, per)), "wide"),
        Workload("jsonb", fifth, tuple(_inserts("docs", _DOC_ROW, 0, fifth, per)), "docs"),
        Workload("ddl", tenth, tuple(_storm(tenth, per)), "altered", has_ddl=True),
    )
    return {workload.name: workload for workload in made}


def _inserts(table: str, row: str, start: int, stop: int, per: int) -> Iterator[str]:
    for first in range(start, stop, per):
        last = min(first + per, stop) - 1
        yield f"INSERT INTO public.{table} SELECT {row} FROM generate_series({first}, {last}) i"


def _by_range(statement: str, rows: int, per: int) -> Iterator[str]:
    for first in range(0, rows, per):
        yield f"{statement} WHERE id BETWEEN {first} AND {min(first + per, rows) - 1}"


def _storm(rows: int, per: int) -> Iterator[str]:
    """Add a column, write, rename it, write, drop it, write, and again."""
    for first in range(0, rows, per):
        last, turn = min(first + per, rows) - 1, first // per
        yield (
            f"ALTER TABLE public.altered ADD COLUMN b{turn} int DEFAULT {turn}",
            f"ALTER TABLE public.altered RENAME COLUMN b{turn - 1} TO c",
            "ALTER TABLE public.altered DROP COLUMN c",
        )[turn % 3]
        yield f"INSERT INTO public.altered (id, a) SELECT i, md5(i::text) FROM generate_series({first}, {last}) i"

"""Fixed workloads, written once per run; every consumer then reads the same WAL."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from psycopg import Connection

PUBLICATION = "bench"

SCHEMA = """
CREATE TABLE public.narrow (
    id bigint PRIMARY KEY, n int, label text, amount numeric(12,2), at timestamptz, doc jsonb
);
CREATE PUBLICATION bench FOR TABLE public.narrow;
"""

_ROW = """
    i, i % 1000, md5(i::text), (i % 100000) / 100.0, timestamptz '2026-01-01' + i * interval '1 second',
    jsonb_build_object('k', i, 'tag', 'x' || i % 50)
"""


@dataclass(frozen=True, slots=True)
class Workload:
    """`statements` run one per transaction; `rows` is how many row changes they make in all."""

    name: str
    rows: int
    statements: tuple[str, ...]

    def run(self, connection: Connection[tuple[object, ...]]) -> None:
        """Write the WAL."""
        for statement in self.statements:
            connection.execute(statement.encode())


def workloads(rows: int) -> Mapping[str, Workload]:
    """By name; `rows` scales the first, the others follow it."""
    per = 1000
    one_by_one = max(rows // 10, 1)
    made = (
        Workload("insert", rows, tuple(_inserts(0, rows, per))),
        Workload(
            "update",
            rows,
            tuple(_by_range("UPDATE public.narrow SET n = n + 1, label = md5(label)", rows, per)),
        ),
        Workload("delete", rows, tuple(_by_range("DELETE FROM public.narrow", rows, per))),
        Workload("small", one_by_one, tuple(_inserts(rows, rows + one_by_one, 1))),
    )
    return {workload.name: workload for workload in made}


def _inserts(start: int, stop: int, per: int) -> Iterator[str]:
    for first in range(start, stop, per):
        last = min(first + per, stop) - 1
        yield f"INSERT INTO public.narrow SELECT {_ROW} FROM generate_series({first}, {last}) i"


def _by_range(statement: str, rows: int, per: int) -> Iterator[str]:
    for first in range(0, rows, per):
        yield f"{statement} WHERE id BETWEEN {first} AND {min(first + per, rows) - 1}"

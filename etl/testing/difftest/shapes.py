"""The tables a history begins with: each tells its rows apart in another way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etl.testing.difftest.catalog import quoted
from etl.testing.difftest.ledger import STAMP, noted, stamped


@dataclass(frozen=True, slots=True)
class Shape:
    """A table: its definition without the stamp's column, and statements that follow; ``{table}`` is its quoted name."""

    name: str
    definition: str
    after: Sequence[str] = ()
    options: str = ""

    def statements(self) -> str:
        """All that makes the table, in one string."""
        table = f"public.{quoted(self.name)}"
        parts = [
            f"CREATE TABLE {table} ({self.definition}, {STAMP} bigint){self.options}",
            *(statement.format(table=table) for statement in self.after),
            stamped(table),
            noted("create", table),
        ]
        return "; ".join(parts)


_EXTERNAL = "ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL"

#: Each history begins with some of these.
SHAPES: Sequence[Shape] = (
    Shape("keyed", "id bigint PRIMARY KEY, alpha text, beta integer DEFAULT 1"),
    Shape("paired", "alpha text, no bigint, key text, PRIMARY KEY (key, no)"),
    Shape(
        "indexed",
        'alpha integer, k bigint NOT NULL CONSTRAINT "k key" UNIQUE, beta jsonb',
        ('ALTER TABLE {table} REPLICA IDENTITY USING INDEX "k key"',),
    ),
    Shape(
        "keyless", "id bigint, alpha text, beta numeric(12,2)", ("ALTER TABLE {table} REPLICA IDENTITY FULL",)
    ),
    Shape(
        "bag",
        "id integer, alpha boolean, beta double precision, delta json, body text",
        ("ALTER TABLE {table} REPLICA IDENTITY FULL", _EXTERNAL),
    ),
    Shape("toasted", "id bigint PRIMARY KEY, body text, alpha bytea, beta jsonb", (_EXTERNAL,)),
    Shape(
        "full and keyed",
        "id bigint PRIMARY KEY, body text, alpha timestamptz",
        ("ALTER TABLE {table} REPLICA IDENTITY FULL", _EXTERNAL),
    ),
    Shape("rekeyed", "k bigint PRIMARY KEY UNIQUE, alt bigint NOT NULL UNIQUE, alpha text, body text"),
    Shape("by uuid", "k uuid PRIMARY KEY, alpha date, beta text[]"),
    Shape("by moment", "k timestamptz PRIMARY KEY, alpha interval, beta real"),
    Shape("by name", "k character varying(12) PRIMARY KEY, alpha numeric, beta character(5)"),
    Shape("by bytes", "k bytea, n numeric, alpha integer[], PRIMARY KEY (n, k)"),
    Shape("appended", "id integer, alpha text, beta timestamp"),
    Shape(
        "computed",
        "id bigint PRIMARY KEY, alpha integer, twice bigint GENERATED ALWAYS AS (alpha::bigint * 2) STORED, beta public.mood",
    ),
    Shape("wide", "id bigint PRIMARY KEY, alpha public.positive, beta int4range, mac inet, flags bit(3)"),
    Shape(
        "parted",
        "id integer NOT NULL, k bigint, alpha text, PRIMARY KEY (k, id)",
        (
            'CREATE TABLE public."leaf low" PARTITION OF {table} FOR VALUES FROM (MINVALUE) TO (14)',
            'CREATE TABLE public."leaf mid" PARTITION OF {table} FOR VALUES FROM (14) TO (27)',
            'CREATE TABLE public."leaf high" PARTITION OF {table} FOR VALUES FROM (27) TO (MAXVALUE)',
        ),
        " PARTITION BY RANGE (id)",
    ),
    Shape(
        "parted bag",
        "alpha text, id integer, beta integer",
        (
            'CREATE TABLE public."leaf odd" PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER 1)',
            'CREATE TABLE public."leaf even" PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER 0)',
            "ALTER TABLE {table} REPLICA IDENTITY FULL",
            'ALTER TABLE public."leaf odd" REPLICA IDENTITY FULL',
            'ALTER TABLE public."leaf even" REPLICA IDENTITY FULL',
        ),
        " PARTITION BY HASH (id)",
    ),
)

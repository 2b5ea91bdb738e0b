"""Types, with values and defaults of theirs as SQL: edges rather than averages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A type. `literals` are defaults that the contract recognises, `computed` those that it does not.

    `wider` are types its values may be changed to, each of which keeps every value as it is.
    """

    values: tuple[str, ...]
    literals: tuple[str, ...] = ()
    computed: tuple[str, ...] = ()
    wider: tuple[str, ...] = ()


_LONG = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 200) i)"

KINDS: Final[dict[str, Kind]] = {
    "smallint": Kind(("0", "-32768", "32767"), ("7",), ("(3 + 4)",), ("integer", "bigint")),
    "integer": Kind(
        ("0", "-1", "2147483647", "-2147483648"), ("42", "-1"), ("length('abc')",), ("bigint", "numeric")
    ),
    "bigint": Kind(("0", "-9223372036854775808", "9223372036854775807"), ("0", "-7"), ("(1 << 4)",)),
    "text": Kind(
        (
            "''",
            "'x'",
            "'NULL'",
            "'Łódź 🦆'",
            r"E'a\tb\nc\\d\r'",
            "'it''s'",
            r"'\N'",
            "' '",
            "'[1, 2]'",
            r"E'\x01\x7f'",
            _LONG,
        ),
        ("'pending'", "'don''t'", "''", "'a::b'", "'(x)'", r"E'back\\slash'", "'42'", "'now()'", "42"),
        ("lower('USER')", "'a' || 'b'", "current_user", "md5('x')"),
    ),
    "character varying(12)": Kind(("''", "'abc'", "'ümlaut 12345'"), ("'v'",), ("upper('v')",), ("text",)),
    "character(5)": Kind(("''", "'ab'", "'abcde'"), ()),
    "numeric": Kind(("0", "'NaN'", "1e30", "0.1000", "'Infinity'", "-0.00"), ("1.50", "-3"), ("sqrt(4)",)),
    "numeric(12,2)": Kind(
        ("0.00", "-0.01", "9999999999.99", "'NaN'"), ("42.10", "0"), ("abs(-1)",), ("numeric(14,2)",)
    ),
    "numeric(14,2)": Kind(("0.00", "-7.25")),
    "real": Kind(("0", "0.1", "3.4e38", "'NaN'", "'-Infinity'", "'-0'"), ("1.5",)),
    "double precision": Kind(("0", "0.1", "1e-300", "'Infinity'", "'-0'"), ("2.5",), ("random()",)),
    "boolean": Kind(("true", "false"), ("true", "false"), ("(1 > 0)",)),
    "date": Kind(
        ("'2026-01-01'", "'0001-01-01'", "'0044-03-15 BC'", "'infinity'", "'9999-12-31'"),
        ("'2026-01-01'",),
        ("current_date",),
    ),
    "time without time zone": Kind(("'00:00'", "'23:59:59.999999'", "'24:00:00'"), ("'12:30:00'",)),
    "timestamp without time zone": Kind(
        ("'2026-11-30 12:00:00.1'", "'infinity'", "'0044-03-15 12:00:00 BC'", "'294276-12-31 23:59:59'"),
        ("'2026-01-01 12:30:00'",),
        ("localtimestamp",),
    ),
    "timestamp with time zone": Kind(
        ("'2026-11-30 12:00:00.123456+05:30'", "'1970-01-01 00:00:00+00'", "'-infinity'"),
        ("'2026-01-01 12:30:00+00'",),
        ("now()", "clock_timestamp()"),
    ),
    "interval": Kind(("'1 mon -2 days 03:00'", "'0'"), (), ("interval '1 day 2 hours'",)),
    "uuid": Kind(
        ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
        ("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",),
        ("gen_random_uuid()",),
    ),
    "json": Kind(("'{}'", """'{"b": 1,  "a": [1, null]}'""", "'null'", """'"\\u00e9"'"""), ("'{}'",)),
    "jsonb": Kind(
        ("""'{"a": [1, null, "x"]}'""", "'null'", "'[]'", "'1.10'"),
        ("""'{"enabled": true}'""",),
        ("to_jsonb(1)",),
    ),
    "bytea": Kind((r"'\x'", r"'\x00ff27'", f"convert_to({_LONG}, 'UTF8')"), (), ("'abc'::bytea",)),
    "integer[]": Kind(("'{}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'[0:1]={1,2}'"), (), ("ARRAY[1, 2]",)),
    "text[]": Kind((r"""'{"a b",NULL,"NULL","","x\"y"}'""", "'{}'"), (), ("ARRAY['a', 'b']",)),
    "inet": Kind(("'10.0.0.1/8'", "'::1'"), (), ("'127.0.0.1'::inet",)),
    "int4range": Kind(("'[1,5)'", "'empty'"), (), ("int4range(1, 2)",)),
    "bit(3)": Kind(("B'101'",), (), ("B'111'",)),
    "public.mood": Kind(("'sad'", "'so so'"), (), ()),
    "public.positive": Kind(("1", "2147483647"), (), ()),
}

#: Defaults that are evaluated for each row that is there.
VOLATILE: Final = frozenset({"random()", "clock_timestamp()", "gen_random_uuid()"})

#: Type → the n-th of its keys, as SQL; another text for every n.
KEYS: Final[dict[str, Callable[[int], str]]] = {
    "integer": str,
    "bigint": str,
    "numeric": lambda n: f"{n}.50",
    "text": lambda n: f"'k{n} ''ü'",
    "character varying(12)": lambda n: f"'k{n}'",
    "uuid": lambda n: f"'00000000-0000-4000-8000-{n:012x}'",
    "date": lambda n: f"(date '2000-01-01' + {n})",
    "timestamp with time zone": lambda n: f"(timestamptz '2000-01-01 00:00+00' + {n} * interval '1 second')",
    "bytea": lambda n: f"'\\x{n:08x}'",
}
#: A key column whose type changed goes on as what it was.
KEYS["numeric(14,2)"] = KEYS["numeric"]

#: What the kinds need at the source.
PRELUDE: Final = (
    "CREATE TYPE public.mood AS ENUM ('sad', 'so so', 'happy')",
    "CREATE DOMAIN public.positive AS integer CHECK (value > 0)",
)
#: As `format_type` writes them where `public` is in the search path.
SHORT: Final[dict[str, str]] = {"mood": "public.mood", "positive": "public.positive"}

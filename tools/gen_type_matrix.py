"""Write docs/reference/types.md from the type registry, the destinations' dialects, and the conversion itself.

The special values on the page are converted when the page is written: what it says is what happens.
``--check`` only compares and exits 1 when the page is not current. A destination gets a column by one entry in
`DESTINATIONS`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from etl.destinations.delta.dialect import type_of as delta_type_of
from etl.destinations.duckdb.dialect import type_of
from etl.pgoutput.values import convert
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    PgType,
    TypeCategory,
    arrow_type,
    element_type,
    known_types,
    pg_type,
)

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "reference" / "types.md"

#: Title and cell, for a Postgres type and the Arrow type that carries it.
DESTINATIONS: dict[str, Callable[[int, pa.DataType], str]] = {
    "DuckDB": type_of,
    "Delta": lambda _, carried: delta_type_of(carried).upper(),
}

NUMERIC = 1700
NUMERIC_ARRAY = 1231
NUMERIC_12_2 = (12 << 16 | 2) + 4

#: Modifiers that change how a type is carried: what the row says, the type, the modifier.
MODIFIED = [("`numeric(p,s)` with 1 ≤ p ≤ 38 and 0 ≤ s ≤ p, here `numeric(12,2)`", NUMERIC, NUMERIC_12_2)]

SPECIAL_VALUES: list[tuple[str, int, int, list[str]]] = [
    ("float4, float8", 701, -1, ["NaN", "Infinity", "-Infinity", "-0"]),
    ("numeric", NUMERIC, -1, ["NaN", "Infinity"]),
    ("numeric(12,2)", NUMERIC, NUMERIC_12_2, ["NaN", "Infinity", "-Infinity"]),
    ("date", 1082, -1, ["infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"]),
    ("time", 1083, -1, ["24:00:00"]),
    (
        "timestamp",
        1114,
        -1,
        [
            "infinity",
            "-infinity",
            "0044-03-15 12:00:00 BC",
            "294247-01-10 04:00:54.775806",
            "294247-01-10 04:00:54.775807",
            "294276-12-31 23:59:59.999999",
        ],
    ),
    ("timestamptz", 1184, -1, ["infinity", "1883-11-18 12:03:57.5-07:52:58"]),
    ("bytea", 17, -1, [r"\x", r"\x00ff"]),
    ("text", 25, -1, ["", "NULL"]),
    ("int4[]", 1007, -1, ["{}", "{1,NULL}", "{{1,2},{3,4}}", "[0:1]={1,2}"]),
    ("text[]", 1009, -1, ['{"NULL",NULL,""}']),
    ("numeric[]", NUMERIC_ARRAY, -1, ["{1.50,NaN}"]),
    ("numeric(12,2)[]", NUMERIC_ARRAY, NUMERIC_12_2, ["{1.50,NaN}"]),
    ("timestamp[]", 1115, -1, ["{infinity}", '{"294276-12-31 23:59:59"}']),
]

INFINITIES = {
    DATE_INFINITY: "the greatest 32-bit integer",
    DATE_MINUS_INFINITY: "minus the greatest 32-bit integer",
    TIMESTAMP_INFINITY: "the greatest 64-bit integer",
    TIMESTAMP_MINUS_INFINITY: "minus the greatest 64-bit integer",
}

INTRO = """\
# Types

<!-- Written by tools/gen_type_matrix.py from the type registry and the conversion itself; do not edit. -->

Every value arrives as the text Postgres prints and travels as a column of the Arrow type below. The initial copy and
the stream use the same conversion.

**The rule.** A value is exact, or it is *unrepresentable*: its column holds NULL there, and the exact text is kept
beside the rows (in DuckDB, in the table `_etl.unrepresentable`). Nothing is rounded, clipped or guessed,
and no value that Postgres can store stops a pipeline. Text that Postgres cannot print for a type is an error that names
the column and the type, never the value.

**The choices** (section `types` of the [configuration](configuration.md)). `numeric: text` carries every numeric as its
text, so that NaN and ±Infinity stay in the column. `arrays: text` carries every array as Postgres prints it, so that
several dimensions and other lower bounds stay in the column.

## Matrix
"""

NOTES = """\
## Notes

- **Infinity and Arrow.** ±infinity stand at the ends of the integer range, where DuckDB has its own infinities: DuckDB
  shows `infinity` and `isinf()` is true. The last microsecond Postgres could store at that place is unrepresentable, so
  that it is never taken for infinity. Other readers of Arrow see a date millions of years away.
- **24:00:00.** The column holds 86 400 000 000 µs. DuckDB stores and shows `24:00:00`, and sorts it after
  `23:59:59.999999`. Arrow's own full validation calls the value out of range, and Python's `time` cannot hold it.
- **Years.** Dates before the year 1 and after 9999 are exact in the column and in DuckDB; Python's `date` cannot hold
  them.
- **Arrays.** A list has one dimension and is counted from 1, as nearly all arrays are. An array with more dimensions or
  another lower bound is unrepresentable, whole, and so is an array with an element that is. Arrays of geometric types
  and of types etl does not know are text.
- **uuid, json, jsonb** are carried as text; a destination that has such a type gets it.
- **money** is the text the server prints under its `lc_monetary`.
- **NULL and empty.** SQL NULL is NULL; the empty text, `\\N`, and the quoted array element `"NULL"` are text.
- **Text that is not UTF-8** exists only in a database of encoding SQL_ASCII, and reaches only a session that asks for
  SQL_ASCII: asked for UTF8, the server fails at such a row. Each byte that is not UTF-8 stands in the column as the four
  characters `\\xNN`; the rows are counted.
- **Session settings.** The text forms depend on settings of the session. Every connection pins DateStyle ISO,
  IntervalStyle postgres, TimeZone UTC, extra_float_digits 3, bytea_output hex and client_encoding UTF8, whatever the
  server, the database or the role say.
"""


def main() -> int:
    page = "\n".join([INTRO, *matrix(), "", *special_values(), "", NOTES])
    current = TARGET.exists() and TARGET.read_text(encoding="utf-8") == page
    if "--check" in sys.argv[1:]:
        return 0 if current else 1
    TARGET.write_text(page, encoding="utf-8")
    return 0


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines]


def matrix() -> list[str]:
    """Types of one category that are carried alike share a row, in the order of the categories."""
    order = list(TypeCategory)
    scalars = [known for known in known_types() if known.category is not TypeCategory.ARRAY]
    rows: dict[tuple[str, ...], list[str]] = {}
    for known in sorted(scalars, key=lambda each: order.index(each.category)):
        rows.setdefault((known.category, *cells(known, -1)), []).append(f"`{spelled(known)}`")
        for name, oid, typmod in MODIFIED:
            if oid == known.oid:
                rows.setdefault((known.category, *cells(known, typmod)), []).append(name)
    rows["unknown", *cells(pg_type(0), -1)] = ["enums, domains, composites, types of extensions"]
    head = ["Postgres", "Arrow", *DESTINATIONS, "Its array: Arrow", *DESTINATIONS]
    return table(head, ([", ".join(names), *row] for (_, *row), names in rows.items()))


def spelled(known: PgType) -> str:
    return '"char"' if known.name == "char" else known.name


def cells(known: PgType, typmod: int) -> tuple[str, ...]:
    array_oid = next((array.oid for array in known_types() if array.element_oid == known.oid), 0)
    carried = arrow_type(known.oid, typmod)
    array = arrow_type(array_oid, typmod)
    return (
        f"`{carried}`",
        *(f"`{of(known.oid, carried)}`" for of in DESTINATIONS.values()),
        f"`{shown_type(array)}`" if element_type(array_oid) else "`string`, the whole text",
        *(f"`{of(array_oid, array)}`" for of in DESTINATIONS.values()),
    )


def shown_type(carried: pa.DataType) -> str:
    return f"list<{carried.value_type}>" if pa.types.is_list(carried) else str(carried)


def special_values() -> list[str]:
    rows = []
    for name, oid, typmod, texts in SPECIAL_VALUES:
        converted = convert(pa.array(texts, pa.string()), oid, typmod)
        reported = dict(converted.unrepresentable)
        for row, text in enumerate(texts):
            value = "NULL, and the text is kept" if row in reported else held(converted.array[row])
            rows.append([f"`{name}`", f"`{text}`" if text else "(empty)", value])
    return ["## Special values", "", *table(["Type", "Postgres prints", "The column holds"], rows)]


def held(scalar: pa.Scalar) -> str:
    """What the column has for one value, raw: Python's dates end at the year 9999."""
    kind = scalar.type
    if not scalar.is_valid:
        text = "NULL"
    elif pa.types.is_list(kind):
        text = "a list: " + (", ".join(held(item) for item in scalar.values) or "no element")
    elif pa.types.is_temporal(kind):
        text = INFINITIES.get(scalar.value, f"{scalar.value} {counted(kind)}")
    elif pa.types.is_binary(kind):
        text = f"{len(scalar.as_py())} bytes"
    elif pa.types.is_string(kind):
        text = f"the text `{scalar.as_py()}`" if scalar.as_py() else "the empty text"
    else:
        text = f"`{scalar.as_py()}`"
    return text


def counted(kind: pa.DataType) -> str:
    if pa.types.is_date32(kind):
        return "days since 1970-01-01"
    return "µs since midnight" if pa.types.is_time64(kind) else "µs since 1970-01-01"


if __name__ == "__main__":
    sys.exit(main())

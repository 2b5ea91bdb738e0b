"""Values of every type that a Postgres column can have, as Postgres prints them, and the columns they become."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa

from etl.pgoutput.values import convert
from etl.schema.table import ColumnSchema
from etl.schema.types import TypeCategory, arrow_type, element_type, known_types, pg_type
from etl.testing.builders import column

MOMENTS = [
    "infinity", "-infinity", "4714-11-24 00:00:00 BC", "0001-12-31 23:59:59.999999 BC", "0001-01-01 00:00:00",
    "1582-10-10 12:00:00", "1969-12-31 23:59:59.999999", "2024-02-29 12:34:56.7", "9999-12-31 23:59:59.999999",
    "10000-01-01 00:00:00", "294247-01-10 04:00:54.775806",
]  # fmt: skip
FLOATS = ["NaN", "Infinity", "-Infinity", "-0", "0.1"]
JSON = [
    r'{"b": 1,  "a": "\ud800 \u0041"}',
    '{"a": "${env:HOME}"}',
    "null",
    '"\\\\ \\" \\n"',
    "1e400",
    "[1.50, {}]",
]
TEXTS = ["", "NULL", r"\N", "a\tb\nc\r\nd", "\"q\",'x'`{}\\", "é☃ 𝄞 \u202e", "${env:HOME}", "x" * 5000]

BY_NAME: dict[str, list[str]] = {
    "bool": ["t", "f"],
    "bytea": [r"\x", r"\x00", r"\xff5c00", r"\x" + "00ff" * 500],
    "int2": ["-32768", "32767"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "float4": [*FLOATS, "1e-45", "3.4028235e+38"],
    "float8": [*FLOATS, "5e-324", "1.7976931348623157e+308", "0.30000000000000004"],
    "numeric": ["NaN", "-Infinity", "1.500", "9" * 200, "-0." + "9" * 100],
    "date": ["infinity", "-infinity", "4714-11-24 BC", "0001-12-31 BC", "0001-01-01", "1582-10-10", "1970-01-01",
             "2024-02-29", "10000-01-01", "5874897-12-31"],
    "time": ["00:00:00", "24:00:00", "23:59:59.999999", "12:30:00.5"],
    "timetz": ["24:00:00-15:59", "12:30:00.5+05:45"],
    "timestamp": MOMENTS,
    "timestamptz": [f"{moment.removesuffix(' BC')}+00{' BC' * moment.endswith(' BC')}" if ":" in moment else moment
                    for moment in MOMENTS],
    "interval": ["1 year 2 mons -3 days +04:05:06.789", "-178000000 years"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"],
    "json": JSON,
    "jsonb": JSON[1:],
    "money": ["-$1.00"],
    "inet": ["10.0.0.1/8", "::1"],
    "int4range": ["[1,5)", "empty"],
    "point": ["(1,2)"],
    "box": ["(1,1),(0,0)"],
}  # fmt: skip

DECIMALS: dict[tuple[int, int], list[str]] = {
    (1, 1): ["0.9", "-0.9"],
    (10, 2): ["12345678.90", "-0.01", "NaN"],
    (18, 3): ["-" + "9" * 15 + ".999"],
    (19, 3): ["-" + "9" * 16 + ".999"],
    (38, 0): ["9" * 38, "-" + "9" * 38, "Infinity"],
    (38, 10): ["-" + "9" * 28 + "." + "9" * 10],
    (38, 38): ["0." + "9" * 38, "-0." + "9" * 38, "0." + "0" * 37 + "1"],
    (40, 2): ["9" * 38 + ".99"],
}


def texts_of(oid: int) -> list[str]:
    """Values of a type, an array's out of those of its element."""
    kind = pg_type(oid)
    if kind.category is not TypeCategory.ARRAY:
        fallback = TEXTS if kind.category is TypeCategory.STRING else [f"a {kind.name}"]
        return BY_NAME.get(kind.name, fallback)
    return arrays_of(texts_of(kind.element_oid or 0)) if element_type(oid) else ["{}", "{whatever;it,is}"]


def arrays_of(texts: Sequence[str]) -> list[str]:
    """Arrays of each value with a NULL, of none, and of all that are finite."""
    finite = [text for text in texts if "infinity" not in text]
    return [
        *(f"{{{quoted(text)},NULL}}" for text in texts),
        "{}",
        "{NULL}",
        f"{{{','.join(map(quoted, finite))}}}",
    ]


def quoted(text: str) -> str:
    """An element of an array, quoted as ``array_out`` would."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


#: A column of every known type, and of decimals.
COLUMNS: list[tuple[ColumnSchema, list[str]]] = [
    (column(f"c{kind.oid}", place, kind.oid, type_name=kind.name), texts_of(kind.oid))
    for place, kind in enumerate(known_types(), start=2)
] + [
    (column(f"{name}_{p}_{s}", 500 + place, oid, typmod=(p << 16 | s) + 4, type_name=f"{name}({p},{s})"), make(texts))
    for place, (name, oid, make, ((p, s), texts)) in enumerate(
        (name, oid, make, entry)
        for name, oid, make in (("numeric", 1700, list), ("_numeric", 1231, arrays_of))
        for entry in DECIMALS.items()
    )
]  # fmt: skip
ROWS = max(len(texts) for _, texts in COLUMNS)


@dataclass(frozen=True, slots=True)
class Sampled:
    """A column's samples over `ROWS` rows: as they are carried, and the exact texts of what is not."""

    column: ColumnSchema
    array: pa.Array
    unrepresentable: tuple[tuple[int, str], ...]
    texts: list[str]


def sampled(source: ColumnSchema, texts: Sequence[str]) -> Sampled:
    """The texts of a column, again and again until there are enough."""
    repeated = [texts[row % len(texts)] for row in range(ROWS)]
    converted = convert(pa.array(repeated, pa.string()), source.type_oid, source.typmod)
    return Sampled(source, converted.array, converted.unrepresentable, repeated)


SAMPLES: list[Sampled] = [sampled(source, texts) for source, texts in COLUMNS]


def stored(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as they are stored: Python itself knows no year above 9999, and NaN is no number to compare."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in stored(chunk)]
    kind = array.type
    if pa.types.is_list(kind):
        flat, lengths = iter(stored(array.flatten())), [item.is_valid and len(item.values) for item in array]
        return [list(islice(flat, n)) if n is not False else None for n in lengths]
    if pa.types.is_date32(kind):
        array = array.view(pa.int32())
    elif pa.types.is_timestamp(kind):
        array = array.view(pa.int64())
    elif pa.types.is_floating(kind):
        return [None if value is None else repr(value) for value in array.to_pylist()]
    return list(array.to_pylist())


def carried_type(source: ColumnSchema) -> pa.DataType:
    """How a column is carried."""
    return arrow_type(source.type_oid, source.typmod)

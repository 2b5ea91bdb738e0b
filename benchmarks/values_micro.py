"""CPU nanoseconds per value of `etl.pgoutput.values.convert`, by type.

Run as ``python -m benchmarks.values_micro [rows]``. Each figure is the best of several runs of one column of
made-up values that look like production's: CPU time of this process, so a busy machine shifts it but little.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

import pyarrow as pa

from etl.pgoutput.values import convert

RUNS = 7
Row = Callable[[random.Random], str]


def typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale) + 4


def moment(source: random.Random) -> datetime:
    return datetime(2020, 1, 1, tzinfo=UTC) + timedelta(microseconds=source.randrange(10**14))


def timestamp(source: random.Random) -> str:
    return f"{moment(source):%Y-%m-%d %H:%M:%S.%f}".rstrip("0")


def array(row: Row, size: int, *, quoted: bool = False) -> Row:
    def render(source: random.Random) -> str:
        items = (row(source) for _ in range(size))
        return "{" + ",".join(f'"{item}"' if quoted else item for item in items) + "}"

    return render


def integer(source: random.Random) -> str:
    return str(source.randrange(10**9))


def money(source: random.Random) -> str:
    return f"{source.randrange(-(10**9), 10**9) / 100:.2f}"


def word(source: random.Random) -> str:
    return "".join(source.choices("abcdefghij klmnopqrstuvwxyz", k=32))


def rarely(special: str, row: Row) -> Row:
    return lambda source: special if source.random() < 0.001 else row(source)


def often(special: str, row: Row) -> Row:
    return lambda source: special if source.random() < 0.5 else row(source)


def day(source: random.Random) -> str:
    return str(date(1990, 1, 1) + timedelta(days=source.randrange(15000)))


CASES: dict[str, tuple[int, int, Row]] = {
    "bool": (16, -1, lambda r: r.choice("tf")),
    "int4": (23, -1, integer),
    "int8": (20, -1, integer),
    "float8": (701, -1, lambda r: repr(r.uniform(-1e6, 1e6))),
    "numeric(12,2)": (1700, typmod(12, 2), money),
    "numeric(12,2), 0.1 % NaN": (1700, typmod(12, 2), rarely("NaN", money)),
    "numeric(30,2)": (1700, typmod(30, 2), money),
    "numeric": (1700, -1, money),
    "date": (1082, -1, day),
    "date, half infinity": (1082, -1, often("infinity", day)),
    "time": (1083, -1, lambda r: timestamp(r)[11:]),
    "timestamp": (1114, -1, timestamp),
    "timestamptz": (1184, -1, lambda r: timestamp(r) + "+00"),
    "timestamptz, half infinity": (1184, -1, often("infinity", lambda r: timestamp(r) + "+00")),
    "timestamptz, 0.1 % BC": (1184, -1, rarely("0044-03-15 12:00:00+00 BC", lambda r: timestamp(r) + "+00")),
    "uuid": (2950, -1, lambda r: str(UUID(int=r.getrandbits(128)))),
    "bytea, 32 bytes": (17, -1, lambda r: "\\x" + r.randbytes(32).hex()),
    "text, 32 bytes": (25, -1, word),
    "jsonb": (3802, -1, lambda r: json.dumps({"id": r.randrange(10**6), "name": word(r)})),
    "int4[5]": (1007, -1, array(integer, 5)),
    "text[3], quoted": (1009, -1, array(word, 3, quoted=True)),
    "jsonb[2], escaped": (3807, -1, array(lambda r: f'{{\\"id\\": {integer(r)}}}', 2, quoted=True)),
    "timestamp[2]": (1115, -1, array(timestamp, 2, quoted=True)),
}


def cpu_ns_per_value(text: pa.Array, oid: int, modifier: int) -> float:
    best = float("inf")
    for _ in range(RUNS):
        start = time.process_time_ns()
        convert(text, oid, modifier)
        best = min(best, time.process_time_ns() - start)
    return best / len(text)


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    source = random.Random(1)
    print(f"{'type':32}{'ns/value':>10}   ({rows} rows a column)")
    for name, (oid, modifier, row) in CASES.items():
        values = [None if source.random() < 0.05 else row(source).encode() for _ in range(rows)]
        print(f"{name:32}{cpu_ns_per_value(pa.array(values, pa.binary()), oid, modifier):10.1f}")


if __name__ == "__main__":
    main()

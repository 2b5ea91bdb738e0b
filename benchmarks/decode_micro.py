"""CPU per row of the decoder's stages, without server, transport or casts.

    python -m benchmarks.decode_micro [--repeats 15] [--chunk-kib 1024 4096]

Chunks are made by the test encoder in the shapes of the field's benchmark: 6 columns (bigint, int, text of 32,
numeric, timestamptz, jsonb) and 40 columns, 1,000 rows or one row a transaction, and updates with a whole old
row. Figures are the median and the minimum of the repeats, in microseconds of CPU a row (process time, one thread).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from etl.pgoutput.frames import TAG_BEGIN, TAG_COMMIT, Chunk, Frames, scan
from etl.pgoutput.messages import Begins, Commits, begins, commits
from etl.pgoutput.rows import decode_rows
from tests.unit.pgoutput import encoder

OID = 16385


@dataclass(frozen=True)
class Shape:
    """A workload: how a row looks, how many make a transaction, and which change it is."""

    name: str
    make_row: Callable[[random.Random, int], encoder.Row]
    rows_per_transaction: int
    change: Callable[[encoder.Row], bytes]


def narrow(source: random.Random, key: int) -> list[bytes]:
    return [
        b"%d" % key,
        b"%d" % source.randrange(-1_000_000, 1_000_000),
        source.randbytes(16).hex().encode(),
        b"%d.%02d" % (source.randrange(100_000), source.randrange(100)),
        b"2026-11-%02d %02d:%02d:%02d.%06d+00"
        % (
            source.randrange(1, 31),
            source.randrange(24),
            source.randrange(60),
            source.randrange(60),
            source.randrange(1_000_000),
        ),
        b'{"k": %d, "tags": ["a", "b"]}' % source.randrange(1000),
    ]


def sparse(source: random.Random, key: int) -> list[encoder.Value]:
    row: list[encoder.Value] = [*narrow(source, key)]
    row[3] = row[3] if key % 2 else None
    return row


def wide(source: random.Random, key: int) -> list[bytes]:
    return [value for block in range(7) for value in narrow(source, key * 7 + block)][:40]


def insert(row: encoder.Row) -> bytes:
    return encoder.insert(OID, row)


def update_full(row: encoder.Row) -> bytes:
    return encoder.update(OID, row, row)


SHAPES = (
    Shape("6 columns, insert, 1,000 rows a transaction", narrow, 1000, insert),
    Shape("6 columns, insert, one row a transaction", narrow, 1, insert),
    Shape("6 columns, update with whole old row", narrow, 1000, update_full),
    Shape("6 columns, one of them NULL in half the rows", sparse, 1000, insert),
    Shape("40 columns, insert, 1,000 rows a transaction", wide, 1000, insert),
)


def payloads(shape: Shape, source: random.Random) -> Iterator[bytes]:
    lsn, key = 0x1000000, 0
    while True:
        yield encoder.xlog(lsn, encoder.begin(lsn + 100, xid=key & 0xFFFF))
        for _ in range(shape.rows_per_transaction):
            key, lsn = key + 1, lsn + 128
            yield encoder.xlog(lsn, shape.change(shape.make_row(source, key)))
        yield encoder.xlog(lsn, encoder.commit(lsn, lsn + 48))


def make_chunk(shape: Shape, size: int) -> Chunk:
    parts: list[bytes] = []
    total = 0
    for payload in payloads(shape, random.Random(7)):
        if (total := total + len(payload)) > size:
            return encoder.chunk(parts)
        parts.append(payload)
    raise AssertionError


class Stopwatch:
    """CPU nanoseconds per stage, one list entry a repeat."""

    def __init__(self) -> None:
        self.spent: dict[str, list[int]] = {}

    def run(self, stage: str, work: Callable[..., Any], *arguments: Any) -> Any:
        """Do the work and note what it spent."""
        begin = time.process_time_ns()
        result = work(*arguments)
        self.spent.setdefault(stage, []).append(time.process_time_ns() - begin)
        return result

    def report(self, rows: int) -> None:
        """Print a line a stage, and one for all of them together."""
        together = [sum(stages) for stages in zip(*self.spent.values(), strict=True)]
        for stage, spent in (*self.spent.items(), ("together", together)):
            figures = [nanoseconds / rows / 1e3 for nanoseconds in spent]
            print(f"  {stage:13} {statistics.median(figures):6.3f}  min {min(figures):6.3f}")


def measure(shape: Shape, size: int, repeats: int) -> None:
    chunk = make_chunk(shape, size)
    ncols = len(shape.make_row(random.Random(7), 1))
    watch = Stopwatch()
    for _ in range(repeats):
        frames = watch.run("scan", scan, chunk)
        watch.run("begin+commit", transactions, frames)
        index = np.flatnonzero(frames.is_row)
        watch.run("split+gather", decode_rows, frames, index, ncols)
    rows = len(index)
    print(
        f"\n{shape.name}: {rows:,} rows, {len(chunk.data) / rows:.0f} bytes a row, chunk of {size >> 10} KiB"
    )
    watch.report(rows)


def transactions(frames: Frames) -> tuple[Begins, Commits]:
    return (
        begins(frames, np.flatnonzero(frames.tag == TAG_BEGIN)),
        commits(frames, np.flatnonzero(frames.tag == TAG_COMMIT)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU per row of the decoder's stages")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--chunk-kib", type=int, nargs="+", default=[256, 1024, 4096])
    options = parser.parse_args()
    for shape in SHAPES:
        for kib in options.chunk_kib:
            measure(shape, kib << 10, options.repeats)


if __name__ == "__main__":
    main()

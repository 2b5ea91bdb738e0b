"""CPU per row of the DuckDB destination alone: made-up changes, no Postgres, no decoding.

    python benchmarks/duckdb_micro.py [--rows 100000] [--table 1000000] [--repeats 3]

Six columns (bigint key, int, text of 32, numeric(12,2), timestamptz, jsonb). CPU is user + system of this process, the
figure that other work on the machine disturbs least; min / median / max of the repeats. Row counts are checked.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from etl.destinations.base import CopyBatch, DestinationMetadata, SchemaJournal, TableMode
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.duckdb import DuckDBDestination, DuckDBSettings
from etl.destinations.writer import EventWriter
from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, RowChanges
from etl.lsn import Position
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.schema.types import arrow_type
from etl.testing.builders import INT4, INT8, JSONB, NUMERIC, TEXT, TIMESTAMPTZ, column, table_schema

_COLUMNS = (
    column("id", 1, INT8),
    column("n", 2, INT4),
    column("t", 3, TEXT),
    column("d", 4, NUMERIC, typmod=(12 << 16 | 2) + 4),
    column("at", 5, TIMESTAMPTZ),
    column("doc", 6, JSONB),
)
KEYED = table_schema(*_COLUMNS, oid=1, name="keyed")
KEYLESS = table_schema(*_COLUMNS, key=(), identity=ReplicaIdentity.FULL, oid=2, name="keyless")
CHANGELOG = table_schema(*_COLUMNS, oid=3, name="changelog")


class Journal(SchemaJournal):
    """In memory."""

    def __init__(self) -> None:
        self.recorded: dict[int, DestinationMetadata] = {}

    def get(self, oid: int) -> DestinationMetadata | None:
        """See `SchemaJournal.get`."""
        return self.recorded.get(oid)

    def put(self, metadata: DestinationMetadata) -> None:
        """See `SchemaJournal.put`."""
        self.recorded[metadata.table.oid] = metadata


class Bench:
    """One database file; every measurement is one write of one run."""

    def __init__(self, directory: Path, repeats: int) -> None:
        self.destination = DuckDBDestination(DuckDBSettings(directory / "bench.duckdb"))
        self.destination.open(1, 1)
        journal = Journal()
        self.writer = EventWriter(self.destination, journal)
        self.copies = CopyWriter(self.destination, journal, _mode)
        self.repeats = repeats
        self.lsn = 1
        self.random = np.random.default_rng(1)

    def fill(self, schema: ReplicatedTableSchema, rows: int) -> None:
        """Copy made-up rows with the ids 0 up to `rows`."""
        self.copies.create(schema)
        for start in range(0, rows, 100_000):
            ids = np.arange(start, min(start + 100_000, rows))
            self.copies.copy_rows(schema, CopyBatch(values(schema, ids)))
        self.copies.finish(schema, Position.ZERO, rows)
        self.writer.retry(schema.oid)

    def measure(self, what: str, make: Callable[[int], RowChanges], writes: int = 1) -> None:
        """Time `writes` writes of what `make` makes, several times; the making is not timed."""
        cpu, wall, rows = [], [], 0
        for repeat in range(self.repeats):
            runs = [make(repeat * writes + number) for number in range(writes)]
            rows = sum(len(run) for run in runs)
            before, began = cpu_seconds(), time.perf_counter()
            for run in runs:
                report = self.writer.write([run])
                assert not report.failed, report.failed
                assert not report.unmatched, report.unmatched
                assert sum(report.rows.values()) == len(run)
            cpu.append(cpu_seconds() - before)
            wall.append(time.perf_counter() - began)
        per = f"{spread(cpu, 1e6 / rows)} µs/row CPU"
        print(
            f"{what:44} {per:34} {spread(cpu, 1e3 / writes)} ms/write CPU   {spread(wall, 1e3 / writes)} ms wall"
        )

    def run(
        self,
        schema: ReplicatedTableSchema,
        op: int,
        ids: np.ndarray,
        old: np.ndarray | None = None,
        unchanged: Mapping[str, np.ndarray] | None = None,
    ) -> RowChanges:
        """One operation on each of `ids`; `old` are the ids of the old images."""
        count = len(ids)
        self.lsn += 1
        return RowChanges(
            schema=schema,
            ops=np.full(count, op, np.uint8),
            commit_lsn=np.full(count, self.lsn, np.uint64),
            ordinal=np.arange(1, count + 1, dtype=np.uint32),
            commit_timestamp=np.full(count, 1_700_000_000_000_000, np.int64),
            new=nulls(schema, count) if op == OP_DELETE else values(schema, ids, salt=self.lsn),
            old=None if old is None else values(schema, old),
            old_index=np.full(count, -1, np.int64) if old is None else np.arange(count),
            unchanged=unchanged or {},
        )


def values(schema: ReplicatedTableSchema, ids: np.ndarray, salt: int = 0) -> pa.RecordBatch:
    """Rows that depend on the id and the salt alone."""
    texts = pa.array(np.char.add(np.char.zfill(ids.astype("U"), 24), f"{salt:08d}"), pa.string())
    docs = pa.array(np.char.add(np.char.add('{"id": ', ids.astype("U")), "}"), pa.string())
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(ids % 1000, pa.int32()),
        texts,
        pa.array(ids % 10**6, pa.int64())
        .cast(pa.decimal128(19, 0))
        .cast(pa.decimal128(21, 2))
        .cast(pa.decimal128(12, 2)),
        pa.array(1_600_000_000_000_000 + ids, pa.timestamp("us", tz="UTC")),
        docs,
    ]
    return pa.record_batch(columns, names=[c.name for c in schema.columns])


def nulls(schema: ReplicatedTableSchema, count: int) -> pa.RecordBatch:
    columns = [pa.nulls(count, arrow_type(c.type_oid, c.typmod)) for c in schema.columns]
    return pa.record_batch(columns, names=[c.name for c in schema.columns])


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def spread(samples: list[float], scale: float) -> str:
    low, middle, high = min(samples), statistics.median(samples), max(samples)
    return f"{low * scale:.2f} / {middle * scale:.2f} / {high * scale:.2f}"


def _mode(schema: ReplicatedTableSchema) -> TableMode:
    return TableMode.CHANGELOG if schema is CHANGELOG else TableMode.MIRROR


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--rows", type=int, default=100_000, help="changes per write")
    options.add_argument("--table", type=int, default=1_000_000, help="rows in the table before")
    options.add_argument("--repeats", type=int, default=3)
    chosen = options.parse_args()
    rows, size = chosen.rows, chosen.table
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(Path(directory), chosen.repeats)
        for schema in (KEYED, KEYLESS, CHANGELOG):
            bench.fill(schema, size if schema is not CHANGELOG else 0)
        print(f"{rows} changes a write, tables of {size} rows; min / median / max of {chosen.repeats}")
        shuffled = bench.random.permutation(size)
        part = lambda number: shuffled[number * rows % size :][:rows]  # noqa: E731
        toast = {"doc": np.ones(rows, np.bool_)}
        bench.measure("insert", lambda k: bench.run(KEYED, OP_INSERT, size + k * rows + np.arange(rows)))
        bench.measure(
            "insert, changelog", lambda k: bench.run(CHANGELOG, OP_INSERT, k * rows + np.arange(rows))
        )
        bench.measure("update by key", lambda k: bench.run(KEYED, OP_UPDATE, part(k)))
        bench.measure(
            "update by key, a column unchanged (TOAST)",
            lambda k: bench.run(KEYED, OP_UPDATE, part(k), unchanged=toast),
        )
        bench.measure(
            "update that moves the key",
            lambda k: bench.run(KEYED, OP_UPDATE, 10 * size + part(k), old=part(k)),
        )
        bench.measure(
            "delete by key",
            lambda k: bench.run(KEYED, OP_DELETE, 10 * size + part(k), old=10 * size + part(k)),
        )
        bench.measure("update by full row", lambda k: bench.run(KEYLESS, OP_UPDATE, part(k), old=part(k)))
        small = np.arange(10)
        bench.measure(
            "insert, 10 rows a write",
            lambda k: bench.run(KEYED, OP_INSERT, 50 * size + k * 10 + small),
            writes=50,
        )
        bench.measure(
            "update, 10 rows a write",
            lambda k: bench.run(KEYED, OP_UPDATE, 50 * size + k * 10 + small),
            writes=50,
        )
        bench.destination.close()


if __name__ == "__main__":
    main()

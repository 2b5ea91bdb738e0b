"""Our reader in a process of its own: a whole table into typed Arrow columns, which are dropped; prints a JSON line.

Run by `benchmarks.copy.run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import repeat
from queue import Empty, SimpleQueue

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.conninfo import conninfo_to_dict

from benchmarks.copy.measure import Total, measured
from etl.pgoutput.values import convert
from etl.schema.table import ColumnSchema
from etl.source.connection import Connection
from etl.source.copy import snapshot_connection
from etl.source.copy_plan import CopyRange, plan_ranges
from etl.source.copy_range import read_leaves, read_range
from etl.source.publication import PublishedTable

_COLUMNS = """
SELECT attname, attnum, atttypid::bigint, atttypmod FROM pg_attribute
 WHERE attrelid = 'public.t'::regclass AND attnum > 0 ORDER BY attnum"""


def read(dsn: str, connections: int) -> Total:
    """Read with so many connections, a thread each, under one exported snapshot."""
    parameters = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    with psycopg.connect(dsn) as exporter, ExitStack() as stack:
        exporter.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        snapshot, oid = exporter.execute(
            "SELECT pg_export_snapshot(), 'public.t'::regclass::oid::bigint"
        ).fetchall()[0]
        table = PublishedTable(oid, "public", "t", False, None, None, 0)  # noqa: FBT003
        columns = [ColumnSchema(*row) for row in exporter.execute(_COLUMNS)]
        workers = [
            stack.enter_context(snapshot_connection(parameters, snapshot, "bench"))
            for _ in range(connections)
        ]
        parts: SimpleQueue[CopyRange] = SimpleQueue()
        for part in plan_ranges(read_leaves(workers[0], parameters, table)):
            parts.put(part)

        def work(worker: Connection) -> Total:
            total = Total()
            for part in _waiting(parts):
                for batch in _typed(worker, parameters, table, part, columns):
                    total += Total(batch.num_rows, pc.sum(batch.column(0)).as_py())
            return total

        with ThreadPoolExecutor(connections) as pool:
            return sum(pool.map(work, workers), Total())


def _waiting(parts: SimpleQueue[CopyRange]) -> Iterator[CopyRange]:
    for _ in repeat(None):
        try:
            yield parts.get_nowait()
        except Empty:
            return


def _typed(
    worker: Connection,
    parameters: Mapping[str, str],
    table: PublishedTable,
    part: CopyRange,
    columns: Sequence[ColumnSchema],
) -> Iterator[pa.RecordBatch]:
    names = [column.name for column in columns]
    for batch in read_range(worker, parameters, table, part, columns):
        arrays = [
            convert(text, column.type_oid, column.typmod).array
            for text, column in zip(batch.columns, columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dsn")
    parser.add_argument("connections", type=int)
    given = parser.parse_args()
    measured(lambda: read(given.dsn, given.connections))

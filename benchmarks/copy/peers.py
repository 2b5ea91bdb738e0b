"""Another reader of Postgres tables in a process of its own, each as its manual has it, into Arrow; prints a JSON line.

Runs in a throw-away environment that has none of ours; run by `benchmarks.copy.run`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

# run by its path, beside this file
from measure import Total, measured  # type: ignore[import-not-found]


def _total(batches: Iterable[Any]) -> Total:
    import pyarrow.compute as pc

    total = Total()
    for batch in batches:
        total += Total(batch.num_rows, pc.sum(batch.column(0)).as_py() or 0)
    return total


def duckdb(uri: str) -> Total:
    """The extension reads block ranges with as many connections as DuckDB has threads."""
    import duckdb
    import duckdb_ext

    with duckdb.connect() as warehouse:
        # the package brings the extension itself, so that none is downloaded
        folder = Path(next(iter(duckdb_ext.__path__))) / "extensions"
        warehouse.execute("SET extension_directory = ?", (str(folder),))
        warehouse.execute("LOAD postgres_scanner")
        warehouse.execute(f"ATTACH '{uri}' AS source (TYPE postgres, READ_ONLY)")
        return _total(warehouse.execute("SELECT * FROM source.public.t").fetch_record_batch(50_000))


def adbc(uri: str) -> Total:
    """One connection, COPY in binary; numeric comes as text."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(uri) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        return _total(cursor.fetch_record_batch())


def connectorx(uri: str) -> Total:
    """One connection, COPY in binary."""
    import connectorx

    return _total(connectorx.read_sql(uri, "SELECT * FROM t", return_type="arrow_stream", batch_size=50_000))


PEERS: dict[str, Callable[[str], Total]] = {"duckdb": duckdb, "adbc": adbc, "connectorx": connectorx}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("uri")
    parser.add_argument("peer", choices=PEERS)
    given = parser.parse_args()
    measured(lambda: PEERS[given.peer](given.uri))

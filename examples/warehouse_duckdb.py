"""The demo's DuckDB: one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from examples.warehouse import Look, Warehouse

_NEWEST = "SELECT id, customer_id, amount::text AS amount, status, remark FROM public.orders ORDER BY id DESC LIMIT 7"
_TOTALS = "SELECT count(*), sum(id)::bigint, sum(amount)::text, (SELECT count(*) FROM public.customers) FROM public.orders"
_COLUMNS = (
    "SELECT column_name, data_type, column_default, comment FROM duckdb_columns()"
    " WHERE schema_name = 'public' AND table_name = 'orders' ORDER BY column_index"
)


class DuckDbWarehouse(Warehouse):
    """A database file."""

    title = "DuckDB"
    pipeline = Path(__file__).with_name("quickstart.yaml")
    wait_s = 60.0

    def __init__(self, folder: Path) -> None:
        self._file = folder / "warehouse.duckdb"

    def missing(self) -> str | None:
        """Nothing: DuckDB comes with the Python packages."""
        return None

    def environment(self) -> dict[str, str]:
        """The path of the file."""
        return {"ETL__DESTINATION__PATH": str(self._file)}

    def look(self) -> Look:
        """The newest orders, and totals."""
        with duckdb.connect(str(self._file), read_only=True) as connection:
            newest = connection.execute(_NEWEST)
            names = [column[0] for column in newest.description or ()]
            return Look(names, newest.fetchall(), connection.execute(_TOTALS).fetchall()[0])

    def columns(self) -> list[tuple[Any, ...]]:
        """As DuckDB lists them."""
        with duckdb.connect(str(self._file), read_only=True) as connection:
            return connection.execute(_COLUMNS).fetchall()

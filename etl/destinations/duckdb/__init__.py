"""A DuckDB file as destination."""

from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.destination import DuckDBDestination

__all__ = ["DuckDBDestination", "DuckDBSettings"]

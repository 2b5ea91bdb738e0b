"""The DuckDB destination."""

"""etl streams a Postgres database, schema changes included, into the places you analyse it."""

__version__ = "0.1.0"

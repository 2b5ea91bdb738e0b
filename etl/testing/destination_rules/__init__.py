"""The rules of `etl.testing.destination_suite`, by subject."""

"""The initial copy beside what else reads a table of Postgres."""

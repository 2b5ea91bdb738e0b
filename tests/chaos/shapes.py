"""A table per plan shape, to each of which its schema change happens between two of its rows."""

from __future__ import annotations

import signal

from etl.testing.harness import PipelineUnderTest

KILLED = -signal.SIGKILL

#: Plan shape → what happens to a table (id, a, b, c) between two of its rows, in the same transaction.
SHAPES = {
    "add": ["ADD COLUMN d int"],
    "add_default": ["ADD COLUMN d text DEFAULT 'pending'"],
    "drop": ["DROP COLUMN b"],
    "rename": ["RENAME COLUMN b TO z"],
    "swap": ["RENAME COLUMN a TO x", "RENAME COLUMN b TO a", "RENAME COLUMN x TO b"],
    "rotation": [
        "RENAME COLUMN a TO x",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN c TO b",
        "RENAME COLUMN x TO c",
    ],
    "replace": ["DROP COLUMN b", "ADD COLUMN b int"],
    "drop_and_rename_into": ["DROP COLUMN a", "RENAME COLUMN b TO a"],
    "default_set": ["ALTER COLUMN a SET DEFAULT 'new'"],
    "default_drop": ["ALTER COLUMN c DROP DEFAULT"],
    "ten_mixed": [
        "ADD COLUMN d int DEFAULT 1, ADD COLUMN e text",
        "RENAME COLUMN a TO x",
        "RENAME COLUMN b TO a",
        "RENAME COLUMN x TO b",
        "DROP COLUMN c",
        "ADD COLUMN c numeric(10,2)",
        "ALTER COLUMN a SET DEFAULT 'd'",
        "RENAME COLUMN d TO f",
        "ADD COLUMN d boolean",
        "RENAME COLUMN id TO key",
    ],
}
TABLES = [f"public.{shape}" for shape in SHAPES]


def copy_and_change(pipeline: PipelineUnderTest) -> None:
    """All shapes have been copied; then each happened to its table, between rows of the same transaction."""
    for shape in SHAPES:
        pipeline.sql(
            f"CREATE TABLE {shape} (id int PRIMARY KEY, a text, b text, c text DEFAULT 'old')",
            f"INSERT INTO {shape} VALUES (1, 'a1', 'b1', 'c1'), (2, 'a2', 'b2', 'c2')",
        )
    pipeline.publish(*SHAPES)
    pipeline.once()
    for shape, changes in SHAPES.items():
        key = "key" if shape == "ten_mixed" else "id"
        pipeline.transaction(
            f"INSERT INTO {shape} VALUES (3, 'a3', 'b3', 'c3')",
            f"UPDATE {shape} SET a = 'changed' WHERE id = 1",
            *(f"ALTER TABLE {shape} {change}" for change in changes),
            f"INSERT INTO {shape} ({key}) VALUES (4)",
            f"UPDATE {shape} SET {key} = {key}",
        )


def finished(pipeline: PipelineUnderTest) -> int:
    """How many tables' schema changes are recorded as applied."""
    rows = pipeline.query(
        "SELECT count(*) FROM etl.destination_tables_metadata"
        " WHERE schema_status = 'applied' AND snapshot_commit_lsn > '0/0'"
    )
    return int(rows[0][0])

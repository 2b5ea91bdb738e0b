"""What the initial copy reads: rows as batches of text columns, under an exported snapshot.

Values are carried as the text Postgres prints, exactly as the stream carries them, and converted by the same code, so
that copy and stream agree on every value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from psycopg import errors, sql

from etl.errors import SnapshotOutdatedError
from etl.source.connection import Connection, connect_copy, translated
from etl.source.publication import PublishedTable


@dataclass(frozen=True, slots=True)
class TextBatch:
    """Rows as text: one string (or, from SQL_ASCII databases, binary) column per replicated column, in order."""

    columns: tuple[pa.Array, ...]
    rows: int
    nbytes: int


@contextmanager
def snapshot_connection(parameters: Mapping[str, str], snapshot: str, role: str) -> Iterator[Connection]:
    """A connection inside a read-only transaction that sees exactly `snapshot`.

    Raises `SnapshotOutdatedError` when the snapshot is gone with the connection that exported it.
    """
    connection = connect_copy(parameters, role)
    try:
        with translated(parameters):
            connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            try:
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
            except (errors.InvalidParameterValue, errors.UndefinedObject) as error:
                raise SnapshotOutdatedError(
                    f"the slot's snapshot {snapshot} is gone: the connection that exported it broke",
                    hint="the tables are copied under a new snapshot",
                ) from error
        yield connection
    finally:
        connection.close()


def outdated(table: PublishedTable) -> SnapshotOutdatedError:
    """The error for a table that is not what the snapshot shows any more."""
    return SnapshotOutdatedError(
        f"table {table.qualified_name} was altered between the snapshot and its copy",
        hint="it is copied under a new snapshot",
        table=table.qualified_name,
    )

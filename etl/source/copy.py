"""The initial copy: one table read by COPY under an exported snapshot, as batches of text columns.

Values are carried as the text Postgres prints, exactly as the stream carries them, and converted by the same code, so
that copy and stream agree on every value. CSV is chosen for its reader: Arrow splits and unquotes a block in native
code, and tells NULL (unquoted empty) from the empty string (quoted).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv
from psycopg import errors, sql

from etl.errors import SnapshotOutdatedError
from etl.source.connection import Connection, connect_copy, is_sql_ascii, raw_bytes, translated
from etl.source.publication import PublishedTable

_BLOCK_BYTES = 8 << 20


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


@contextmanager
def table_held(
    connection: Connection, parameters: Mapping[str, str], table: PublishedTable
) -> Iterator[None]:
    """Keep everybody from altering the table meanwhile; afterwards the lock is gone and the snapshot still there.

    Whatever fails inside, the snapshot's transaction can go on with the next table. Raises `SnapshotOutdatedError` when
    the name is not the table's any more, or somebody else keeps it locked.
    """
    with translated(parameters), connection.transaction(force_rollback=True):
        try:
            connection.execute(
                sql.SQL("LOCK TABLE {only}{table} IN ACCESS SHARE MODE").format(**_named(table))
            )
            # names are looked up in the present, not in the snapshot
            name = sql.Identifier(table.schema, table.name).as_string(connection)
            row = connection.execute("SELECT to_regclass(%s)::oid::bigint", (name,)).fetchone()
        except (errors.UndefinedTable, errors.InvalidSchemaName, errors.WrongObjectType):
            row = None
        except errors.LockNotAvailable as error:
            raise SnapshotOutdatedError(
                f"table {table.qualified_name} is being altered, and has been for a while",
                hint="it is copied under a new snapshot once the other session lets go of it",
                table=table.qualified_name,
            ) from error
        if row is None or row[0] != table.oid:
            raise outdated(table)
        yield


def outdated(table: PublishedTable) -> SnapshotOutdatedError:
    """The error for a table that is not what the snapshot shows any more."""
    return SnapshotOutdatedError(
        f"table {table.qualified_name} was altered between the snapshot and its copy",
        hint="it is copied under a new snapshot",
        table=table.qualified_name,
    )


def copy_table(
    connection: Connection,
    parameters: Mapping[str, str],
    table: PublishedTable,
    columns: Sequence[str],
    *,
    block_bytes: int = _BLOCK_BYTES,
) -> Generator[TextBatch, None, None]:
    """Read the table's rows that the publication's row filter lets through, in blocks of about `block_bytes`.

    Close it when it is left early: until then the connection is busy.
    """
    column_type = pa.binary() if is_sql_ascii(connection) else pa.string()
    statement = _copy_statement(table, columns)
    parts: list[bytes | bytearray | memoryview] = []
    size = 0
    with (
        translated(parameters),
        raw_bytes(connection, restore=True),
        connection.cursor() as cursor,
        cursor.copy(statement) as copy,
    ):
        for part in copy:
            parts.append(part)
            size += len(part)
            if size >= block_bytes:
                yield _parse(b"".join(parts), len(columns), column_type)
                parts, size = [], 0
    if parts:
        yield _parse(b"".join(parts), len(columns), column_type)


def _copy_statement(table: PublishedTable, columns: Sequence[str]) -> sql.Composed:
    """ONLY for plain tables: inheritance children are published, and copied, as tables of their own."""
    where = sql.SQL(" WHERE {}").format(sql.SQL(table.row_filter)) if table.row_filter else sql.SQL("")
    return sql.SQL("COPY (SELECT {columns} FROM {only}{table}{where}) TO STDOUT (FORMAT csv)").format(
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)), where=where, **_named(table)
    )


def _named(table: PublishedTable) -> dict[str, sql.Composable]:
    return {
        "only": sql.SQL("" if table.is_partitioned else "ONLY "),
        "table": sql.Identifier(table.schema, table.name),
    }


def _parse(block: bytes, ncols: int, column_type: pa.DataType) -> TextBatch:
    names = [f"c{i}" for i in range(ncols)]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(block),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(len(block) + 1, 1 << 16)
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, column_type),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = tuple(_one_array(table.column(i)) for i in range(ncols))
    return TextBatch(columns, table.num_rows, len(block))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

"""The initial copy: one table read by COPY under an exported snapshot, as batches of text columns.

Values are carried as the text Postgres prints, exactly as the stream carries them, and converted by the same code, so
that copy and stream agree on every value. CSV is chosen for its reader: Arrow splits and unquotes a block in native
code, and tells NULL (unquoted empty) from the empty string (quoted).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv
from psycopg import sql

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
    """A connection inside a read-only transaction that sees exactly `snapshot`."""
    connection = connect_copy(parameters, role)
    try:
        with translated(parameters):
            connection.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        yield connection
    finally:
        connection.close()


def copy_table(
    connection: Connection,
    parameters: Mapping[str, str],
    table: PublishedTable,
    columns: Sequence[str],
    *,
    block_bytes: int = _BLOCK_BYTES,
) -> Iterator[TextBatch]:
    """Read the table's rows that the publication's row filter lets through, in blocks of about `block_bytes`."""
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
        columns=sql.SQL(", ").join(map(sql.Identifier, columns)),
        only=sql.SQL("" if table.is_partitioned else "ONLY "),
        table=sql.Identifier(table.schema, table.name),
        where=where,
    )


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

"""The bytes of a COPY … TO STDOUT in text format, as blocks of whole rows.

The driver hands out one row at a time, at about a microsecond each: as much as the server needs to print it. So where
the connection is not encrypted, the query is written to its socket and the answer read from it in large pieces, and
the driver does not learn of it: before the query it is idle, and when the server says that it is ready again, it still
is (manual, "Message Flow": "Simple Query", "COPY Operations"). An encrypted connection is read through the driver.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import errors, pq

from etl.source.connection import Connection
from etl.source.copy_text import HEADER_BYTES, Bytes, blank_headers, row_ends

_HEADER = struct.Struct("!cI")
_READY_FOR_QUERY = b"Z\0\0\0\5"
_RECEIVE_BYTES = 256 << 10
_CANCEL_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in text format, a line each, with `skipped` columns of no meaning before the table's.

    `nbytes` counts the rows alone.
    """

    lines: pa.Buffer
    rows: int
    skipped: int
    nbytes: int


def copy_blocks(connection: Connection, statement: bytes, block_bytes: int) -> Generator[Block, None, None]:
    """Run the COPY and give its rows in blocks of about `block_bytes`, none of them empty.

    Close it when it is left early: that cancels the query; until then the connection is busy. Raises `psycopg.Error`.
    """
    if _is_plain(connection):
        with closing(_Socket(connection, block_bytes)) as wire:
            yield from wire.copy(statement)
    else:
        yield from _through_driver(connection, statement, block_bytes)


def _is_plain(connection: Connection) -> bool:
    """True when the socket carries the protocol as it is. GSS encryption is known to the server only."""
    if connection.pgconn.ssl_in_use or connection.pgconn.used_gssapi:
        return False
    row = connection.execute("SELECT encrypted FROM pg_stat_gssapi WHERE pid = pg_backend_pid()").fetchone()
    return row is None or not row[0]


class _Socket:
    """The connection's socket while a query of ours is under way."""

    def __init__(self, connection: Connection, block_bytes: int) -> None:
        self._connection = connection
        self._block_bytes = block_bytes
        self._over = True
        self._error: psycopg.Error | None = None
        self._keep(np.empty(0, np.uint8), block_bytes)
        # a second descriptor of the same socket: closing it leaves the driver's alone
        self._socket = socket.socket(fileno=os.dup(connection.pgconn.socket))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def copy(self, statement: bytes) -> Iterator[Block]:
        """Send the query and give blocks until the server is ready for the next one."""
        self._send(statement)
        while not self._over:
            self._receive()
            if self._end >= self._wanted or self._looks_ready():
                yield from self._take()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Leave the connection ready for its next query, unless it is lost."""
        with self._socket, suppress(psycopg.Error):
            if not self._over:
                self._connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                self._throw_away()
            while not self._over:
                self._receive()
                self._throw_away()

    def _send(self, statement: bytes) -> None:
        query = statement + b"\0"
        try:
            self._socket.sendall(_HEADER.pack(b"Q", len(query) + 4) + query)
        except OSError as error:
            raise psycopg.OperationalError(f"sending the query failed: {error.strerror}") from error
        self._over = False

    def _receive(self) -> None:
        self._poll.poll()
        try:
            received = self._socket.recv_into(self._buffer[self._end :].data)
        except BlockingIOError:
            return
        except OSError as error:
            self._over = True
            raise psycopg.OperationalError(f"the connection broke: {error.strerror}") from error
        if not received:
            self._over = True
            self._throw_away()
            raise self._error or psycopg.OperationalError("server closed the connection unexpectedly")
        self._end += received

    def _looks_ready(self) -> bool:
        """True when these may be the last bytes of the answer: what follows them is the transaction's state."""
        tail = self._buffer[max(self._end - len(_READY_FOR_QUERY) - 1, 0) : self._end - 1]
        return tail.tobytes() == _READY_FOR_QUERY

    def _take(self) -> Iterator[Block]:
        """Give the whole rows received, heed the other whole messages, and keep what is cut off for later."""
        while True:
            data = self._buffer[self._start : self._end]
            ends = row_ends(data)
            if len(ends):
                size = int(ends[-1])
                self._start += size
                blank_headers(data, ends)
                yield Block(pa.py_buffer(data[:size]), len(ends), 1, size - HEADER_BYTES * len(ends))
            elif not self._other_message(data):
                break

    def _throw_away(self) -> None:
        for _ in self._take():
            pass

    def _other_message(self, data: Bytes) -> bool:
        """Heed the message at the start of `data`; False, and room for the rest of it, when it is cut off."""
        size = HEADER_BYTES
        if len(data) >= HEADER_BYTES:
            tag, length = _HEADER.unpack_from(data.data)
            size = 1 + length
        if len(data) < size or len(data) < HEADER_BYTES:
            self._keep(data, max(self._block_bytes, size))
            return False
        if tag == b"d":
            self._connection.close()
            self._over = True
            raise psycopg.OperationalError("the server sent a message that is no row of text")
        if tag == b"E":
            self._error = _error_of(data[HEADER_BYTES:size].tobytes())
        if tag == b"Z":
            self._over = True
        self._start += size
        return True

    def _keep(self, rest: Bytes, wanted: int) -> None:
        """A new buffer that begins with `rest`: the old one belongs to the blocks given out."""
        self._buffer = np.empty(wanted + _RECEIVE_BYTES, np.uint8)
        self._buffer[: len(rest)] = rest
        self._start, self._end, self._wanted = 0, len(rest), wanted


def _error_of(fields: bytes) -> psycopg.Error:
    """The error of an ErrorResponse; its message alone, for the details may hold values."""
    by_code = {field[:1]: field[1:].decode("utf-8", "replace") for field in fields.split(b"\0") if field}
    try:
        kind = errors.lookup(by_code[b"C"])
    except KeyError:
        kind = errors.InternalError_
    return kind(by_code.get(b"M", ""))


def _through_driver(connection: Connection, statement: bytes, block_bytes: int) -> Iterator[Block]:
    pgconn = connection.pgconn
    _raise_for(connection, pgconn.exec_(statement))
    poll = select.poll()
    poll.register(pgconn.socket, select.POLLIN)
    rows: list[memoryview] = []
    size = 0
    with _left_idle(connection):
        while True:
            length, row = pgconn.get_copy_data(1)
            if length > 0:
                rows.append(row)
                size += length
                if size >= block_bytes:
                    yield _joined(rows)
                    rows, size = [], 0
            elif length == 0:
                # waiting for the socket lets other threads run, the driver's own waiting does not
                poll.poll()
                pgconn.consume_input()
            else:
                break
        if rows:
            yield _joined(rows)
        # all of them before any is raised: only then is the connection idle
        for result in list(iter(pgconn.get_result, None)):
            _raise_for(connection, result)


@contextmanager
def _left_idle(connection: Connection) -> Iterator[None]:
    """Cancel the COPY when it is left before its end."""
    try:
        yield
    finally:
        with suppress(psycopg.Error):
            if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                connection.cancel_safe(timeout=_CANCEL_TIMEOUT_S)
                while connection.pgconn.get_copy_data(0)[0] > 0:
                    pass
                while connection.pgconn.get_result():
                    pass


def _raise_for(connection: Connection, result: pq.abc.PGresult) -> None:
    if result.status not in {pq.ExecStatus.COPY_OUT, pq.ExecStatus.COMMAND_OK}:
        raise errors.error_from_result(result, encoding=connection.info.encoding)


def _joined(rows: list[memoryview]) -> Block:
    lines = pa.py_buffer(b"".join(rows))
    return Block(lines, len(rows), 0, len(lines))

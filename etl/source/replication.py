"""The replication stream: the one place that talks to the walsender.

`ReplicationStream.read` waits for data, then drains whatever has arrived, so that a busy stream comes in large chunks
and a quiet one without delay. It never parses more than it must to answer the server in time; decoding is the apply
worker's job. Status updates and reads happen on one thread, the reader's (Postgres manual, "Streaming Replication
Protocol").
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from psycopg import pq, sql

from etl.errors import SourceUnavailableError
from etl.lsn import Lsn
from etl.pgoutput.frames import Chunk
from etl.source.connection import Connection, raw_bytes, translated

_PG_EPOCH_S = 946684800
_STATUS = struct.Struct("!cQQQQB")
_KEEPALIVE_LENGTH = 18
_KEEPALIVE_TAG = ord("k")
_REPLY_REQUESTED_AT = 17


@dataclass(frozen=True, slots=True)
class StreamLsns:
    """What a status update reports: `received` as written, `flushed` as flushed and applied."""

    received: Lsn
    flushed: Lsn


class ReplicationStream:
    """START_REPLICATION on a slot. Used by one thread only.

    Raises `SourceUnavailableError` when the connection breaks or the server ends the stream, `SlotActiveError`,
    `SlotLostError` and the other `SourceError`s when it refuses to start.
    """

    def __init__(
        self,
        connection: Connection,
        parameters: Mapping[str, str],
        *,
        slot: str,
        publication: str,
        start: Lsn,
        receive_timeout_s: float = 60.0,
    ) -> None:
        self._connection = connection
        self._parameters = parameters
        self._pgconn = connection.pgconn
        self._receive_timeout_s = receive_timeout_s
        self._last_received = time.monotonic()
        self._start(slot, publication, start)

    def _start(self, slot: str, publication: str, start: Lsn) -> None:
        # Publication names go through the server's identifier-list parser inside a literal, hence both quotings.
        names = '"' + publication.replace('"', '""') + '"'
        command = sql.SQL(
            "START_REPLICATION SLOT {slot} LOGICAL {start}"
            " (proto_version '1', publication_names {names}, messages 'true')"
        ).format(slot=sql.Identifier(slot), start=sql.SQL(str(start)), names=sql.Literal(names))
        with translated(self._parameters), raw_bytes(self._connection):
            result = self._pgconn.exec_(command.as_bytes(self._connection))
            if result.status != pq.ExecStatus.COPY_BOTH:
                raise _refused(result, self._connection)
        self._pgconn.nonblocking = 1

    @property
    def reply_requested(self) -> bool:
        """True when the last read ended in a keepalive that wants an answer at once."""
        return self._reply_requested

    _reply_requested = False

    def read(self, max_bytes: int, timeout_s: float) -> Chunk | None:
        """Wait up to `timeout_s` for data and return what has arrived, at most about `max_bytes`; None for nothing."""
        parts: list[memoryview] = []
        size = 0
        with translated(self._parameters):
            while size < max_bytes:
                length, view = self._pgconn.get_copy_data(1)
                if length > 0:
                    parts.append(view)
                    size += length
                elif length == 0:
                    if not self._fill(0.0 if parts else timeout_s):
                        break
                    timeout_s = 0.0
                else:
                    self._raise_ended()
        if not parts:
            self._check_silence()
            return None
        self._last_received = time.monotonic()
        last = parts[-1]
        self._reply_requested = (
            len(last) == _KEEPALIVE_LENGTH and last[0] == _KEEPALIVE_TAG and last[_REPLY_REQUESTED_AT] == 1
        )
        ends = np.cumsum(np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))
        return Chunk(data=b"".join(parts), ends=ends)

    def _fill(self, timeout_s: float) -> bool:
        """Read once from the socket; False when nothing arrives within the timeout."""
        readable, _, _ = select.select([self._pgconn.socket], [], [], timeout_s)
        if not readable:
            return False
        self._pgconn.consume_input()
        return True

    def send_status(self, lsns: StreamLsns, *, request_reply: bool = False) -> None:
        """Report positions to the server (Standby status update)."""
        clock = int((time.time() - _PG_EPOCH_S) * 1_000_000)
        message = _STATUS.pack(
            b"r", lsns.received, lsns.flushed, lsns.flushed, clock, 1 if request_reply else 0
        )
        with translated(self._parameters):
            self._pgconn.put_copy_data(message)
            while self._pgconn.flush():
                select.select([], [self._pgconn.socket], [], 1.0)
        self._reply_requested = False

    def close(self) -> None:
        """Leave the stream; the slot becomes free as soon as the server notices."""
        self._connection.close()

    def _check_silence(self) -> None:
        silent = time.monotonic() - self._last_received
        if silent > self._receive_timeout_s:
            raise SourceUnavailableError(
                f"the source sent nothing for {silent:.0f} s, keepalives included",
                hint="the connection is dead or the server hangs; etl reconnects",
            )

    def note_not_reading(self) -> None:
        """We chose not to read for a while: silence is ours, not the server's."""
        self._last_received = time.monotonic()

    @property
    def silence_s(self) -> float:
        """Seconds since the server last sent anything."""
        return time.monotonic() - self._last_received

    def _raise_ended(self) -> None:
        result = self._pgconn.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise _refused(result, self._connection)
        raise SourceUnavailableError(
            "the source ended the replication stream", hint="the server is shutting down or failing over"
        )


def _refused(result: pq.abc.PGresult, connection: Connection) -> Exception:
    from psycopg.errors import error_from_result

    return error_from_result(result, encoding=connection.info.encoding)

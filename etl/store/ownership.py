"""Who runs a pipeline: a session-level advisory lock while it lives, and an epoch for when the lock was lost.

Theory of operation. The lock says that a pipeline is taken, and the server frees it by itself when the holder dies. It
hangs on a connection that does nothing else. A holder that was cut off (a partition, a stopped process) does not know
that its lock is gone, so the lock alone proves nothing about a write: every write also reads the epoch, under a row
lock, in its own transaction, and is refused when somebody has taken a greater one since.

The epoch never goes back, not even when the state is lost or restored from an old backup, for destinations remember the
last one they saw: it is the microseconds of the server's clock where that is greater than the last epoch plus one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket

import psycopg

from etl.errors import PipelineActiveError, StoreError
from etl.lsn import ORDINAL_RULE
from etl.store.base import PipelineOwner
from etl.store.connection import Connection, Conninfo, StoreSession, table_exists
from etl.store.rules import active_error, destroyed

_LOCK = "SELECT pg_try_advisory_lock(%s)"
_UNLOCK = "SELECT pg_advisory_unlock(%s)"

#: No row comes back when the stored state was counted by another ordinal rule.
_TAKE_EPOCH = """
INSERT INTO etl.pipelines AS p (pipeline_id, epoch, ordinal_rule, holder_host, holder_pid)
VALUES (%s, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, %s, %s, %s)
ON CONFLICT (pipeline_id) DO UPDATE SET
    epoch = greatest(p.epoch + 1, excluded.epoch),
    holder_host = excluded.holder_host,
    holder_pid = excluded.holder_pid,
    updated_at = now()
WHERE p.ordinal_rule = excluded.ordinal_rule
RETURNING epoch
"""
_ORDINAL_RULE = "SELECT ordinal_rule FROM etl.pipelines WHERE pipeline_id = %s"

#: Shared, so that whoever takes the next epoch waits for our transaction, and we never commit after it.
_FENCE = "SELECT epoch FROM etl.pipelines WHERE pipeline_id = %s FOR SHARE"

#: What the row says, and whether the lock says that it is still so.
_OWNER = """
SELECT epoch,
       format('process %%s on %%s, since %%s', holder_pid, holder_host,
              to_char(updated_at, 'YYYY-MM-DD HH24:MI:SS "UTC"')),
       EXISTS (SELECT FROM pg_locks
               WHERE locktype = 'advisory' AND granted AND objsubid = 1
                 AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                 AND classid = ((%(key)s::bigint >> 32) & 4294967295)::oid
                 AND objid = (%(key)s::bigint & 4294967295)::oid)
FROM etl.pipelines WHERE pipeline_id = %(pipeline)s
"""


def lock_key(pipeline_id: int) -> int:
    """The advisory lock's key: 64 signed bits, the same in every version of etl."""
    digest = hashlib.blake2b(f"supabase_etl_pipeline:{pipeline_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


class PipelineLock:
    """The advisory lock of one pipeline, on a connection of its own."""

    def __init__(self, conninfo: Conninfo, pipeline_id: int, application_name: str) -> None:
        self._session = StoreSession(conninfo, application_name)
        self._key = lock_key(pipeline_id)
        self._holder: Connection | None = None

    def take(self) -> bool:
        """Hold the lock, unless we do already; False when another session does. Raises `StoreError`s."""
        if self.held():
            return True
        self.release()
        self._holder = self._session.run(self._try)
        if self._holder is None:
            self.release()
        return self._holder is not None

    def held(self) -> bool:
        """Whether the session that took the lock still stands, as far as this side can know without asking."""
        return self._holder is not None and _is_alive(self._holder)

    def release(self) -> None:
        """Give the lock up and close its connection; idempotent."""
        holder, self._holder = self._holder, None
        if holder is not None and _is_alive(holder):
            # the server notices a closed connection a little later; the next holder need not wait for that
            with contextlib.suppress(psycopg.Error):
                holder.execute(_UNLOCK, (self._key,))
        self._session.close()

    def _try(self, connection: Connection) -> Connection | None:
        return connection if connection.execute(_LOCK, (self._key,)).fetchone() == (True,) else None


def take_epoch(connection: Connection, pipeline_id: int) -> int:
    """Record this process as the holder and return its epoch. Raises `StoreError` for another ordinal rule."""
    holder = (socket.gethostname(), os.getpid())
    row = connection.execute(_TAKE_EPOCH, (pipeline_id, ORDINAL_RULE, *holder)).fetchone()
    if row is not None:
        return int(row[0])
    stored = connection.execute(_ORDINAL_RULE, (pipeline_id,)).fetchone()
    raise StoreError(
        f"the state of pipeline {pipeline_id} counts positions by rule {stored and stored[0]},"
        f" this version of etl by rule {ORDINAL_RULE}",
        hint="run the version of etl that wrote it, or destroy the pipeline's state and replicate anew",
    )


def fence(connection: Connection, pipeline_id: int, epoch: int) -> None:
    """Keep the epoch ours until the transaction ends. Raises `PipelineActiveError` when it is not ours any more."""
    row = connection.execute(_FENCE, (pipeline_id,)).fetchone()
    if row is None:
        raise destroyed(pipeline_id)
    if row[0] != epoch:
        raise pipeline_active(connection, pipeline_id)


def load_owner(connection: Connection, pipeline_id: int) -> PipelineOwner | None:
    """Who has run the pipeline last, and whether the lock says that it still does."""
    row = _owner(connection, pipeline_id)
    return None if row is None else PipelineOwner(row[0], row[1] if row[2] else None)


def pipeline_active(connection: Connection, pipeline_id: int) -> PipelineActiveError:
    """The error that names who holds the pipeline."""
    # a first holder may be at creating the tables still
    row = _owner(connection, pipeline_id) if table_exists(connection, "pipelines") else None
    return active_error(pipeline_id, "another process" if row is None else row[1])


def _owner(connection: Connection, pipeline_id: int) -> tuple[int, str, bool] | None:
    """Epoch, who took it, and whether anyone holds the lock."""
    row = connection.execute(_OWNER, {"key": lock_key(pipeline_id), "pipeline": pipeline_id}).fetchone()
    return None if row is None else (int(row[0]), str(row[1]), bool(row[2]))


def _is_alive(connection: Connection) -> bool:
    """Read what the server sent unasked: a notice, or the end of the connection."""
    if connection.closed:
        return False
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    try:
        while poll.poll(0):
            connection.pgconn.consume_input()
    except psycopg.OperationalError:
        return False
    return True

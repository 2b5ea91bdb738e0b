"""The connection of one copying thread, under the snapshot of its round."""

from __future__ import annotations

from contextlib import ExitStack

from etl.pipeline.context import PipelineContext
from etl.pipeline.copy_schedule import Snapshot
from etl.source.connection import Connection
from etl.source.copy import snapshot_connection


class SnapshotReader:
    """A thread's connection under the snapshot, made when needed and anew after it broke."""

    def __init__(self, context: PipelineContext, snapshot: Snapshot, connections: set[Connection]) -> None:
        """`connections`: where to put the one in use, so that others can cancel what it waits for."""
        self.snapshot = snapshot
        self._connections = connections
        self._context = context
        self._held: ExitStack | None = None
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Raises `SnapshotOutdatedError` when the snapshot has ended."""
        if self._connection is None:
            self._held = ExitStack()
            self._connection = self._held.enter_context(
                snapshot_connection(
                    self._context.parameters,
                    self.snapshot.name,
                    f"table_sync:{self._context.pipeline_id}",
                )
            )
            self._connections.add(self._connection)
        return self._connection

    def close(self) -> None:
        """Let go of the connection; idempotent."""
        if self._connection is not None:
            self._connections.discard(self._connection)
        if self._held is not None:
            self._held.close()
        self._held = self._connection = None

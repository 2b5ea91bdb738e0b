"""Notices that the publication is gone, where the server itself says nothing.

Since Postgres 18 a walsender whose publication does not exist warns in the server's log, sends nothing of its tables,
and goes on; older ones refuse. So before a position is acknowledged we look whether the publication is still the one the
stream began with: when it is there now, it was there for everything up to that position, since oids are not used again.
What happened before the stream began is not seen: a publication that was dropped and made anew while nothing ran.
"""

from __future__ import annotations

from etl.errors import PublicationError
from etl.pipeline.context import PipelineContext
from etl.source.connection import Connection, connect_query
from etl.source.publication import publication_oid

_SILENT_SINCE = 180000
#: How often to look while nothing is acknowledged.
_INTERVAL_S = 5.0


class PublicationReplacedError(PublicationError):
    """Changes since some moment were not sent, though nothing said so."""


class PublicationWatch:
    """Looks on a connection of its own. Used by the pipeline's main thread only."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._name = context.config.pipeline.publication
        self._due = context.clock() + _INTERVAL_S
        self._connection: Connection | None = None
        self._oid: int | None = None

    def open(self) -> None:
        """From here on the publication must stay what it is. Raises a `SourceError`."""
        connection = connect_query(self._context.parameters, f"publication:{self._context.pipeline_id}")
        if connection.info.server_version < _SILENT_SINCE:
            connection.close()
            return
        self._connection = connection
        self._oid = publication_oid(connection, self._context.parameters, self._name)

    def check_if_due(self) -> None:
        """`check`, every few seconds."""
        if self._context.clock() >= self._due:
            self.check()

    def check(self) -> None:
        """Raises `PublicationReplacedError` when the publication is gone, or is another one under the same name."""
        if self._connection is None:
            return
        self._due = self._context.clock() + _INTERVAL_S
        oid = publication_oid(self._connection, self._context.parameters, self._name)
        if oid is None or oid != self._oid:
            raise PublicationReplacedError(
                f"publication {self._name} was dropped while its changes were streamed",
                hint="the server sent nothing of what changed since: create the publication where it is missing, and start"
                " again; the tables are copied anew",
            )

    def close(self) -> None:
        """Close the connection; idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

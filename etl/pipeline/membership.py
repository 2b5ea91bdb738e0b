"""Who is published: looks at the publication every few moments and tells what is new, gone or different.

The server says nothing of `ALTER PUBLICATION`, of tables that are created in a published schema, or of partitions that
come and go; their rows simply begin or cease to come. Since Postgres 18 it does not even say that the publication is
gone. So we look, on a connection of our own, and there also before a position is acknowledged: when the publication is now the one
the stream began with, it was there for everything up to that position, since oids are not used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from etl.errors import PublicationError
from etl.lsn import Lsn
from etl.pipeline.context import PipelineContext
from etl.source.connection import Connection, connect_query
from etl.source.publication import PublishedTable, publication_oid, published_tables
from etl.source.slots import current_lsn, retained_wal
from etl.store.base import Shown

_SILENT_SINCE = 180000


class PublicationReplacedError(PublicationError):
    """Changes since some moment were not sent, though nothing said so."""


@dataclass(frozen=True, slots=True)
class Look:
    """What was published at a moment, and where the source's WAL was; `retained_wal` is what our slot holds back."""

    tables: Mapping[int, PublishedTable]
    lsn: Lsn
    retained_wal: int


class Membership:
    """Used by the pipeline's main thread only."""

    def __init__(self, context: PipelineContext) -> None:
        self._context = context
        self._name = context.config.pipeline.publication
        self._interval_s = context.config.publication_check_ms / 1000
        self._due = context.clock() + self._interval_s
        self._connection: Connection | None = None
        self._oid: int | None = None
        self._seen: list[PublishedTable] | None = None

    def open(self) -> Look:
        """From here on the publication must stay what it is. Raises a `SourceError`."""
        self.close()
        self._connection = connect_query(self._context.parameters, f"publication:{self._context.pipeline_id}")
        self._oid = publication_oid(self._connection, self._context.parameters, self._name)
        return self.look()

    def look_if_due(self) -> Look | None:
        """What is published now, if it is time to look again. Raises `PublicationReplacedError`."""
        if self._context.clock() < self._due:
            return None
        self.check()
        return self.look()

    def look(self) -> Look:
        """What is published now."""
        connection, parameters = self._open(), self._context.parameters
        lsn = current_lsn(connection, parameters)
        tables = published_tables(connection, parameters, self._name, self._seen or ())
        # the server answers in part from its catalog caches, which may be newer than the rest: a change counts when it
        # is seen twice alike
        while tables != self._seen:
            self._seen, tables = tables, published_tables(connection, parameters, self._name, tables)
        self._due = self._context.clock() + self._interval_s
        return Look(
            {table.oid: table for table in tables},
            lsn,
            retained_wal(connection, parameters, self._context.pipeline_id),
        )

    def check_if_silent(self) -> None:
        """`check`, where the server itself would say nothing: older ones refuse to send, so no position comes of it."""
        if self._open().info.server_version >= _SILENT_SINCE:
            self.check()

    def check(self) -> None:
        """Raises `PublicationReplacedError` when the publication is gone, or is another one under the same name."""
        oid = publication_oid(self._open(), self._context.parameters, self._name)
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

    def _open(self) -> Connection:
        if self._connection is None:
            raise PublicationError(f"publication {self._name} is not being watched", hint="report this")
        return self._connection


def shown(table: PublishedTable) -> Shown:
    """What the publication shows of the table, to be compared with what it showed before, also by another process."""
    return Shown(table.entries, table.row_filter, table.column_attnums, table.attached)


def rows_may_be_missing(before: Shown, after: Shown) -> bool:
    """True when the publication shows rows now that were never sent.

    So it is under another row filter, with a partition that was attached with rows in it, and after the table was taken
    out of the publication and put back: what changed meanwhile was not sent. A change of the column list alone is also
    recorded as a new entry, and needs no copy: the new columns are added without values (contract). An entry keeps the
    filter it was made with, whatever the columns are called in it later.
    """
    put_back = before.entries.isdisjoint(after.entries) and before.columns == after.columns
    other_filter = before.row_filter != after.row_filter and before.entries != after.entries
    return put_back or other_filter or not after.attached <= before.attached

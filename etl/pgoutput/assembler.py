"""From chunks of the stream to ordered events: transactions, schema versions, Relation where the schema changes.

Theory of operation. A chunk is framed and placed as a whole (`frames`, `transactions`), then cut into segments: at
every schema message or RELATION of a table of ours, at every Truncate, and at the last Commit. Inside a segment
nothing but rows happens, so the rows of one table become one run of columns, whatever transactions they are of.

What a table looks like at a row is decided by the stream alone. `version` is the last schema message seen for the table
in this stream, or, before the first, the greatest stored version of an *earlier* transaction: a restart replays whole
transactions, so messages of the same transaction always come by. Versions of later transactions, stored in an earlier
run, are in the catalog and must not be seen yet. The last RELATION (`shape`) is laid over the version, which gives the
masks. Postgres sends no RELATION for an ALTER that leaves its relation cache as it was; the shape then still holds and
is laid over the new version. A Relation event is emitted before the first row under a shape that differs from the last
one emitted.

Transactions that commit below a table's `sync_lsn` are in its initial copy: their rows are dropped and their schema
messages ignored, without being looked at.

The assembler does no I/O. What must be remembered is in `Assembled.new_schemas`, to be stored before the events are
handed on; `explain` is asked about a RELATION that contradicts the stored version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from etl.errors import EtlError, SchemaDriftError, SchemaError, TableSourceError, ValueConversionError
from etl.events import Commit, Relation, Truncate
from etl.lsn import MAX_ORDINAL, Lsn, Position, SnapshotId
from etl.pgoutput.assembled import Assembled, TableFailure
from etl.pgoutput.changes import build_changes
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pgoutput.frames import (
    KIND_KEEPALIVE,
    TAG_MESSAGE,
    TAG_RELATION,
    TAG_TRUNCATE,
    Chunk,
    Frames,
    scan,
)
from etl.pgoutput.kept import Kept, placed
from etl.pgoutput.messages import LogicalMessage, RelationMessage, TruncateMessage, control
from etl.pgoutput.rows import decode_rows
from etl.pgoutput.transactions import OpenTransaction, Placement, place
from etl.pgoutput.wire import Int64s
from etl.schema.catalog import SchemaCatalog
from etl.schema.message import SchemaMessage
from etl.schema.relation import RelationColumn, RelationMismatch, RelationShape, match_relation
from etl.schema.table import ReplicatedTableSchema, TableSchema
from etl.schema.types import TypeOptions

#: The oid of a schema message whose trigger could not even tell which tables the statement changed.
_UNKNOWN_TABLES = 0

Explain = Callable[[TableSchema, RelationShape], "TableSchema | str"]


@dataclass(slots=True)
class _Table:
    """A table of ours as the stream has shown it so far."""

    oid: int
    name: str
    sync_lsn: int
    version: TableSchema | None = None
    shape: RelationShape | None = None
    resolved: ReplicatedTableSchema | None = None
    stale: bool = True
    suspect: bool = False
    emitted: str | None = None
    failed: bool = False


class Assembler:
    """One run of the stream. Feed it every chunk in order; after an error or a reconnect make a new one.

    `tables`: oid → the LSN below which transactions are in the table's copy. `catalog` holds their stored versions.
    """

    def __init__(
        self,
        tables: Mapping[int, Lsn],
        catalog: SchemaCatalog,
        ddl: DdlMessages,
        explain: Explain,
        options: TypeOptions,
    ) -> None:
        self._catalog = catalog
        self._ddl = ddl
        self._explain = explain
        self._options = options
        self._open: OpenTransaction | None = None
        self._tables: dict[int, _Table] = {}
        self._by_name: dict[str, _Table] = {}
        self._shapes: dict[int, RelationShape] = {}
        for oid, lsn in tables.items():
            self.add(oid, lsn)

    @property
    def in_transaction(self) -> bool:
        """True while a transaction's end has not been seen."""
        return self._open is not None

    def add(self, oid: int, sync_lsn: Lsn) -> None:
        """Decode this table from now on; its RELATION must be yet to come in this run of the stream."""
        self._own(_Table(oid, self._name_of(oid), int(sync_lsn)))

    def adopt(self, oid: int, other: Assembler) -> None:
        """Go on with this table where `other` stands, in place of what is known of it here.

        So a table goes on whose changes `other` replayed up to here: no new RELATION is needed for it.
        """
        self.release([oid])
        versions = other._catalog.versions(oid)
        self._catalog.forget(oid)
        for version in versions:
            self._catalog.add(version)
        table = other._tables[oid]
        # without a row of the table `other` saw no RELATION; the one that holds may have come by here
        self._own(replace(table, shape=table.shape or self._shapes.get(oid), stale=True))

    def release(self, oids: Iterable[int]) -> None:
        """Forget these tables: they are not decoded any more. No error for one that is not known."""
        for oid in oids:
            table = self._tables.pop(oid, None)
            if table is not None and self._by_name.get(table.name) is table:
                del self._by_name[table.name]

    def _own(self, table: _Table) -> None:
        self._tables[table.oid] = self._by_name[table.name] = table

    def feed(self, chunk: Chunk) -> Assembled:
        """Decode a chunk. Raises `DecodeError`, and `SchemaMessageError` for a signed message we cannot read."""
        frames = scan(chunk)
        out = self._assemble(frames, place(frames, self._open))
        self._open = out.placement.open
        self._note_positions(out, frames, out.placement)
        return out

    def replay(self, kept: Kept) -> Assembled:
        """Decode what was kept of earlier chunks; no Commit and no positions come of it. Raises what `feed` raises.

        An assembler is fed or it replays, not both. The notices were given when the frames first came by.
        """
        return self._assemble(*placed(kept))

    def _assemble(self, frames: Frames, placement: Placement) -> Assembled:
        out = Assembled(frames, placement)
        last_commit = int(placement.commit_index[-1]) + 1 if len(placement.commit_index) else 0
        start = 0
        for at in self._stops(frames, last_commit):
            if at == last_commit and last_commit:
                start = self._segment(out, frames, placement, start, at)
                self._emit_commit(out, placement)
            if at < len(frames):
                start = self._special(out, frames, placement, start, at)
        self._segment(out, frames, placement, start, len(frames))
        return out

    @staticmethod
    def _stops(frames: Frames, last_commit: int) -> list[int]:
        """Frames to look at one by one, and the frame after the last Commit."""
        tag = frames.tag
        special = np.flatnonzero((tag == TAG_RELATION) | (tag == TAG_MESSAGE) | (tag == TAG_TRUNCATE))
        return sorted({*special.tolist(), last_commit} if last_commit else special.tolist())

    def _special(self, out: Assembled, frames: Frames, placement: Placement, start: int, at: int) -> int:
        """Act on one Relation, Message or Truncate; returns where the open segment starts now."""
        tag = int(frames.tag[at])
        if tag not in (TAG_RELATION, TAG_MESSAGE, TAG_TRUNCATE):
            return start
        message = control(frames, at)
        if isinstance(message, RelationMessage):
            return self._on_relation(out, frames, placement, start, at, message)
        if isinstance(message, LogicalMessage):
            return self._on_message(out, frames, placement, start, at, message)
        if isinstance(message, TruncateMessage):
            start = self._segment(out, frames, placement, start, at)
            self._emit_truncate(out, placement, at, message)
        return start

    # --- schema ---------------------------------------------------------------------------------------------------

    def _on_relation(
        self,
        out: Assembled,
        frames: Frames,
        placement: Placement,
        start: int,
        at: int,
        message: RelationMessage,
    ) -> int:
        shape = RelationShape(
            message.oid,
            message.schema,
            message.name,
            message.replica_identity,
            tuple(RelationColumn(c.name, c.type_oid, c.typmod, c.key) for c in message.columns),
        )
        self._shapes[shape.oid] = shape
        table = self._tables.get(shape.oid)
        if table is None:
            self._check_swap(out, placement, at, shape)
            return start
        if table.shape == shape and not table.stale:
            return start
        start = self._segment(out, frames, placement, start, at)
        table.shape, table.stale = shape, True
        return start

    def _check_swap(self, out: Assembled, placement: Placement, at: int, shape: RelationShape) -> None:
        """Another table under the name of one of ours: the name is a version attribute, the oid the identity.

        Ours is told to be gone. Should it live on after all, renamed unlogged, its rows still are its own.
        """
        table = self._by_name.pop(f"{shape.schema}.{shape.name}", None)
        if table is None or table.failed:
            return
        error = TableSourceError(
            f"table {table.name} with oid {table.oid} was replaced by another table with oid {shape.oid}",
            hint="its destination table keeps the rows of the old one; drop or rename the destination table, then"
            " restart to copy the new one",
            table=table.name,
        )
        out.failures.append(TableFailure(table.oid, error, self._position(placement, at)))

    def _on_message(
        self,
        out: Assembled,
        frames: Frames,
        placement: Placement,
        start: int,
        at: int,
        message: LogicalMessage,
    ) -> int:
        notice, parsed = self._ddl.read(message, int(placement.xid[at]))
        if notice is not None:
            out.notices.append(notice)
        if parsed is not None and parsed.oid == _UNKNOWN_TABLES:
            start = self._segment(out, frames, placement, start, at)
            self._suspect_all(int(placement.commit_lsn[at]))
            return start
        table = self._tables.get(parsed.oid) if parsed is not None else None
        if parsed is None or table is None or int(placement.commit_lsn[at]) < table.sync_lsn:
            return start
        start = self._segment(out, frames, placement, start, at)
        self._learn(out, table, parsed, SnapshotId(Lsn(int(placement.commit_lsn[at])), message.lsn))
        return start

    def _suspect_all(self, commit_lsn: int) -> None:
        """A statement changed tables that the trigger could not name: each has to be explained at its next row."""
        for table in self._tables.values():
            if commit_lsn >= table.sync_lsn:
                table.suspect, table.stale = True, True

    def _learn(self, out: Assembled, table: _Table, message: SchemaMessage, snapshot_id: SnapshotId) -> None:
        """Take the version that a schema message carries; without one the next RELATION has to be explained."""
        if message.is_drop:
            return
        if message.schema is None:
            table.suspect, table.stale = True, True
            return
        known = self._version_before(table, snapshot_id.commit_lsn)
        version = message.schema.at(snapshot_id).remembering(known)
        self._catalog.add(version)
        out.new_schemas.append(version)
        table.version, table.stale, table.suspect = version, True, False
        self._rename(table, version.qualified_name)

    def _rename(self, table: _Table, name: str) -> None:
        """Two tables may exchange their names: a name is given up only by the table that has it."""
        if self._by_name.get(table.name) is table:
            del self._by_name[table.name]
        table.name = name
        self._by_name[name] = table

    def _resolve(
        self, out: Assembled, table: _Table, position: Position, lsn: int
    ) -> ReplicatedTableSchema | None:
        """The table's schema for the row at `position`, or None when the table fails here."""
        if not table.stale and table.resolved is not None:
            return table.resolved
        try:
            table.resolved = self._lay_relation(out, table, position, lsn)
        except SchemaError as error:
            self._fail(out, table, error, position)
            return None
        table.stale = False
        return table.resolved

    def _lay_relation(
        self, out: Assembled, table: _Table, position: Position, lsn: int
    ) -> ReplicatedTableSchema:
        version = self._version_before(table, position.commit_lsn)
        if version is None or table.shape is None:
            raise SchemaError(
                "no schema version is stored for this point of the stream",
                hint="the state store is incomplete: `etl destroy` the pipeline and replicate anew",
                table=table.name,
            )
        table.version = version
        matched = match_relation(version, table.shape)
        if isinstance(matched, RelationMismatch) or table.suspect:
            healed = self._heal(table, version, table.shape).at(SnapshotId(position.commit_lsn, Lsn(lsn)))
            self._catalog.add(healed)
            out.new_schemas.append(healed)
            table.version, table.suspect = healed, False
            matched = match_relation(healed, table.shape)
        if isinstance(matched, RelationMismatch):
            raise _drift(table, matched.columns, "the healed version contradicts RELATION as well")
        return matched

    def _version_before(self, table: _Table, commit_lsn: Lsn) -> TableSchema | None:
        """The last version seen, or else the last stored one of a transaction before that which commits at `commit_lsn`."""
        earlier = SnapshotId(Lsn(max(commit_lsn - 1, 0)), Lsn(2**64 - 1))
        return table.version or self._catalog.at(table.oid, earlier)

    def _heal(self, table: _Table, version: TableSchema, shape: RelationShape) -> TableSchema:
        explained = self._explain(version, shape)
        if isinstance(explained, TableSchema):
            return explained
        mismatch = match_relation(version, shape)
        columns = mismatch.columns if isinstance(mismatch, RelationMismatch) else ()
        raise _drift(table, columns, explained)

    # --- events ---------------------------------------------------------------------------------------------------

    def _segment(self, out: Assembled, frames: Frames, placement: Placement, start: int, stop: int) -> int:
        """Emit the rows between two cuts, one run per table; returns `stop`."""
        rows = np.flatnonzero(placement.is_row[start:stop]) + start
        if not len(rows):
            return stop
        oids = frames.oid[rows]
        if oids[0] == oids[-1] and (oids == oids[0]).all():
            self._run(out, frames, placement, int(oids[0]), rows)
            return stop
        unique, first_seen = np.unique(oids, return_index=True)
        for oid in unique[np.argsort(first_seen)]:
            self._run(out, frames, placement, int(oid), rows[oids == oid])
        return stop

    def _run(self, out: Assembled, frames: Frames, placement: Placement, oid: int, index: Int64s) -> None:
        table = self._tables.get(oid)
        if table is None or table.failed:
            return
        if int(placement.commit_lsn[index[0]]) < table.sync_lsn:
            index = index[placement.commit_lsn[index] >= np.uint64(table.sync_lsn)]
            if not len(index):
                return
        position = self._position(placement, int(index[0]))
        schema = self._resolve(out, table, position, int(frames.lsn[index[0]]))
        if schema is None:
            return
        try:
            raw = decode_rows(frames, index, len(schema.columns))
            changes = build_changes(raw, index, placement, schema, self._options)
        except ValueConversionError as error:
            self._fail(out, table, error, position)
            return
        self._emit_relation(out, table, schema, position)
        out.events.append(changes)

    def _emit_relation(
        self, out: Assembled, table: _Table, schema: ReplicatedTableSchema, position: Position
    ) -> None:
        if table.emitted != schema.version_hash:
            out.events.append(Relation(schema, position))
            table.emitted = schema.version_hash

    def _emit_truncate(self, out: Assembled, placement: Placement, at: int, message: TruncateMessage) -> None:
        position = self._position(placement, at)
        schemas = []
        for oid in message.oids:
            table = self._tables.get(oid)
            if table is None or table.failed or position.commit_lsn < table.sync_lsn:
                continue
            schema = self._resolve(out, table, position, int(placement.commit_lsn[at]))
            if schema is not None:
                self._emit_relation(out, table, schema, position)
                schemas.append(schema)
        if schemas:
            timestamp = int(placement.timestamp[at])
            out.events.append(
                Truncate(tuple(schemas), position, timestamp, message.cascade, message.restart_identity)
            )

    @staticmethod
    def _emit_commit(out: Assembled, placement: Placement) -> None:
        commits = placement.commits
        out.transactions = len(placement.commit_index)
        out.events.append(
            Commit(
                Lsn(int(commits.commit_lsn[-1])),
                Lsn(int(commits.end_lsn[-1])),
                int(commits.timestamp[-1]),
                len(placement.commit_index),
            )
        )

    # --- small things ---------------------------------------------------------------------------------------------

    def _note_positions(self, out: Assembled, frames: Frames, placement: Placement) -> None:
        if not len(frames):
            return
        out.received_lsn = Lsn(int(frames.lsn.max()))
        keepalives = np.flatnonzero(frames.kind == KIND_KEEPALIVE)
        if placement.open is None and len(keepalives):
            after_last_change = keepalives[keepalives > np.flatnonzero(placement.is_row).max(initial=-1)]
            if len(after_last_change):
                out.idle_lsn = Lsn(int(frames.lsn[after_last_change[-1]]))

    def _fail(self, out: Assembled, table: _Table, error: EtlError, position: Position) -> None:
        table.failed = True
        error.lsn = error.lsn or position.commit_lsn
        out.failures.append(TableFailure(table.oid, error, position))

    def _name_of(self, oid: int) -> str:
        latest = self._catalog.latest(oid)
        return latest.qualified_name if latest is not None else f"oid {oid}"

    @staticmethod
    def _position(placement: Placement, at: int) -> Position:
        ordinal = min(int(placement.ordinal[at]), MAX_ORDINAL)
        return Position(Lsn(int(placement.commit_lsn[at])), ordinal)


def _drift(table: _Table, columns: tuple[str, ...], reason: str) -> SchemaDriftError:
    named = f": {', '.join(columns)}" if columns else ""
    return SchemaDriftError(
        f"RELATION does not match the stored schema{named} ({reason})",
        hint="a schema change was not logged (trigger disabled or bypassed). Check `etl check`, then copy the table anew",
        table=table.name,
    )

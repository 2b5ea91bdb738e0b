"""Build schemas and events from plain Python, for tests of destinations and whatever else takes events.

Rows are mappings from column name to value; a column left out is NULL. A `Stream` gives every change its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from etl.events import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Commit,
    Relation,
    RowChanges,
    Truncate,
    Unrepresentable,
)
from etl.lsn import Lsn, Position, SnapshotId
from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema, TableSchema
from etl.schema.types import TypeOptions, arrow_type

BOOL, INT4, INT8, TEXT, JSON, JSONB, VARCHAR, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, NUMERIC, UUID = (
    16,
    23,
    20,
    25,
    114,
    3802,
    1043,
    1082,
    1083,
    1114,
    1184,
    1700,
    2950,
)

#: ``atttypmod`` of numeric(10,2).
NUMERIC_10_2 = (10 << 16 | 2) + 4

PlainRow = Mapping[str, Any]


def table_schema(
    *columns: ColumnSchema,
    key: Iterable[str] = ("id",),
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
    oid: int = 16384,
    schema: str = "public",
    name: str = "orders",
) -> ReplicatedTableSchema:
    """A table whose primary key is `key`, in that order; all columns replicated."""
    place = {column: ordinal for ordinal, column in enumerate(key, start=1)}
    keyed = tuple(
        replace(column, primary_key_ordinal=place.get(column.name))
        for column in sorted(columns, key=lambda column: column.attnum)
    )
    version = TableSchema(
        oid,
        schema,
        name,
        keyed,
        SnapshotId.COPY,
        identity,
        max_attnum=max((c.attnum for c in keyed), default=0),
    )
    return ReplicatedTableSchema.all_columns(version)


def column(name: str, attnum: int, type_oid: int = TEXT, **fields: Any) -> ColumnSchema:
    """A column; `fields` are those of `ColumnSchema`."""
    return ColumnSchema(name, attnum, type_oid, **fields)


def altered(
    schema: ReplicatedTableSchema, *columns: ColumnSchema, at: int = 1, key: Iterable[str] | None = None
) -> ReplicatedTableSchema:
    """The next version of a table, with exactly `columns`; the key keeps its columns, whatever their names are now.

    `at` numbers the version's snapshot.
    """
    ordinals = {c.attnum: c.primary_key_ordinal for c in schema.schema.columns}
    if key is not None:
        place = {name: ordinal for ordinal, name in enumerate(key, start=1)}
        ordinals = {c.attnum: place.get(c.name) for c in columns}
    keyed = tuple(
        replace(c, primary_key_ordinal=ordinals.get(c.attnum))
        for c in sorted(columns, key=lambda c: c.attnum)
    )
    version = replace(
        schema.schema,
        columns=keyed,
        snapshot_id=SnapshotId(Lsn(at), Lsn(at)),
        max_attnum=max(schema.schema.max_attnum, *(c.attnum for c in keyed)),
    )
    return ReplicatedTableSchema.all_columns(version)


@dataclass(frozen=True, slots=True)
class Insert:
    """A new row."""

    new: PlainRow
    unrepresentable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """A changed row. `old` is the old row where the server sends it: with FULL identity or a changed key.

    `unchanged` names the columns whose value was not sent.
    """

    new: PlainRow
    old: PlainRow | None = None
    unchanged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Delete:
    """A row that went, by its old image: the whole row, of which a key identity sends the key only."""

    old: PlainRow


Change = Insert | Update | Delete


def batch(
    schema: ReplicatedTableSchema, rows: Sequence[PlainRow], options: TypeOptions | None = None
) -> pa.RecordBatch:
    """Rows as a record batch of the replicated columns."""
    types = [arrow_type(c.type_oid, c.typmod, options or TypeOptions()) for c in schema.columns]
    return pa.record_batch(
        [
            pa.array([row.get(c.name) for row in rows], carried)
            for c, carried in zip(schema.columns, types, strict=True)
        ],
        names=[c.name for c in schema.columns],
    )


@dataclass(slots=True)
class Stream:
    """Counts positions as the protocol does: every change one ordinal, a new transaction at every `commit`."""

    commit_lsn: int = 0x1000
    ordinal: int = 0
    timestamp: int = 1_700_000_000_000_000

    @property
    def next(self) -> Position:
        """The position of the change that comes next."""
        return Position(Lsn(self.commit_lsn), self.ordinal + 1)

    def rows(self, schema: ReplicatedTableSchema, *changes: Change) -> RowChanges:
        """A run of changes of one table."""
        start = self.ordinal + 1
        self.ordinal += len(changes)
        olds = [(index, old) for index, change in enumerate(changes) if (old := _old(change)) is not None]
        old_index = np.full(len(changes), -1, np.int64)
        old_index[[index for index, _ in olds]] = np.arange(len(olds))
        return RowChanges(
            schema=schema,
            ops=np.array([_OPS[type(change)] for change in changes], np.uint8),
            commit_lsn=np.full(len(changes), self.commit_lsn, np.uint64),
            ordinal=np.arange(start, start + len(changes), dtype=np.uint32),
            commit_timestamp=np.full(len(changes), self.timestamp, np.int64),
            new=batch(schema, [_new(change) for change in changes]),
            old=batch(schema, [_image(schema, old) for _, old in olds]) if olds else None,
            old_index=old_index,
            unchanged=_unchanged(schema, changes),
            unrepresentable=_unrepresentable(schema, changes),
        )

    def relation(self, schema: ReplicatedTableSchema) -> Relation:
        """From the next change on, rows of this table are under `schema`."""
        return Relation(schema, self.next)

    def truncate(self, *schemas: ReplicatedTableSchema) -> Truncate:
        """TRUNCATE of these tables by one statement."""
        self.ordinal += 1
        return Truncate(schemas, Position(Lsn(self.commit_lsn), self.ordinal), self.timestamp)

    def commit(self) -> Commit:
        """End the transaction."""
        ended = Commit(Lsn(self.commit_lsn), Lsn(self.commit_lsn + 8), self.timestamp)
        self.commit_lsn += 0x100
        self.ordinal = 0
        self.timestamp += 1_000_000
        return ended


_OPS = {Insert: OP_INSERT, Update: OP_UPDATE, Delete: OP_DELETE}


def _old(change: Change) -> PlainRow | None:
    return None if isinstance(change, Insert) else change.old


def _new(change: Change) -> PlainRow:
    if isinstance(change, Delete):
        return {}
    if isinstance(change, Update):
        return {name: value for name, value in change.new.items() if name not in change.unchanged}
    return {name: value for name, value in change.new.items() if name not in change.unrepresentable}


def _image(schema: ReplicatedTableSchema, old: PlainRow) -> PlainRow:
    if schema.old_image_is_full:
        return old
    return {c.name: old[c.name] for c in schema.identity_columns}


def _unchanged(schema: ReplicatedTableSchema, changes: Sequence[Change]) -> dict[str, Any]:
    masks = {
        c.name: np.array(
            [isinstance(change, Update) and c.name in change.unchanged for change in changes], np.bool_
        )
        for c in schema.columns
    }
    return {name: mask for name, mask in masks.items() if mask.any()}


def _unrepresentable(schema: ReplicatedTableSchema, changes: Sequence[Change]) -> tuple[Unrepresentable, ...]:
    attnums = {c.name: c.attnum for c in schema.columns}
    return tuple(
        Unrepresentable(index, attnums[name], text)
        for index, change in enumerate(changes)
        if isinstance(change, Insert)
        for name, text in change.unrepresentable.items()
    )

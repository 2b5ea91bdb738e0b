"""Table schemas as versioned values: what a table looked like between two schema changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property

from etl.lsn import SnapshotId


class ReplicaIdentity(StrEnum):
    """``pg_class.relreplident``: which old values the WAL carries for updates and deletes."""

    DEFAULT = "d"
    FULL = "f"
    INDEX = "i"
    NOTHING = "n"


@dataclass(frozen=True, slots=True)
class ColumnSchema:
    """One visible, non-generated column as Postgres describes it.

    `attnum` is the identity of the column for all its life; `typmod` is ``atttypmod``; `default_expression` is
    ``pg_get_expr`` text or None; `primary_key_ordinal` its 1-based place in the primary key, in key order;
    `type_name` the formatted type for people; `missing_value` the text of the value that rows older than the
    column read at the source (``attmissingval``), None when there is none; `comment` what people say of the column at
    the source, known at its copy only and no part of the version.
    """

    name: str
    attnum: int
    type_oid: int
    typmod: int = -1
    nullable: bool = True
    default_expression: str | None = None
    primary_key_ordinal: int | None = None
    type_name: str = ""
    missing_value: str | None = None
    comment: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's schema.

    `columns` are in ascending attnum; `identity_attnums` are the columns of
    the replica identity index (empty unless `identity` is INDEX). `max_attnum` is the highest attnum ever used,
    tombstones included (``relnatts``); 0 when unknown.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[ColumnSchema, ...]
    snapshot_id: SnapshotId = SnapshotId.COPY
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT
    identity_attnums: tuple[int, ...] = ()
    max_attnum: int = 0

    @property
    def qualified_name(self) -> str:
        """``schema.name`` for people and labels; not quoted SQL."""
        return f"{self.schema}.{self.name}"

    @property
    def primary_key(self) -> tuple[ColumnSchema, ...]:
        """The key columns in key order; empty without a primary key."""
        keyed = [(c.primary_key_ordinal, c) for c in self.columns if c.primary_key_ordinal is not None]
        return tuple(column for _, column in sorted(keyed, key=lambda pair: pair[0]))

    def at(self, snapshot_id: SnapshotId) -> TableSchema:
        """The same shape under another version key."""
        return replace(self, snapshot_id=snapshot_id)

    def remembering(self, earlier: TableSchema | None) -> TableSchema:
        """With the missing values of an `earlier` version where this one has none for the column.

        When a table is rewritten, its rows get these values and the catalog forgets them. Rows at a destination do not.
        """
        known = {} if earlier is None else {c.attnum: c.missing_value for c in earlier.columns}
        if all(c.missing_value is not None or known.get(c.attnum) is None for c in self.columns):
            return self
        columns = (
            c if c.missing_value is not None else replace(c, missing_value=known.get(c.attnum))
            for c in self.columns
        )
        return replace(self, columns=tuple(columns))


@dataclass(frozen=True)
class ReplicatedTableSchema:
    """A schema version as the publication shows it: which columns are replicated and which identify a row.

    Both masks run over ``schema.columns``, True for replicated / part of the old-key image. The runtime masks come
    from RELATION (contract, "rebuild the runtime replication and identity masks").
    """

    schema: TableSchema
    replication_mask: tuple[bool, ...]
    identity_mask: tuple[bool, ...]

    def __post_init__(self) -> None:
        if not len(self.schema.columns) == len(self.replication_mask) == len(self.identity_mask):
            raise ValueError("masks must cover the columns of the schema")

    @classmethod
    def all_columns(cls, schema: TableSchema) -> ReplicatedTableSchema:
        """Every column replicated, identity as the schema declares it."""
        if schema.identity is ReplicaIdentity.FULL:
            identity = tuple(True for _ in schema.columns)
        elif schema.identity is ReplicaIdentity.INDEX:
            identity = tuple(c.attnum in schema.identity_attnums for c in schema.columns)
        elif schema.identity is ReplicaIdentity.DEFAULT:
            identity = tuple(c.primary_key_ordinal is not None for c in schema.columns)
        else:
            identity = tuple(False for _ in schema.columns)
        return cls(schema, tuple(True for _ in schema.columns), identity)

    @property
    def oid(self) -> int:
        """The source table's oid: the identity of the table."""
        return self.schema.oid

    @property
    def qualified_name(self) -> str:
        """``schema.name`` for people and labels."""
        return self.schema.qualified_name

    @cached_property
    def columns(self) -> tuple[ColumnSchema, ...]:
        """The replicated columns, in attnum order: the order of every tuple in the stream."""
        return tuple(c for c, seen in zip(self.schema.columns, self.replication_mask, strict=True) if seen)

    @cached_property
    def identity_columns(self) -> tuple[ColumnSchema, ...]:
        """The replicated columns of the old-key image, in attnum order."""
        flags = zip(self.schema.columns, self.replication_mask, self.identity_mask, strict=True)
        return tuple(c for c, seen, identity in flags if seen and identity)

    @cached_property
    def key_columns(self) -> tuple[ColumnSchema, ...]:
        """What addresses a row in a mirror.

        The identity columns, or under FULL identity the primary key when it
        is replicated whole. Empty: rows have no key and are matched by their full old image, or never changed.
        """
        if self.schema.identity is ReplicaIdentity.NOTHING:
            return ()
        if self.schema.identity is ReplicaIdentity.FULL:
            replicated = {c.attnum for c in self.columns}
            key = self.schema.primary_key
            return key if key and all(c.attnum in replicated for c in key) else ()
        return self.identity_columns

    @property
    def old_image_is_full(self) -> bool:
        """True when updates and deletes carry every column of the old row (REPLICA IDENTITY FULL)."""
        return self.schema.identity is ReplicaIdentity.FULL

    @cached_property
    def version_hash(self) -> str:
        """Equal for two versions between which nothing changed that a destination could see.

        Covers oid, attnums, names, types, typmods, defaults, nullability, keys, identity and masks, and not the
        snapshot id: identical RELATION messages are re-sent, and many ALTERs change nothing.
        """
        shape = (
            self.schema.oid,
            self.schema.identity.value,
            tuple(
                (
                    c.attnum,
                    c.name,
                    c.type_oid,
                    c.typmod,
                    c.nullable,
                    c.default_expression,
                    c.primary_key_ordinal,
                )
                for c in self.schema.columns
            ),
            self.replication_mask,
            self.identity_mask,
        )
        return hashlib.sha256(repr(shape).encode("utf-8", "surrogatepass")).hexdigest()[:32]

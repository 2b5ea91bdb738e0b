"""RELATION against the stored schema: where the runtime masks come from, and where drift shows.

pgoutput's RELATION names the replicated columns in attnum order but carries no attnum (Postgres manual, "Logical
Replication Message Formats"). The stored version has the attnums; both must tell the same story.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema, TableSchema


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """One column of RELATION; `is_key` is flag bit 1, "part of the key" (of the replica identity)."""

    name: str
    type_oid: int
    typmod: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationShape:
    """A decoded RELATION. `columns` are in the order of the tuples that follow."""

    oid: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeMismatch:
    """A column whose type differs; both sides as (type oid, typmod)."""

    name: str
    expected: tuple[int, int]
    got: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RelationMismatch:
    """How RELATION contradicts the stored version: drift.

    `unknown`: names the version does not have. `types`: columns of another type. `out_of_order`: known names that
    do not stand in attnum order, which only an unlogged exchange of names can cause.
    """

    unknown: tuple[str, ...] = ()
    types: tuple[TypeMismatch, ...] = ()
    out_of_order: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns concerned."""
        return (*self.unknown, *(t.name for t in self.types), *self.out_of_order)


def match_relation(schema: TableSchema, relation: RelationShape) -> ReplicatedTableSchema | RelationMismatch:
    """Lay RELATION over the stored version: masks by name, types cross-checked.

    The identity of RELATION wins over the stored one (it may change without a schema message), and under FULL every
    replicated column belongs to the old image. Raises `ValueError` when the oids differ.
    """
    if schema.oid != relation.oid:
        raise ValueError(f"RELATION of oid {relation.oid} laid over the schema of oid {schema.oid}")
    known = {column.name: column for column in schema.columns}
    mismatch = _mismatch(known, relation)
    if mismatch is not None:
        return mismatch
    seen = {column.name: column for column in relation.columns}
    full = relation.replica_identity is ReplicaIdentity.FULL
    return ReplicatedTableSchema(
        with_identity(schema, relation, {c.name: c.attnum for c in schema.columns}),
        tuple(c.name in seen for c in schema.columns),
        tuple(c.name in seen and (full or seen[c.name].is_key) for c in schema.columns),
    )


def with_identity(schema: TableSchema, relation: RelationShape, attnums: dict[str, int]) -> TableSchema:
    """The schema with RELATION's replica identity; `attnums` gives the attnum of each of its columns by name."""
    indexed = relation.replica_identity is ReplicaIdentity.INDEX
    keys = tuple(attnums[c.name] for c in relation.columns if indexed and c.is_key)
    return replace(schema, identity=relation.replica_identity, identity_attnums=keys)


def _mismatch(known: dict[str, ColumnSchema], relation: RelationShape) -> RelationMismatch | None:
    unknown = tuple(c.name for c in relation.columns if c.name not in known)
    found = [(c, known[c.name]) for c in relation.columns if c.name in known]
    types = tuple(
        TypeMismatch(c.name, (stored.type_oid, stored.typmod), (c.type_oid, c.typmod))
        for c, stored in found
        if (stored.type_oid, stored.typmod) != (c.type_oid, c.typmod)
    )
    attnums = [stored.attnum for _, stored in found]
    ordered = sorted(attnums)
    misplaced = tuple(c.name for (c, s), attnum in zip(found, ordered, strict=True) if s.attnum != attnum)
    if unknown or types or misplaced:
        return RelationMismatch(unknown, types, misplaced)
    return None

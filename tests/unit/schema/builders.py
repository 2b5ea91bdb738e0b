"""Short words for schemas in tests."""

from __future__ import annotations

from etl.lsn import Lsn, SnapshotId
from etl.schema.relation import RelationColumn, RelationShape
from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema, TableSchema

OID = 16412
INT4, INT8, TEXT, VARCHAR, NUMERIC, BOOL = 23, 20, 25, 1043, 1700, 16


def column(attnum: int, name: str, type_oid: int = TEXT, **fields: object) -> ColumnSchema:
    return ColumnSchema(name, attnum, type_oid, **fields)  # type: ignore[arg-type]


def table(*columns: ColumnSchema, **fields: object) -> TableSchema:
    return TableSchema(OID, "public", "orders", columns, **fields)  # type: ignore[arg-type]


def shown(*columns: ColumnSchema, hidden: tuple[int, ...] = (), **fields: object) -> ReplicatedTableSchema:
    """Everything replicated but the attnums in `hidden`."""
    schema = table(*columns, **fields)
    whole = ReplicatedTableSchema.all_columns(schema)
    mask = tuple(c.attnum not in hidden for c in schema.columns)
    identity = tuple(a and b for a, b in zip(mask, whole.identity_mask, strict=True))
    return ReplicatedTableSchema(schema, mask, identity)


def snapshot(commit: int, message: int = 0) -> SnapshotId:
    return SnapshotId(Lsn(commit), Lsn(message))


def relation(
    *columns: tuple[str, int] | tuple[str, int, int],
    key: tuple[str, ...] = ("id",),
    identity: ReplicaIdentity = ReplicaIdentity.DEFAULT,
) -> RelationShape:
    """RELATION with columns given as (name, type oid[, typmod])."""
    shaped = tuple(
        RelationColumn(c[0], c[1], c[2] if len(c) > 2 else -1, is_key=c[0] in key) for c in columns
    )
    return RelationShape(OID, "public", "orders", identity, shaped)

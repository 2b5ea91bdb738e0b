"""What changed between two versions of a table, keyed by attnum (contract, "The current diff rules")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from etl.schema.table import ColumnSchema, ReplicatedTableSchema


class Modification(StrEnum):
    """What may differ in one column. Only RENAME and DEFAULT become destination DDL; the rest is detected."""

    RENAME = "rename"
    DEFAULT = "default"
    NULLABILITY = "nullability"
    TYPE = "type"
    KEY = "key"


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column the old version did not replicate.

    `newly_published`: the attnum was there before and is only now part of the publication (or no longer generated),
    so the values of existing rows are unknown and no default may stand in for them.
    """

    column: ColumnSchema
    newly_published: bool = False


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """All modifications of one logical column, grouped."""

    old: ColumnSchema
    new: ColumnSchema
    modifications: frozenset[Modification]


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """The difference of two versions; lists are in attnum order. False when nothing differs.

    `identity_changed`: the replica identity or the columns that form the old-key image differ.
    `table_renamed`: schema or table name differ (outside the contract, reported only).
    """

    added: tuple[AddedColumn, ...] = ()
    removed: tuple[ColumnSchema, ...] = ()
    changed: tuple[ColumnChange, ...] = ()
    identity_changed: bool = False
    table_renamed: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.identity_changed or self.table_renamed)


def diff(old: ReplicatedTableSchema, new: ReplicatedTableSchema) -> SchemaDiff:
    """Compare the replicated columns of two versions of one table by attnum.

    A drop and re-add is a removal and an addition, for Postgres gives the new column a new attnum. Raises `ValueError`
    when the versions are of different tables.
    """
    if old.oid != new.oid:
        raise ValueError(f"versions of different tables: oid {old.oid} and {new.oid}")
    before = {c.attnum: c for c in old.columns}
    after = {c.attnum: c for c in new.columns}
    existed = {c.attnum for c in old.schema.columns}
    changes = (
        ColumnChange(before[attnum], column, _modifications(before[attnum], column))
        for attnum, column in after.items()
        if attnum in before
    )
    return SchemaDiff(
        added=tuple(
            AddedColumn(c, newly_published=attnum in existed or attnum <= old.schema.max_attnum)
            for attnum, c in after.items()
            if attnum not in before
        ),
        removed=tuple(c for attnum, c in before.items() if attnum not in after),
        changed=tuple(change for change in changes if change.modifications),
        identity_changed=_identity(old) != _identity(new),
        table_renamed=(old.schema.schema, old.schema.name) != (new.schema.schema, new.schema.name),
    )


def _modifications(old: ColumnSchema, new: ColumnSchema) -> frozenset[Modification]:
    differs = {
        Modification.RENAME: old.name != new.name,
        Modification.DEFAULT: old.default_expression != new.default_expression,
        Modification.NULLABILITY: old.nullable != new.nullable,
        Modification.TYPE: (old.type_oid, old.typmod) != (new.type_oid, new.typmod),
        Modification.KEY: old.primary_key_ordinal != new.primary_key_ordinal,
    }
    return frozenset(modification for modification, is_so in differs.items() if is_so)


def _identity(schema: ReplicatedTableSchema) -> tuple[str, tuple[int, ...]]:
    if schema.old_image_is_full:
        return schema.schema.identity.value, ()
    return schema.schema.identity.value, tuple(c.attnum for c in schema.identity_columns)

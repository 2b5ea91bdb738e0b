"""What changed from one version of a table's schema to the next, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etl.schema.diff import ColumnChange, Modification, diff
from etl.schema.table import ReplicatedTableSchema, TableSchema

ADD, DROP, TABLE, COPY = "add", "drop", "table", "copy"


@dataclass(frozen=True, slots=True)
class DescribedChange:
    """One change: `kind` is a `Modification` or one of the words above, `attnum` that of its column or 0.

    `text` tells defaults as they are; `public` is the same without any literal, for those who may see names only.
    """

    kind: str
    attnum: int
    text: str
    public: str


def describe_changes(previous: TableSchema | None, version: TableSchema) -> Sequence[DescribedChange]:
    """What is new in `version`; without a `previous` one it is the copy. Empty when no column changed."""
    if previous is None:
        return (_plain(COPY, 0, "initial copy"),)
    changes = diff(ReplicatedTableSchema.all_columns(previous), ReplicatedTableSchema.all_columns(version))
    told = [
        _plain(ADD, added.column.attnum, f"add {added.column.name} {added.column.type_name}")
        for added in changes.added
    ]
    told += [_plain(DROP, column.attnum, f"drop {column.name}") for column in changes.removed]
    for change in changes.changed:
        told += [_modification(change, kind) for kind in Modification if kind in change.modifications]
    if changes.table_renamed:
        told.append(_plain(TABLE, 0, f"table renamed to {version.qualified_name}"))
    if changes.identity_changed:
        told.append(_plain(TABLE, 0, f"replica identity {version.identity.name.lower()}"))
    return told


def _modification(change: ColumnChange, kind: Modification) -> DescribedChange:
    old, new = change.old, change.new
    match kind:
        case Modification.RENAME:
            text = f"rename {old.name} to {new.name}"
        case Modification.DEFAULT:
            before, after = old.default_expression or "none", new.default_expression or "none"
            return DescribedChange(
                kind, new.attnum, f"default of {new.name}: {before} → {after}", _default(change)
            )
        case Modification.NULLABILITY:
            text = f"{new.name} {'drops' if new.nullable else 'sets'} NOT NULL"
        case Modification.TYPE:
            text = f"type of {new.name}: {old.type_name} → {new.type_name}"
        case Modification.KEY:
            text = f"{new.name} {'joins' if new.primary_key_ordinal else 'leaves'} the primary key"
    return _plain(kind, new.attnum, text)


def _default(change: ColumnChange) -> str:
    if change.old.default_expression is None:
        return f"set the default of {change.new.name}"
    if change.new.default_expression is None:
        return f"drop the default of {change.new.name}"
    return f"change the default of {change.new.name}"


def _plain(kind: str, attnum: int, text: str) -> DescribedChange:
    return DescribedChange(kind, attnum, text, text)

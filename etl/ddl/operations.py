"""What a schema change is made of: operations on one destination table, and what is really there."""

from __future__ import annotations

from dataclasses import dataclass

from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema

#: Names of this form are ours while a rename waits for its final name (contract generation, decision on plan order).
TEMPORARY_COLUMN_PREFIX = "supabase_etl_ddl_tmp_column_"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drop the column that carries this attnum, by its present name."""

    attnum: int
    name: str


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give the column a new name; its data and identity tag stay."""

    attnum: int
    name: str
    new_name: str


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add a nullable column without a default, tagged with its attnum. Existing rows read NULL."""

    column: ColumnSchema


@dataclass(frozen=True, slots=True)
class SetDefault:
    """Install a literal default for future writes. `literal` was accepted by the destination's renderer."""

    column: ColumnSchema
    literal: DefaultLiteral


@dataclass(frozen=True, slots=True)
class DropDefault:
    """Remove the default that an earlier version installed."""

    attnum: int
    name: str


SchemaOperation = DropColumn | RenameColumn | AddColumn | SetDefault | DropDefault


@dataclass(frozen=True, slots=True)
class SkippedChange:
    """A detected source change that is not applied to the destination, and why."""

    attnum: int
    column: str
    change: str
    reason: str


@dataclass(frozen=True, slots=True)
class SchemaPlan:
    """Ordered operations from what is there to what should be: drops, renames, adds, defaults."""

    operations: tuple[SchemaOperation, ...]
    skipped: tuple[SkippedChange, ...] = ()


@dataclass(frozen=True, slots=True)
class ActualColumn:
    """A column as the destination describes it.

    `attnum` comes from the identity tag, None when untagged;
    `default` is the rendered default in the destination's own normal form, None when there is none.
    """

    name: str
    type: str
    attnum: int | None = None
    default: str | None = None


@dataclass(frozen=True, slots=True)
class ActualTable:
    """A destination table as it really is; metadata columns (prefix ``_etl_``) are left out of `columns`."""

    columns: tuple[ActualColumn, ...]

"""What a schema change is made of: operations on one destination table, and what is really there."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

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


def kind_of(operation: SchemaOperation) -> str:
    """The operation's kind, a metric label."""
    match operation:
        case DropColumn():
            return "drop_column"
        case RenameColumn():
            return "rename_column"
        case AddColumn():
            return "add_column"
        case SetDefault():
            return "set_default"
        case DropDefault():
            return "drop_default"


def words_of(operation: SchemaOperation) -> str:
    """The operation for people, without the literal it may carry."""
    match operation:
        case DropColumn(name=name):
            return f"drop {name}"
        case RenameColumn(name=name, new_name=new_name):
            return f"rename {name} to {new_name}"
        case AddColumn(column=column):
            return f"add {column.name}"
        case SetDefault(column=column):
            return f"set the default of {column.name}"
        case DropDefault(name=name):
            return f"remove the default of {name}"


class SkipReason(StrEnum):
    """Why a change is not applied, in a sentence for people; its name is a metric label."""

    NOT_LITERAL = "the default is not a literal"
    NOT_RENDERABLE = "the destination cannot render this default"
    NOT_SETTABLE = "the destination cannot set a default on an existing column"
    NOT_REMOVABLE = "the destination cannot remove a default"
    PUBLISHED_LATER = "the column was published later: the values of its existing rows are unknown"
    TYPE = "a change of type is not applied to the destination's column"
    NULLABILITY = "the destination's columns are nullable from the start"
    KEY = "the destination's table has no key constraint to change"

    @property
    def is_of_default(self) -> bool:
        """True for a reason why a default is not given to the destination."""
        return self not in {SkipReason.TYPE, SkipReason.NULLABILITY, SkipReason.KEY}


@dataclass(frozen=True, slots=True)
class SkippedChange:
    """A detected source change that is not applied to the destination, and why."""

    attnum: int
    column: str
    change: str
    reason: SkipReason


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

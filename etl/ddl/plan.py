"""From what a destination table really is to what it should be: an ordered, restartable plan.

The plan is a function of the present table and the target, not of what was done before: after a crash between any two
operations it is computed again and holds what is left. Its order is drops, renames, adds, defaults (contract
generation, "ordered plan"), so that a name is free before it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from etl.ddl.identify import Fold, Situation, identified, identify_by_name
from etl.ddl.model import RenderDefault, apply_operation
from etl.ddl.operations import (
    TEMPORARY_COLUMN_PREFIX,
    ActualColumn,
    ActualTable,
    AddColumn,
    DropColumn,
    DropDefault,
    RenameColumn,
    SchemaOperation,
    SchemaPlan,
    SetDefault,
    SkippedChange,
    SkipReason,
)
from etl.errors import DestinationTableError
from etl.schema.defaults import parse_default
from etl.schema.diff import Modification, SchemaDiff, diff
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

__all__ = ["PlanCapabilities", "RenderDefault", "apply_operation", "plan"]


class PlanCapabilities(Protocol):
    """What `plan` must know of a destination; `etl.destinations.base.Capabilities` has this shape."""

    @property
    def rename_column(self) -> bool:
        """Columns can be renamed in place."""

    @property
    def drop_column(self) -> bool:
        """Columns can be dropped."""

    @property
    def set_default(self) -> bool:
        """A literal default can be set on an existing column."""

    @property
    def drop_default(self) -> bool:
        """A default can be removed from an existing column."""

    @property
    def case_insensitive_names(self) -> bool:
        """Two names that differ only in case are one name."""


def plan(
    actual: ActualTable,
    target: ReplicatedTableSchema,
    previous: ReplicatedTableSchema | None,
    capabilities: PlanCapabilities,
    render_default: RenderDefault,
) -> SchemaPlan:
    """Plan the operations that turn `actual` into `target`: drops, renames, adds, defaults.

    `previous` is the version the destination had before the change. Without it every default is compared, only columns
    `target` knows may be dropped, and missing columns are added. Columns without a tag are left alone. Changes of type,
    nullability and key are listed as skipped, and so are defaults that are no literal or cannot be rendered.

    Raises `SchemaAmbiguousError` when `actual` is not explained by exactly one point on the way (a tag nobody knows or
    there twice, a column of both versions missing, a needed name held by an untagged column, no tags and no unique
    match), `DestinationTableError` when the destination cannot make the change.
    """
    fold: Fold = str.lower if capabilities.case_insensitive_names else str
    _require_distinct(target, fold)
    situation = Situation(actual, target, previous, fold)
    if not any(column.attnum is not None for column in actual.columns):
        way = _way(target, previous, capabilities, render_default)
        situation = replace(situation, actual=identify_by_name(situation, way))
    columns = identified(situation)
    changes = diff(previous, target) if previous is not None else None
    shape = _shape(situation, columns)
    _require_capable(shape, target, capabilities)
    defaults, skipped = _defaults(columns, target, changes, capabilities, render_default)
    return SchemaPlan((*shape, *defaults), (*_uninterpreted(changes), *skipped))


def _way(
    target: ReplicatedTableSchema,
    previous: ReplicatedTableSchema | None,
    capabilities: PlanCapabilities,
    render_default: RenderDefault,
) -> Iterator[ActualTable]:
    """The states a plan from `previous` to `target` passes through; the target alone without `previous`."""
    start = target if previous is None else previous
    state = ActualTable(tuple(ActualColumn(c.name, c.type_name, c.attnum) for c in start.columns))
    yield state
    if previous is None or not state.columns:
        return
    for operation in plan(state, target, previous, capabilities, render_default).operations:
        state = apply_operation(state, operation, render_default)
        yield state


def _shape(situation: Situation, columns: Mapping[int, ActualColumn]) -> list[SchemaOperation]:
    """Drops, renames and adds.

    No engine drops a table's only column: when nothing would be left, one column is dropped after the adds, and makes
    way for them under its temporary name.
    """
    actual, target, fold = situation.actual, situation.target, situation.fold
    wanted = {column.attnum: column for column in target.columns}
    adds = [column for attnum, column in wanted.items() if attnum not in columns]
    drops = sorted(attnum for attnum in columns if attnum not in wanted)
    last = [drops.pop()] if drops and len(drops) == len(actual.columns) else []
    names = {attnum: column.name for attnum, column in columns.items() if attnum not in drops}
    foreign = {fold(column.name) for column in actual.columns if column.attnum is None}
    goals = {attnum: wanted[attnum].name for attnum in names if attnum in wanted}
    reserved = foreign | {fold(column.name) for column in target.columns}
    operations: list[SchemaOperation] = [DropColumn(attnum, columns[attnum].name) for attnum in drops]
    for attnum in last:
        if fold(names[attnum]) in reserved:
            goals[attnum] = _temporary(attnum, reserved, fold)
    operations += _renames(names, goals, reserved, fold)
    operations += [AddColumn(column) for column in adds]
    operations += [DropColumn(attnum, goals.get(attnum, names[attnum])) for attnum in last]
    return operations


def _renames(
    present: Mapping[int, str], goals: Mapping[int, str], reserved: set[str], fold: Fold
) -> Iterator[RenameColumn]:
    """Chains from their free end; a cycle is opened by a temporary name.

    Where names fold, a column that only changes the case of its name holds it against itself: some engines refuse
    that in one step, all take two.
    """
    names = dict(present)
    pending = {attnum for attnum, goal in goals.items() if names[attnum] != goal}
    while pending:
        held = {fold(name) for name in names.values()}
        free = next((attnum for attnum in sorted(pending) if fold(goals[attnum]) not in held), None)
        if free is None:
            attnum = min(pending)
            new_name = _temporary(attnum, held | reserved, fold)
        else:
            attnum, new_name = free, goals[free]
            pending.discard(attnum)
        yield RenameColumn(attnum, names[attnum], new_name)
        names[attnum] = new_name


def _temporary(attnum: int, taken: set[str], fold: Fold) -> str:
    name = f"{TEMPORARY_COLUMN_PREFIX}{attnum}"
    while fold(name) in taken:
        name += "_"
    return name


def _defaults(
    columns: Mapping[int, ActualColumn],
    target: ReplicatedTableSchema,
    changes: SchemaDiff | None,
    capabilities: PlanCapabilities,
    render_default: RenderDefault,
) -> tuple[list[SchemaOperation], list[SkippedChange]]:
    """Defaults of new columns and changed ones, held against what is installed."""
    operations: list[SchemaOperation] = []
    skipped = [] if changes is None else [_unfillable(c.column) for c in changes.added if c.newly_published]
    for column in _touched(target, changes):
        installed = columns[column.attnum].default if column.attnum in columns else None
        operation, reason = _default(column, installed, capabilities, render_default)
        if operation is not None:
            operations.append(operation)
        if reason is not None:
            skipped.append(_skipped_default(column, reason))
    return operations, [skip for skip in skipped if skip is not None]


def _default(
    column: ColumnSchema,
    installed: str | None,
    capabilities: PlanCapabilities,
    render_default: RenderDefault,
) -> tuple[SchemaOperation | None, SkipReason | None]:
    """What to do about one default, and why it is not fully done. A stale default never stays where it can go."""
    literal = parse_default(column.default_expression, column.type_oid)
    rendered = render_default(column, literal) if literal is not None else None
    reason = None
    if column.default_expression is not None and literal is None:
        reason = SkipReason.NOT_LITERAL
    elif literal is not None and rendered is None:
        reason = SkipReason.NOT_RENDERABLE
    elif rendered != installed and rendered is not None and not capabilities.set_default:
        rendered, reason = None, SkipReason.NOT_SETTABLE
    if rendered == installed:
        return None, reason
    if literal is not None and rendered is not None:
        return SetDefault(column, literal), reason
    if capabilities.drop_default:
        return DropDefault(column.attnum, column.name), reason
    return None, reason or SkipReason.NOT_REMOVABLE


def skipped_defaults(
    schema: ReplicatedTableSchema, render_default: RenderDefault
) -> tuple[SkippedChange, ...]:
    """The defaults that a table does not have when it is created under `schema`."""
    skipped = []
    for column in schema.columns:
        literal = parse_default(column.default_expression, column.type_oid)
        if column.default_expression is not None and literal is None:
            skipped.append(_skipped_default(column, SkipReason.NOT_LITERAL))
        elif literal is not None and render_default(column, literal) is None:
            skipped.append(_skipped_default(column, SkipReason.NOT_RENDERABLE))
    return tuple(skipped)


def _touched(target: ReplicatedTableSchema, changes: SchemaDiff | None) -> list[ColumnSchema]:
    if changes is None:
        return list(target.columns)
    added = [addition.column for addition in changes.added if not addition.newly_published]
    return added + [c.new for c in changes.changed if Modification.DEFAULT in c.modifications]


def _unfillable(column: ColumnSchema) -> SkippedChange | None:
    if column.default_expression is None:
        return None
    return _skipped_default(column, SkipReason.PUBLISHED_LATER)


def _skipped_default(column: ColumnSchema, reason: SkipReason) -> SkippedChange:
    return SkippedChange(column.attnum, column.name, Modification.DEFAULT.value, reason)


def _uninterpreted(changes: SchemaDiff | None) -> list[SkippedChange]:
    """What the contract detects and does not apply."""
    reasons = {
        Modification.TYPE: SkipReason.TYPE,
        Modification.NULLABILITY: SkipReason.NULLABILITY,
        Modification.KEY: SkipReason.KEY,
    }
    return [
        SkippedChange(change.new.attnum, change.new.name, modification.value, reason)
        for change in (changes.changed if changes is not None else ())
        for modification, reason in reasons.items()
        if modification in change.modifications
    ]


def _require_distinct(target: ReplicatedTableSchema, fold: Fold) -> None:
    names: dict[str, str] = {}
    for column in target.columns:
        other = names.setdefault(fold(column.name), column.name)
        if other != column.name:
            raise DestinationTableError(
                f"columns {other} and {column.name} are one name to the destination",
                hint="rename one of them at the source, or leave it out of the publication",
                table=target.qualified_name,
            )


def _require_capable(
    operations: list[SchemaOperation], target: ReplicatedTableSchema, capabilities: PlanCapabilities
) -> None:
    refused = [
        f"{verb} {operation.name}"
        for kind, verb, able in (
            (DropColumn, "drop column", capabilities.drop_column),
            (RenameColumn, "rename column", capabilities.rename_column),
        )
        for operation in operations
        if isinstance(operation, kind) and not able
    ]
    if refused:
        raise DestinationTableError(
            f"the destination cannot {', '.join(refused)}",
            hint="make the change at the destination by hand and retry the table, or copy it again",
            table=target.qualified_name,
        )
    if not target.columns:
        raise DestinationTableError(
            "the source table has no replicated column left",
            hint="take the table out of the publication, or give it a column",
            table=target.qualified_name,
        )

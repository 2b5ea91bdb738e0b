"""Which attnum each column of a destination table is, or a refusal to guess.

Columns that etl creates carry their attnum as a tag. A table without any tag (made by another tool) is recognised only
when its names are those of exactly one point on the way from the previous version to the target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from etl.ddl.operations import ActualColumn, ActualTable
from etl.errors import SchemaAmbiguousError
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

Fold = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Situation:
    """A table in the middle of a change: what is there, what it should become, what it was (None: unknown).

    `fold` makes two names equal that the destination takes for one.
    """

    actual: ActualTable
    target: ReplicatedTableSchema
    previous: ReplicatedTableSchema | None
    fold: Fold

    def ambiguous(self, cause: str) -> SchemaAmbiguousError:
        """The error that stops a table until a person decides: what is there, what was expected before and after."""
        there = ", ".join(
            f"{c.name} ({'untagged' if c.attnum is None else c.attnum})" for c in self.actual.columns
        )
        before = "unknown" if self.previous is None else _listed(self.previous.columns)
        return SchemaAmbiguousError(
            f"the destination table cannot be explained: {cause}; it has: {there or 'no column'}; "
            f"expected before: {before}; after: {_listed(self.target.columns)}",
            hint="nothing was changed and other tables go on; give the columns the names and comments "
            "(pg:<oid>.<attnum>) of one of the two and retry the table, or copy it again",
            table=self.target.qualified_name,
        )


def identify_by_name(situation: Situation, way: Iterable[ActualTable]) -> ActualTable:
    """Tag the columns of a table without tags.

    `way` are the tagged states a plan passes through, both ends included; only names are compared. Raises
    `SchemaAmbiguousError` unless all states with these names agree on their attnums: exchanged names, or a column
    dropped and added again, look alike before and after.
    """
    actual, fold = situation.actual, situation.fold
    present = {fold(column.name) for column in actual.columns}
    states = [{fold(column.name): column.attnum for column in state.columns} for state in way]
    candidates = [state for state in states if state.keys() == present]
    if len(present) < len(actual.columns) or not candidates:
        raise situation.ambiguous("no column has an identity tag and the names are those of no known state")
    if any(candidate != candidates[0] for candidate in candidates):
        raise situation.ambiguous("no column has an identity tag and the names fit more than one state")
    return ActualTable(tuple(replace(c, attnum=candidates[0][fold(c.name)]) for c in actual.columns))


def identified(situation: Situation) -> Mapping[int, ActualColumn]:
    """The tagged columns by attnum, once nothing is left unexplained. Raises `SchemaAmbiguousError` otherwise."""
    target, previous = situation.target, situation.previous
    columns: dict[int, ActualColumn] = {}
    for column in situation.actual.columns:
        if column.attnum in columns:
            twice = f"{columns[column.attnum].name} and {column.name}"
            raise situation.ambiguous(f"columns {twice} carry the same identity tag")
        if column.attnum is not None:
            columns[column.attnum] = column
    known = {c.attnum for s in (target, previous) if s is not None for c in s.schema.columns}
    strangers = [column.name for attnum, column in columns.items() if attnum not in known]
    if strangers:
        raise situation.ambiguous(f"no version knows the tags of columns {', '.join(strangers)}")
    before = {column.attnum for column in previous.columns} if previous is not None else set()
    lost = [c.name for c in target.columns if c.attnum in before and c.attnum not in columns]
    if lost:
        raise situation.ambiguous(f"columns {', '.join(lost)} of both versions are missing")
    untagged = {situation.fold(c.name) for c in situation.actual.columns if c.attnum is None}
    needed = [c.name for c in target.columns if situation.fold(c.name) in untagged]
    if needed:
        raise situation.ambiguous(f"columns without an identity tag hold the names {', '.join(needed)}")
    return columns


def _listed(columns: Iterable[ColumnSchema]) -> str:
    return ", ".join(f"{column.name} ({column.attnum})" for column in columns) or "no column"

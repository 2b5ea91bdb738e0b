"""A source table with a history and a destination that models what an engine does: the ground of the plan's tests."""

from __future__ import annotations

from dataclasses import dataclass, replace

from etl.ddl.operations import ActualColumn, ActualTable, SchemaOperation
from etl.ddl.plan import apply_operation, plan
from etl.schema.defaults import DefaultLiteral, LiteralKind, parse_default
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from tests.unit.schema.builders import shown


@dataclass(frozen=True)
class Abilities:
    rename_column: bool = True
    drop_column: bool = True
    set_default: bool = True
    drop_default: bool = True
    case_insensitive_names: bool = False


def render(column: ColumnSchema, literal: DefaultLiteral) -> str | None:
    """A dialect that has no booleans among its defaults, as some have not."""
    return None if literal.kind is LiteralKind.BOOLEAN else f"<{literal.text}>"


def wanted_default(column: ColumnSchema) -> str | None:
    literal = parse_default(column.default_expression, column.type_oid)
    return None if literal is None else render(column, literal)


def created(schema: ReplicatedTableSchema) -> ActualTable:
    """The table as a destination creates it: tagged, with the defaults it can render."""
    return ActualTable(
        tuple(ActualColumn(c.name, c.type_name, c.attnum, wanted_default(c)) for c in schema.columns)
    )


def untagged(actual: ActualTable) -> ActualTable:
    return ActualTable(tuple(replace(c, attnum=None) for c in actual.columns))


def names(actual: ActualTable) -> dict[int | None, str]:
    return {c.attnum: c.name for c in actual.columns}


def executed(
    actual: ActualTable, operations: tuple[SchemaOperation, ...], abilities: Abilities = Abilities()
) -> ActualTable:
    """The table after the operations, each of which an engine must accept."""
    for operation in operations:
        actual = apply_operation(actual, operation, render)
        if abilities.case_insensitive_names:
            assert len({c.name.lower() for c in actual.columns}) == len(actual.columns)
    return actual


def planned(
    previous: ReplicatedTableSchema | None,
    target: ReplicatedTableSchema,
    actual: ActualTable | None = None,
    abilities: Abilities = Abilities(),
) -> tuple[SchemaOperation, ...]:
    """The operations from `previous` as created, or from `actual`."""
    if actual is None:
        assert previous is not None
        actual = created(previous)
    return plan(actual, target, previous, abilities, render).operations


# --- histories --------------------------------------------------------------------------------------------------------

Step = tuple[str, int, int]
KINDS = ("add", "drop", "rename", "swap", "rotate", "re-add", "default", "hide", "show")
NAMES = ("id", "a", "A", "b", "B", "c", "supabase_etl_ddl_tmp_column_2")
DEFAULTS = (None, "'x'::text", "'y'::text", "42", "now()", "true")


@dataclass
class Source:
    """Columns by attnum, as statements leave them. `distinct_case` keeps to names a folding engine can tell apart."""

    columns: dict[int, ColumnSchema]
    hidden: set[int]
    distinct_case: bool
    highest: int

    def run(self, steps: list[Step]) -> ReplicatedTableSchema:
        for kind, x, y in steps:
            self._step(kind, x, y)
        ordered = [self.columns[a] for a in sorted(self.columns)]
        return shown(*ordered, hidden=tuple(self.hidden), max_attnum=self.highest)

    def _free(self) -> list[str]:
        def key(name: str) -> str:
            return name.lower() if self.distinct_case else name

        used = {key(c.name) for c in self.columns.values()}
        return [n for n in NAMES if key(n) not in used]

    def _step(self, kind: str, x: int, y: int) -> None:
        free, attnums = self._free(), sorted(self.columns)
        one = attnums[x % len(attnums)]
        if kind == "add" and free:
            self._add(free[x % len(free)], DEFAULTS[y % len(DEFAULTS)])
        elif kind == "drop" and len(self._visible() - {one}) > 0:
            self._drop(one)
        elif kind == "re-add" and len(self._visible() - {one}) > 0:
            name = self.columns[one].name
            self._drop(one)
            self._add(name, DEFAULTS[y % len(DEFAULTS)])
        elif kind == "replace all":
            self.columns, self.hidden = {}, set()
            self._add(NAMES[x % len(NAMES)], None)
        elif kind == "rename" and free:
            self._change(one, name=free[y % len(free)])
        elif kind in {"swap", "rotate"}:
            self._rotate(attnums[: 2 if kind == "swap" else 3], x)
        elif kind == "default":
            self._change(one, default_expression=DEFAULTS[y % len(DEFAULTS)])
        elif kind == "hide" and len(self._visible() - {one}) > 0:
            self.hidden.add(one)
        elif kind == "show":
            self.hidden.discard(one)

    def _visible(self) -> set[int]:
        return set(self.columns) - self.hidden

    def _add(self, name: str, default: str | None) -> None:
        self.highest += 1
        self.columns[self.highest] = ColumnSchema(name, self.highest, 25, default_expression=default)

    def _drop(self, attnum: int) -> None:
        del self.columns[attnum]
        self.hidden.discard(attnum)

    def _change(self, attnum: int, **fields: object) -> None:
        self.columns[attnum] = replace(self.columns[attnum], **fields)  # type: ignore[arg-type]

    def _rotate(self, attnums: list[int], by: int) -> None:
        rotated = [self.columns[a].name for a in attnums]
        shift = by % len(attnums)
        for attnum, name in zip(attnums, rotated[shift:] + rotated[:shift], strict=True):
            self._change(attnum, name=name)


def new_source(*, distinct_case: bool) -> Source:
    columns = (
        ColumnSchema("id", 1, 25),
        ColumnSchema("a", 2, 25, default_expression="'x'::text"),
        ColumnSchema("c", 3, 25, default_expression="'y'::text"),
    )
    return Source({c.attnum: c for c in columns}, {3}, distinct_case, 3)

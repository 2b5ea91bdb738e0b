"""What an operation does to a table, as a pure function: shared by tests and in-memory destinations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from etl.ddl.operations import (
    ActualColumn,
    ActualTable,
    AddColumn,
    DropColumn,
    DropDefault,
    RenameColumn,
    SchemaOperation,
    SetDefault,
)
from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema

#: The default in a destination's own normal form, or None when it cannot be rendered safely.
RenderDefault = Callable[[ColumnSchema, DefaultLiteral], str | None]


def apply_operation(
    actual: ActualTable, operation: SchemaOperation, render_default: RenderDefault | None = None
) -> ActualTable:
    """The table after `operation`.

    Columns are found by name, as a database finds them, and must carry the operation's attnum. Without
    `render_default` a default's normal form is the literal's text. Raises `ValueError` for what no database would do:
    a name that is missing or taken, or the only column dropped.
    """
    match operation:
        case DropColumn():
            if len(actual.columns) == 1:
                raise ValueError(f"column {operation.name} is the only one and cannot be dropped")
            return _with(actual, operation.name, operation.attnum, None)
        case RenameColumn():
            column = _find(actual, operation.name, operation.attnum)
            _require_free(actual, operation.new_name)
            return _with(actual, column.name, operation.attnum, replace(column, name=operation.new_name))
        case AddColumn(column=added):
            _require_free(actual, added.name)
            column = ActualColumn(added.name, added.type_name, added.attnum)
            return ActualTable((*actual.columns, column))
        case SetDefault(column=target, literal=literal):
            text = literal.text if render_default is None else render_default(target, literal)
            column = replace(_find(actual, target.name, target.attnum), default=text)
            return _with(actual, target.name, target.attnum, column)
        case DropDefault():
            column = replace(_find(actual, operation.name, operation.attnum), default=None)
            return _with(actual, operation.name, operation.attnum, column)


def _find(actual: ActualTable, name: str, attnum: int) -> ActualColumn:
    for column in actual.columns:
        if column.name == name and column.attnum == attnum:
            return column
    raise ValueError(f"there is no column {name} of attnum {attnum}")


def _require_free(actual: ActualTable, name: str) -> None:
    if any(column.name == name for column in actual.columns):
        raise ValueError(f"there is a column {name} already")


def _with(actual: ActualTable, name: str, attnum: int, changed: ActualColumn | None) -> ActualTable:
    found = _find(actual, name, attnum)
    columns = (changed if column is found else column for column in actual.columns)
    return ActualTable(tuple(column for column in columns if column is not None))

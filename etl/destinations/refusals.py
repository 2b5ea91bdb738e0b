"""What every destination refuses of a table, in the same words: a table that is gone, names, keys without values."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from etl.ddl.operations import ActualColumn, ActualTable
from etl.destinations.base import DestinationTable
from etl.errors import DestinationTableError, DestinationTableLostError
from etl.schema.table import ReplicatedTableSchema


def table_gone(name: str) -> DestinationTableError:
    """The table is not where it was left; rows cannot be written as if it had been empty."""
    return DestinationTableLostError(
        "the destination table is gone, and its rows with it",
        hint="copy the table again: `etl tables resync`",
        table=name,
    )


def no_copy(table: DestinationTable) -> DestinationTableError:
    """Rows are copied, or a copy is finished, that was not begun."""
    return DestinationTableError(
        "no copy of this table has begun here", hint="begin the copy with `create_table`", table=table.name
    )


def copy_not_whole(table: DestinationTable, found: int, rows: int) -> DestinationTableError:
    """The copy does not hold what was written to it."""
    return DestinationTableError(
        f"its copy holds {found} rows, where {rows} were read from the source",
        hint="something else wrote to the copy, or took from it: copy the table again",
        table=table.name,
    )


def old_rows_do_not_fit(
    table: DestinationTable, old: ActualColumn, new: ActualColumn
) -> DestinationTableError:
    """A changelog keeps its rows, and a column of theirs has a new type that their values do not fit."""
    return DestinationTableError(
        f"column {new.name!r} is {new.type} now, and values of older rows of the log, {old.type}, do not fit it",
        hint="rename the destination table to keep it as an archive, then copy the table again",
        table=table.name,
    )


def refuse_columns(
    table: DestinationTable,
    schema: ReplicatedTableSchema,
    reserved: Iterable[str],
    same_name: Callable[[str], str],
    engine: str,
) -> dict[str, str]:
    """Refuse a schema without columns, and columns that are one name here or have a `reserved` one.

    `same_name` is what `engine` compares when it compares names. Returns what each of these names stands for.
    """
    if not schema.columns:
        raise DestinationTableError(
            "no column of the table is replicated",
            hint="a table without columns cannot be kept: publish at least one",
            table=table.name,
        )
    seen = {name: f"the metadata column {name}" for name in reserved}
    for column in schema.columns:
        key = same_name(column.name)
        if key in seen:
            raise DestinationTableError(
                f"column {column.name!r} and {seen[key]} have one name in {engine}, which ignores case",
                hint="rename one of the columns, or leave one out of the publication",
                table=table.name,
            )
        seen[key] = f"column {column.name!r}"
    return seen


def rows_without_key(actual: ActualTable, schema: ReplicatedTableSchema, quote: Callable[[str], str]) -> str:
    """The SQL condition of rows that have no value for a key column of `schema`; a column not there has none."""
    names = {column.attnum: column.name for column in actual.columns}
    lacks = [
        f"{quote(names[key.attnum])} IS NULL" if key.attnum in names else "true" for key in schema.key_columns
    ]
    return " OR ".join(lacks)


def key_without_values(table: DestinationTable, schema: ReplicatedTableSchema) -> DestinationTableError:
    """Rows are there that the key of `schema` could not address."""
    key = ", ".join(repr(column.name) for column in schema.key_columns)
    return DestinationTableError(
        f"rows from before the key changed have no value for it here: {key}",
        hint="copy the table again",
        table=table.name,
    )

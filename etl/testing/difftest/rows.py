"""Changes of rows, as lists of statements for one table."""

from __future__ import annotations

from collections.abc import Callable

from etl.testing.difftest.catalog import Column, Table
from etl.testing.difftest.chance import Chance

Operation = Callable[[Chance, Table], list[str]]


def insert(chance: Chance, table: Table) -> list[str]:
    """One row, or a few in one statement; columns with a default may be left to it."""
    columns = [
        column
        for column in table.writable
        if column.not_null or not (column.has_default and chance.happens(0.5))
    ]
    rows = [_row(chance, columns) for _ in range(chance.between(1, 4))]
    if not table.key and chance.happens(0.4):
        rows.append(rows[0])
    return [f"INSERT INTO {table.sql} ({_names(columns)}) VALUES {', '.join(rows)}"]


def update(chance: Chance, table: Table) -> list[str]:
    """A few rows get other values; most columns are left alone, and those stored out of line are not sent then."""
    columns = [column for column in table.writable if column.attnum not in table.fixed]
    if not table.takes_changes or not columns:
        return insert(chance, table)
    changed = chance.some(columns, chance.between(1, 2))
    values = ", ".join(f"{column.sql} = {chance.value(column)}" for column in changed)
    return [f"UPDATE {table.sql} SET {values} WHERE {_few(chance, table)}"]


def touch(chance: Chance, table: Table) -> list[str]:
    """A few rows are written as they are."""
    if not table.takes_changes:
        return insert(chance, table)
    column = chance.one(table.writable)
    return [f"UPDATE {table.sql} SET {column.sql} = {column.sql} WHERE {_few(chance, table)}"]


def move(chance: Chance, table: Table) -> list[str]:
    """One row gets another key, or another value of the column that filters and partitions go by."""
    unique = [column for column in table.writable if column.is_unique]
    others = [column for column in table.writable if column.name == "id" and not column.is_unique]
    if not table.takes_changes or not (unique or others):
        return update(chance, table)
    column = chance.one(unique + others)
    return [f"UPDATE {table.sql} SET {column.sql} = {chance.value(column)} WHERE {_few(chance, table, 1)}"]


def delete(chance: Chance, table: Table) -> list[str]:
    """A few rows go."""
    if not table.takes_changes:
        return insert(chance, table)
    return [f"DELETE FROM {table.sql} WHERE {_few(chance, table)}"]


def put_back(chance: Chance, table: Table) -> list[str]:
    """Rows are deleted and inserted again with the same keys."""
    if not table.takes_changes:
        return insert(chance, table)
    names = _names(table.writable)
    return [
        (
            f"CREATE TEMP TABLE difftest_gone ON COMMIT DROP AS SELECT {names} FROM {table.sql} WHERE {_few(chance, table)};"
            f" DELETE FROM {table.sql} WHERE {_few_of(table)} IN"
            f" (SELECT {_few_of(table)} FROM difftest_gone);"
            f" INSERT INTO {table.sql} ({names}) SELECT {names} FROM difftest_gone; DROP TABLE difftest_gone"
        )
    ]


def truncate(_: Chance, table: Table) -> list[str]:
    """All rows go at once."""
    return [f"TRUNCATE {table.sql}"]


def _few(chance: Chance, table: Table, most: int = 3) -> str:
    """A condition that holds for a few rows nobody else has locked, the same ones at every replay."""
    key = _key(table)
    order = ", ".join(column.sql for column in key) if key else "tableoid, ctid"
    # oids are other ones at every replay
    hashed = order if key else "ctid"
    which = f"hashtext(({hashed})::text) % {chance.between(2, 5)} = {chance.between(0, 1)}"
    limit = chance.between(1, most)
    return (
        f"({order}) IN (SELECT {order} FROM {table.sql} WHERE {which} ORDER BY {order} LIMIT {limit}"
        " FOR UPDATE SKIP LOCKED)"
    )


def _few_of(table: Table) -> str:
    """What tells rows apart, for a condition."""
    key = _key(table) or table.writable
    texts = ", ".join(f"coalesce({column.sql}::text, 'null')" for column in key)
    return f"({texts})"


def _key(table: Table) -> list[Column]:
    attnums = table.key or table.primary_key
    return [table.column(attnum) for attnum in attnums]


def _row(chance: Chance, columns: list[Column]) -> str:
    return "(" + ", ".join(chance.value(column) for column in columns) + ")"


def _names(columns: list[Column]) -> str:
    return ", ".join(column.sql for column in columns)

"""Changes of a table's schema, as lists of statements; each keeps book of what it did."""

from __future__ import annotations

from etl.testing.difftest.catalog import Column, Table, quoted
from etl.testing.difftest.chance import ADDED, Chance
from etl.testing.difftest.kinds import KINDS, VOLATILE
from etl.testing.difftest.ledger import noted
from etl.testing.difftest.rows import insert, touch

_MOST_COLUMNS = 10


def altered(table: Table, change: str, what: str = "alter", *, name: str | None = None) -> str:
    """The statement and the note of it, in one string: neither makes sense without the other."""
    now = table.sql if name is None else f"public.{quoted(name)}"
    return f"ALTER TABLE {table.sql} {change}; {noted(what, now)}"


def add_column(chance: Chance, table: Table) -> list[str]:
    """With a default or without, NOT NULL now and then."""
    if len(table.columns) >= _MOST_COLUMNS:
        return drop_column(chance, table)
    change = _added(chance, table)
    return [] if change is None else [altered(table, change)]


def drop_column(chance: Chance, table: Table) -> list[str]:
    """One that nothing depends on."""
    if not table.free:
        return add_column(chance, table)
    return [altered(table, f"DROP COLUMN {chance.one(table.free).sql}")]


def rename_column(chance: Chance, table: Table) -> list[str]:
    """Any but those that are looked for by name."""
    columns = [column for column in table.writable if column.name != "id"]
    name = chance.free_name(table)
    if not columns or name is None:
        return []
    statement = altered(table, f"RENAME COLUMN {chance.one(columns).sql} TO {quoted(name)}")
    # Postgres takes it for tables, too
    by = "ALTER MATERIALIZED VIEW" if chance.happens(0.1) and not table.is_partitioned else "ALTER TABLE"
    return [statement.replace("ALTER TABLE", by, 1)]


def pass_names_round(chance: Chance, table: Table) -> list[str]:
    """Two columns exchange their names, or three pass them round."""
    columns = chance.some(table.free, chance.between(2, 3))
    if len(columns) < 2:
        return []
    names = [column.sql for column in columns]
    steps = [(names[0], '"in between"'), *zip(names[1:], names, strict=False), ('"in between"', names[-1])]
    return [altered(table, f"RENAME COLUMN {old} TO {new}") for old, new in steps]


def replace_column(chance: Chance, table: Table) -> list[str]:
    """A column goes, and another one takes its name: a new one, or one that was there."""
    columns = chance.some(table.free, 2)
    if len(columns) < 2:
        return []
    gone, heir = columns
    if chance.happens(0.5):
        kind = gone.type if chance.happens(0.5) else chance.one(ADDED)
        new = f"ADD COLUMN {gone.sql} {kind}"
        if chance.happens(0.3):
            return [altered(table, f"DROP COLUMN {gone.sql}, {new}")]
        return [altered(table, f"DROP COLUMN {gone.sql}"), altered(table, new)]
    return [
        altered(table, f"DROP COLUMN {gone.sql}"),
        altered(table, f"RENAME COLUMN {heir.sql} TO {gone.sql}"),
    ]


def change_default(chance: Chance, table: Table) -> list[str]:
    """Set to a literal or an expression, or dropped."""
    columns = [c for c in table.writable if c.name != "id" and not c.is_unique]
    given = [c for c in columns if c.has_default]
    if not columns:
        return []
    if given and chance.happens(0.5):
        columns = given
    return [altered(table, _default_of(chance, chance.one(columns)))]


def several_at_once(chance: Chance, table: Table) -> list[str]:
    """Several subcommands in one statement."""
    if len(table.columns) >= _MOST_COLUMNS - 1 or len(table.free) < 2:
        return []
    gone, kept = chance.some(table.free, 2)
    added = _added(chance, table)
    parts = [*([added] if added else []), f"DROP COLUMN {gone.sql}", _default_of(chance, kept)]
    return [altered(table, ", ".join(parts))]


def change_nothing(chance: Chance, table: Table) -> list[str]:
    """A statement that is logged and changes no column."""
    return [altered(table, f"ALTER COLUMN {chance.one(table.columns).sql} SET STATISTICS 50")]


def change_nullability(chance: Chance, table: Table) -> list[str]:
    """NOT NULL comes, with a value for those that have none, or goes."""
    columns = [c for c in table.free if KINDS[c.type].values]
    if not columns:
        return []
    column = chance.one(columns)
    if column.not_null:
        return [altered(table, f"ALTER COLUMN {column.sql} DROP NOT NULL")]
    if not table.takes_changes:
        return []
    value = chance.one(KINDS[column.type].values)
    return [
        f"UPDATE {table.sql} SET {column.sql} = {value} WHERE {column.sql} IS NULL",
        altered(table, f"ALTER COLUMN {column.sql} SET NOT NULL"),
    ]


def change_type(chance: Chance, table: Table) -> list[str]:
    """To a wider type, under which every value stays what it was."""
    columns = [column for column in table.free if KINDS[column.type].wider]
    if not columns:
        return []
    column = chance.one(columns)
    kind = chance.one(KINDS[column.type].wider)
    return [altered(table, f"ALTER COLUMN {column.sql} TYPE {kind}", "type")]


def change_identity(chance: Chance, table: Table) -> list[str]:
    """The replica identity becomes another one."""
    if table.is_partitioned:
        return []
    if not table.primary_key:
        return [altered(table, "REPLICA IDENTITY FULL", "identity")]
    return [
        altered(table, f"REPLICA IDENTITY {chance.one(['FULL', 'DEFAULT', 'FULL', 'NOTHING'])}", "identity")
    ]


def change_key(chance: Chance, table: Table) -> list[str]:
    """The primary key moves to another unique column."""
    columns = [c for c in table.columns if c.is_unique and c.not_null and (c.attnum,) != table.primary_key]
    if not columns or not table.primary_key or table.is_partitioned or table.filter:
        return []
    to = chance.one(columns)
    # the unique index of the old key stays, so that it can come back
    return [
        (
            f"DO $$ DECLARE c name; BEGIN SELECT conname INTO c FROM pg_constraint WHERE contype = 'p'"
            f" AND conrelid = '{table.sql.replace(chr(39), chr(39) * 2)}'::regclass;"
            f" EXECUTE format('ALTER TABLE {table.sql.replace(chr(39), chr(39) * 2)} DROP CONSTRAINT %I', c); END $$;"
            f" ALTER TABLE {table.sql} ADD PRIMARY KEY ({to.sql}); {noted('key', table.sql)}"
        )
    ]


def rename_table(chance: Chance, table: Table) -> list[str]:
    """To a name that no table has had."""
    name = f"{table.name[:20]}_{chance.between(100, 999)}"
    return [altered(table, f"RENAME TO {quoted(name)}", "rename", name=name)]


def between_rows(chance: Chance, table: Table) -> list[str]:
    """Rows before, between and after a change, in one transaction."""
    change = chance.one([add_column, rename_column, replace_column, change_default, drop_column])
    return [*insert(chance, table), *touch(chance, table), *change(chance, table)]


def _added(chance: Chance, table: Table) -> str | None:
    name, kind = chance.free_name(table), chance.one(ADDED)
    if name is None:
        return None
    default = chance.default(kind) if chance.happens(0.6) else None
    if default in VOLATILE and not table.key:
        # each row older than the column has a value of its own, by which it cannot be found where it has none
        default = None
    given = "" if default is None else f" DEFAULT {default}"
    required = " NOT NULL" if default is not None and chance.happens(0.2) else ""
    return f"ADD COLUMN {quoted(name)} {kind}{given}{required}"


def _default_of(chance: Chance, column: Column) -> str:
    default = chance.default(column.type)
    if default is None or (column.has_default and chance.happens(0.5)):
        return f"ALTER COLUMN {column.sql} DROP DEFAULT"
    return f"ALTER COLUMN {column.sql} SET DEFAULT {default}"

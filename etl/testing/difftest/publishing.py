"""Changes of the publication, and of what is below a partitioned table. Nobody else has a transaction open meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from etl.testing.difftest.catalog import Table, quoted
from etl.testing.difftest.chance import Chance
from etl.testing.difftest.ledger import STAMP, noted
from etl.testing.difftest.rows import delete, insert
from etl.testing.harness import PUBLICATION

#: Chance, the table it is about, all tables → statements.
Change = Callable[[Chance, Table, Sequence[Table]], list[str]]


def take_out_or_put_in(chance: Chance, table: Table, tables: Sequence[Table]) -> list[str]:
    """Membership changes."""
    if not table.is_published:
        return [f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {table.sql}; {noted('publish', table.sql)}"]
    if sum(each.is_published for each in tables) < 2:
        return []
    out = f"ALTER PUBLICATION {PUBLICATION} DROP TABLE {table.sql}; {noted('publish', table.sql)}"
    if chance.happens(0.8):
        return [out]
    # no look of the pipeline sees it gone, and rows change meanwhile
    back = f"ALTER PUBLICATION {PUBLICATION} ADD TABLE {table.sql}; {noted('publish', table.sql)}"
    return [out, *insert(chance, table), *delete(chance, table), back]


def list_columns(chance: Chance, table: Table, tables: Sequence[Table]) -> list[str]:
    """The table gets another column list, or none again. All tables are set at once, or the one is put back in."""
    if not table.is_published or table.identity == "f":
        return []
    needed = {*table.key, *(c.attnum for c in table.columns if c.name in {STAMP, "id"}), *table.fixed}
    columns = [c for c in table.columns if c.attnum in needed or chance.happens(0.6)]
    names = "" if table.listed and chance.happens(0.4) else f" ({', '.join(c.sql for c in columns)})"
    ours = f"{table.sql}{names}{_where(table)}"
    noting = noted("list", table.sql)
    if chance.happens(0.5):
        others = [member(each) for each in tables if each.is_published and each.oid != table.oid]
        return [f"ALTER PUBLICATION {PUBLICATION} SET TABLE {', '.join([*others, ours])}; {noting}"]
    return [
        (
            f"ALTER PUBLICATION {PUBLICATION} DROP TABLE {table.sql};"
            f" ALTER PUBLICATION {PUBLICATION} ADD TABLE {ours}; {noting}"
        )
    ]


def filter_rows(chance: Chance, table: Table, tables: Sequence[Table]) -> list[str]:
    """The table gets another row filter, or none again."""
    column = next((c for c in table.columns if c.name == "id"), None)
    usable = column is not None and (table.identity == "f" or column.attnum in table.key)
    if not table.is_published or column is None or not usable:
        return []
    condition = "" if table.filter and chance.happens(0.4) else f" WHERE (id % 3 <> {chance.between(0, 2)})"
    others = [member(each) for each in tables if each.is_published and each.oid != table.oid]
    ours = f"{table.sql}{_listed(table)}{condition}"
    return [
        f"ALTER PUBLICATION {PUBLICATION} SET TABLE {', '.join([*others, ours])}; {noted('filter', table.sql)}"
    ]


def exchange_table_names(chance: Chance, table: Table, tables: Sequence[Table]) -> list[str]:
    """Two tables exchange their names, in one transaction or step by step."""
    others = [each for each in tables if each.oid != table.oid]
    if not others:
        return []
    other = chance.one(others)
    steps = [
        f'ALTER TABLE {table.sql} RENAME TO "in between"',
        f"ALTER TABLE {other.sql} RENAME TO {quoted(table.name)}; {noted('rename', table.sql)}",
        f'ALTER TABLE public."in between" RENAME TO {quoted(other.name)}; {noted("rename", other.sql)}',
    ]
    return ["; ".join(steps)] if chance.happens(0.5) else steps


def truncate_several(chance: Chance, _: Table, tables: Sequence[Table]) -> list[str]:
    """Several tables are emptied by one statement."""
    return [f"TRUNCATE {', '.join(table.sql for table in chance.some(tables, 3))}"]


def member(table: Table) -> str:
    """The table as a publication is told of it."""
    return f"{table.sql}{_listed(table)}{_where(table)}"


def _listed(table: Table) -> str:
    if table.listed is None:
        return ""
    return f" ({', '.join(quoted(table.column(attnum).name) for attnum in table.listed)})"


def _where(table: Table) -> str:
    return "" if table.filter is None else f" WHERE ({table.filter})"

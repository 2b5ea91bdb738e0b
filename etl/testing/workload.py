"""A seeded writer at the source: transactions that mix row changes of every kind with modelled schema changes.

Every table has another identity: a key, a key of two columns declared in another order, a unique index, none at all
(full rows, with duplicates), and a key beside values that are stored out of line. Every step is one transaction; it
reads the columns that are there now from the catalog, so it needs no memory of what was committed and can go on after
any failure, its own rollbacks among them.

The contract fills no existing row when a column is added, so a column that is added with a default is followed by an
update of all rows in the same transaction: source and destination are then equal to the last value.
"""

# ruff: noqa: S608 -- identifiers go through the composition API, values are this module's own literals
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

Connection = psycopg.Connection[tuple[Any, ...]]

_NAMES = ("alpha", "beta", "Gamma", "delta", "epsilon", "zeta", "eta x", "theta", "iota", "kappa")
_MOST_COLUMNS = 9
_BIG = 6000

#: Type → values as SQL, edge cases among them.
_VALUES: dict[str, tuple[str, ...]] = {
    "integer": ("0", "-1", "2147483647", "NULL"),
    "bigint": ("0", "-9223372036854775808", "9223372036854775807", "NULL"),
    "text": ("''", "'x'", "'Łódź 🦆'", "E'a\\tb\\nc\\\\d'", "'it''s'", "'NULL'", "NULL"),
    "numeric(12,2)": ("0.00", "-0.01", "9999999999.99", "NULL"),
    "boolean": ("true", "false", "NULL"),
    "date": ("'2026-01-01'", "'0001-01-01'", "NULL"),
    "timestamp with time zone": ("'2026-11-30 12:00:00.123456+05:30'", "'1970-01-01 00:00:00+00'", "NULL"),
    "jsonb": ("""'{"a": [1, null, "x"]}'""", "'null'", "'[]'", "NULL"),
    "integer[]": ("'{}'", "'{1,NULL,3}'", "NULL"),
}
_ADDABLE = tuple(_VALUES)
#: Type → defaults: literals that destinations may install, and expressions that they must not.
_DEFAULTS: dict[str, tuple[str, ...]] = {
    "integer": ("42", "-1", "length('abc')"),
    "bigint": ("0",),
    "text": ("'pending'", "'don''t'", "lower('USER')"),
    "numeric(12,2)": ("42.10",),
    "boolean": ("true",),
    "date": ("'2026-01-01'", "current_date"),
    "timestamp with time zone": ("'2026-01-01 12:30:00+00'", "now()"),
    "jsonb": ("""'{"enabled": true}'""",),
    "integer[]": ("ARRAY[1, 2]",),
}


@dataclass(frozen=True, slots=True)
class _Spec:
    """A table: its definition, and the attribute numbers of its identity, which stay through every rename."""

    name: str
    definition: str
    identity: tuple[int, ...]
    after: str = ""


@dataclass(frozen=True, slots=True)
class _Column:
    attnum: int
    name: str
    type: str
    has_default: bool


_SPECS = (
    _Spec("keyed", "id bigint PRIMARY KEY, alpha text, beta integer", (1,)),
    _Spec("paired", "alpha text, no bigint, id bigint, PRIMARY KEY (id, no)", (2, 3)),
    _Spec(
        "indexed",
        "alpha integer, id bigint NOT NULL UNIQUE, beta text",
        (2,),
        "ALTER TABLE {table} REPLICA IDENTITY USING INDEX {index}",
    ),
    _Spec(
        "keyless",
        "id bigint, alpha text, beta numeric(12,2)",
        (),
        "ALTER TABLE {table} REPLICA IDENTITY FULL",
    ),
    _Spec(
        "toasted",
        "id bigint PRIMARY KEY, body text, alpha jsonb",
        (1,),
        "ALTER TABLE {table} ALTER COLUMN body SET STORAGE EXTERNAL",
    ),
)


class _RollbackError(Exception):
    """The transaction is given up on purpose."""


class Workload:
    """One seeded stream of transactions over tables of its own, whose names begin with `prefix`."""

    def __init__(self, seed: int, prefix: str = "w", *, schema_changes: bool = True) -> None:
        self._random = random.Random(seed)  # noqa: S311 - made-up data
        self._prefix = prefix
        self._next_id = 0
        self._schema_changes = schema_changes
        #: Committed transactions and executed operations by name.
        self.counts: Counter[str] = Counter()

    @property
    def tables(self) -> tuple[str, ...]:
        """``schema.name`` of every table."""
        return tuple(f"public.{self._prefix}_{spec.name}" for spec in _SPECS)

    def create(self, connection: Connection) -> None:
        """Create the tables with a few rows each."""
        for spec in _SPECS:
            table = self._table(spec)
            connection.execute(_sql(f"CREATE TABLE {{}} ({spec.definition})", table))
            if spec.after:
                index = sql.Identifier(f"{self._prefix}_{spec.name}_id_key")
                connection.execute(sql.SQL(spec.after).format(table=table, index=index))
            for _ in range(3):
                self._insert(connection, spec)

    def step(self, connection: Connection) -> None:
        """One transaction, committed or, now and then, rolled back."""
        try:
            with connection.transaction():
                for _ in range(self._random.randint(1, 6)):
                    self._operation(connection)
                if self._random.random() < 0.1:
                    raise _RollbackError  # noqa: TRY301 - that is what it is for
            self.counts["transactions"] += 1
        except _RollbackError:
            self.counts["rolled back"] += 1

    def run(self, connection: Connection, transactions: int) -> None:
        """That many steps."""
        for _ in range(transactions):
            self.step(connection)

    def finish(self, connection: Connection) -> None:
        """A row for each table, so that its last schema change has come through: the next row carries it."""
        for spec in _SPECS:
            self._insert(connection, spec)

    # --- operations -----------------------------------------------------------------------------------------------

    def _operation(self, connection: Connection) -> None:
        spec = self._random.choice(_SPECS)
        changes: list[tuple[int, Callable[[Connection, _Spec], None]]] = [
            (30, self._insert),
            (22, self._update),
            (4, self._change_key),
            (10, self._delete),
            (1, self._truncate),
            (4, self._roll_back_to_savepoint),
        ]
        if self._schema_changes:
            changes += [
                (5, self._add_column),
                (3, self._drop_column),
                (4, self._rename_column),
                (2, self._rotate_names),
                (2, self._replace_column),
                (3, self._change_default),
                (2, self._several_at_once),
                (1, self._change_nothing),
            ]
        weights, operations = zip(*changes, strict=True)
        (chosen,) = self._random.choices(operations, weights)
        chosen(connection, spec)
        self.counts[chosen.__name__.strip("_")] += 1

    def _insert(self, connection: Connection, spec: _Spec) -> None:
        columns = self._columns(connection, spec)
        for _ in range(self._random.randint(1, 5)):
            values = [self._value(column, spec) for column in columns]
            self._execute(
                connection,
                "INSERT INTO {} ({}) VALUES (" + ", ".join(map(_literal, values)) + ")",
                self._table(spec),
                _names(columns),
            )

    def _update(self, connection: Connection, spec: _Spec) -> None:
        columns = [c for c in self._columns(connection, spec) if c.attnum not in spec.identity]
        # values stored out of line stay untouched more often than not, and are not sent then
        columns = [c for c in columns if c.name != "body" or self._random.random() < 0.3] or columns
        for column in self._random.sample(columns, min(len(columns), self._random.randint(1, 2))):
            self._execute(
                connection,
                f"UPDATE {{}} SET {{}} = {_literal(self._value(column, spec))} WHERE {self._some_rows()}",
                self._table(spec),
                sql.Identifier(column.name),
            )

    def _change_key(self, connection: Connection, spec: _Spec) -> None:
        if not spec.identity:
            self._update(connection, spec)
            return
        column = next(c for c in self._columns(connection, spec) if c.attnum == spec.identity[-1])
        name = sql.Identifier(column.name)
        self._execute(
            connection,
            "UPDATE {} SET {} = " + str(self._new_id()) + " WHERE ctid = (SELECT min(ctid) FROM {})",
            self._table(spec),
            name,
            self._table(spec),
        )

    def _delete(self, connection: Connection, spec: _Spec) -> None:
        self._execute(connection, f"DELETE FROM {{}} WHERE {self._some_rows()}", self._table(spec))

    def _truncate(self, connection: Connection, spec: _Spec) -> None:
        self._execute(connection, "TRUNCATE {}", self._table(spec))

    def _roll_back_to_savepoint(self, connection: Connection, spec: _Spec) -> None:
        try:
            with connection.transaction():
                self._insert(connection, spec)
                if self._schema_changes:
                    self._add_column(connection, spec)
                self._insert(connection, spec)
                raise _RollbackError  # noqa: TRY301 - that is what it is for
        except _RollbackError:
            return

    # --- schema changes -------------------------------------------------------------------------------------------

    def _add_column(self, connection: Connection, spec: _Spec) -> None:
        columns = self._columns(connection, spec)
        free = [name for name in _NAMES if name not in {column.name for column in columns}]
        if len(columns) >= _MOST_COLUMNS:
            self._drop_column(connection, spec)
            return
        kind = self._random.choice(_ADDABLE)
        # rows without a key are told apart by all they hold: an update that changes nothing writes nothing there
        default = self._default(kind) if spec.identity and self._random.random() < 0.5 else ""
        self._alter(connection, spec, f"ADD COLUMN {{}} {kind}{default}", self._random.choice(free))
        if default:
            self._touch_all(connection, spec)

    def _drop_column(self, connection: Connection, spec: _Spec) -> None:
        columns = self._changeable(connection, spec)
        if len(columns) > 1:
            self._alter(connection, spec, "DROP COLUMN {}", self._random.choice(columns).name)

    def _rename_column(self, connection: Connection, spec: _Spec) -> None:
        columns = self._columns(connection, spec)
        taken = {column.name for column in columns}
        column = self._random.choice([column for column in columns if column.name != "body"])
        free = self._random.choice([name for name in _NAMES if name not in taken])
        self._alter(connection, spec, "RENAME COLUMN {} TO {}", column.name, free)

    def _rotate_names(self, connection: Connection, spec: _Spec) -> None:
        """Two columns swap their names, or three pass them round."""
        columns = self._changeable(connection, spec)
        count = min(len(columns), self._random.randint(2, 3))
        names = [column.name for column in self._random.sample(columns, count)]
        if count < 2:
            return
        self._alter(connection, spec, "RENAME COLUMN {} TO {}", names[0], "in between")
        for old, new in zip(names[1:], names, strict=False):
            self._alter(connection, spec, "RENAME COLUMN {} TO {}", old, new)
        self._alter(connection, spec, "RENAME COLUMN {} TO {}", "in between", names[-1])

    def _replace_column(self, connection: Connection, spec: _Spec) -> None:
        """A column is dropped, and another one takes its name: a new one, or one that was there."""
        columns = self._changeable(connection, spec)
        if len(columns) < 2:
            return
        gone, heir = self._random.sample(columns, 2)
        self._alter(connection, spec, "DROP COLUMN {}", gone.name)
        if self._random.random() < 0.5:
            self._alter(connection, spec, f"ADD COLUMN {{}} {self._random.choice(_ADDABLE)}", gone.name)
        else:
            self._alter(connection, spec, "RENAME COLUMN {} TO {}", heir.name, gone.name)

    def _change_default(self, connection: Connection, spec: _Spec) -> None:
        columns = self._changeable(connection, spec)
        if not columns:
            return
        column = self._random.choice(columns)
        if column.has_default and self._random.random() < 0.5:
            self._alter(connection, spec, "ALTER COLUMN {} DROP DEFAULT", column.name)
        else:
            default = self._default(column.type).removeprefix(" DEFAULT ")
            self._alter(connection, spec, f"ALTER COLUMN {{}} SET DEFAULT {default}", column.name)

    def _several_at_once(self, connection: Connection, spec: _Spec) -> None:
        columns = self._columns(connection, spec)
        free = [name for name in _NAMES if name not in {column.name for column in columns}]
        changeable = self._changeable(connection, spec)
        if len(columns) >= _MOST_COLUMNS or len(changeable) < 2:
            return
        gone, kept = self._random.sample(changeable, 2)
        kind = self._random.choice(_ADDABLE)
        change = f"ADD COLUMN {{}} {kind}, DROP COLUMN {{}}, ALTER COLUMN {{}} SET{self._default(kept.type)}"
        self._alter(connection, spec, change, self._random.choice(free), gone.name, kept.name)

    def _change_nothing(self, connection: Connection, spec: _Spec) -> None:
        """Statements that log a schema message of the schema there already is."""
        column = self._random.choice(self._columns(connection, spec))
        self._alter(connection, spec, "ALTER COLUMN {} SET STATISTICS 50", column.name)

    def _touch_all(self, connection: Connection, spec: _Spec) -> None:
        first = self._columns(connection, spec)[0]
        name = sql.Identifier(first.name)
        self._execute(connection, "UPDATE {} SET {} = {}", self._table(spec), name, name)

    # --- small things ---------------------------------------------------------------------------------------------

    def _alter(self, connection: Connection, spec: _Spec, change: str, *names: str) -> None:
        self.counts["ALTER TABLE"] += 1
        self._execute(connection, "ALTER TABLE {} " + change, self._table(spec), *map(sql.Identifier, names))

    def _execute(self, connection: Connection, statement: str, *parts: sql.Composable) -> None:
        connection.execute(_sql(statement, *parts))

    def _columns(self, connection: Connection, spec: _Spec) -> list[_Column]:
        rows = connection.execute(
            "SELECT attnum, attname::text, format_type(atttypid, atttypmod), atthasdef FROM pg_attribute"
            " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            (f"public.{self._prefix}_{spec.name}",),
        ).fetchall()
        return [_Column(*row) for row in rows]

    def _changeable(self, connection: Connection, spec: _Spec) -> list[_Column]:
        """Columns that may be dropped or take another's name: neither identity nor the one stored out of line."""
        columns = self._columns(connection, spec)
        return [c for c in columns if c.attnum not in spec.identity and c.name != "body"]

    def _value(self, column: _Column, spec: _Spec) -> str:
        if column.attnum in spec.identity:
            return str(self._new_id())
        if column.name == "body" and self._random.random() < 0.7:
            return f"'{self._random.getrandbits(4 * _BIG):x}'"
        return self._random.choice(_VALUES[column.type])

    def _default(self, kind: str) -> str:
        return f" DEFAULT {_literal(self._random.choice(_DEFAULTS[kind]))}"

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def _some_rows(self) -> str:
        """A condition that holds for a few rows, whatever the columns are called."""
        at = self._random.randint(0, 6)
        return f"((ctid::text::point)[1])::int % 7 = {at}"

    def _table(self, spec: _Spec) -> sql.Identifier:
        return sql.Identifier("public", f"{self._prefix}_{spec.name}")


def _sql(statement: str, *parts: sql.Composable) -> sql.Composed:
    return sql.SQL(statement).format(*parts)


def _literal(text: str) -> Any:
    """SQL text whose braces are no placeholders."""
    return text.replace("{", "{{").replace("}", "}}")


def _names(columns: list[_Column]) -> sql.Composed:
    return sql.SQL(", ").join(sql.Identifier(column.name) for column in columns)

"""A warm `etl` with one fault planted in it from outside, named on the command line: what a tester is tested with.

    python -m tests.difftest.planted lost_delete

Each fault is small, and of a kind that a person could write.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

from etl.ddl.operations import AddColumn, DropDefault, RenameColumn, SchemaPlan, SetDefault
from etl.destinations import schema_applier, writer
from etl.destinations.duckdb import destination, keyless, mirror
from etl.destinations.duckdb.dialect import quote
from etl.lsn import Position
from etl.pgoutput import assembler
from etl.schema.message import SchemaMessage
from etl.testing import warm

PLANTS: dict[str, Callable[[], None]] = {}


def plant(function: Callable[[], None]) -> Callable[[], None]:
    PLANTS[function.__name__] = function
    return function


@plant
def lost_schema_message() -> None:
    """Of the schema messages of a run, only the first are taken in."""
    learn, seen = assembler.Assembler._learn, count(1)

    def overlooking(self: Any, out: Any, table: Any, message: SchemaMessage, snapshot_id: Any) -> None:
        if next(seen) < 3:
            learn(self, out, table, message, snapshot_id)

    assembler.Assembler._learn = overlooking  # type: ignore[method-assign]


@plant
def replay_doubles() -> None:
    """What is below the watermark is written once more."""
    writer.EventWriter._watermark = lambda *_: Position.ZERO  # type: ignore[method-assign]


@plant
def columns_by_name() -> None:
    """Names that exist on both sides are taken for the same column: an exchange of names goes unseen."""
    plan = schema_applier.plan

    def by_name(actual: Any, target: Any, previous: Any, *rest: Any) -> SchemaPlan:
        planned = plan(actual, target, previous, *rest)
        if {c.name for c in actual.columns} != {c.name for c in target.columns}:
            return planned
        kept = tuple(step for step in planned.operations if not isinstance(step, RenameColumn))
        return replace(planned, operations=kept)

    schema_applier.plan = by_name


@plant
def default_fills_old_rows() -> None:
    """A default that comes with a new column is given to the rows that are there."""
    execute = destination.DuckDBDestination.execute
    added: set[int] = set()

    def filling(self: Any, table: Any, operation: Any) -> None:
        execute(self, table, operation)
        if isinstance(operation, AddColumn):
            added.add(operation.column.attnum)
        if isinstance(operation, SetDefault) and operation.column.attnum in added:
            schema, name = table.name.split(".", 1)
            column = quote(operation.column.name)
            self._open.session.run(
                f"UPDATE {quote(schema)}.{quote(name)} SET {column} = DEFAULT WHERE {column} IS NULL"
            )

    destination.DuckDBDestination.execute = filling  # type: ignore[method-assign]


@plant
def lost_delete() -> None:
    """Of the keys that a batch deletes for good, the first is forgotten, now and then."""
    fold, seen = mirror.fold_by_key, count(1)

    def forgetting(run: Any, table: str) -> Any:
        folded = fold(run, table)
        if folded.gone.num_rows and not folded.returns[0] and next(seen) % 2 == 0:
            return replace(folded, gone=folded.gone.slice(1), returns=folded.returns[1:])
        return folded

    mirror.fold_by_key = forgetting


@plant
def unsent_value_is_null() -> None:
    """An unchanged value that was not sent becomes NULL."""
    fold = mirror.fold_by_key
    mirror.fold_by_key = lambda run, table: fold(replace(run, unchanged={}), table)


@plant
def stale_default() -> None:
    """A default that was dropped, or became an expression, stays."""
    plan = schema_applier.plan

    def keeping(*arguments: Any) -> SchemaPlan:
        planned = plan(*arguments)
        kept = tuple(step for step in planned.operations if not isinstance(step, DropDefault))
        return replace(planned, operations=kept)

    schema_applier.plan = keeping


@plant
def equal_rows_are_one() -> None:
    """Where rows have no key, deleting one of several equal ones deletes them all."""
    run = keyless._hits

    def greedy(session: Any, table: str, width: int, rows: str, names: tuple[str, str]) -> Any:
        wanted, name = names
        session.run(f"UPDATE temp.main.{wanted} SET copies = 1000", table=table)
        return run(session, table, width, rows, (wanted, name))

    keyless._hits = greedy


if __name__ == "__main__":
    PLANTS[sys.argv[1]]()
    warm.serve()

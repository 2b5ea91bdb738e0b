"""Initial copies, collected in a table of their own beside the one they replace once they are whole.

The side table stands in the schema of the table, under a reserved name. `finish` is one transaction: the old table goes,
the side table takes its name, registry, watermark and exact texts follow. Until then nobody sees a copied row, and what
a crash leaves is an old table as it was and a side table that the next copy replaces.

A changelog is never replaced: a copy that is finished adds its rows to the log. Where the source's columns have changed
since, the log takes the new ones, and a value of an old row goes to the column that its own has become.
"""

# ruff: noqa: S608 -- names go through `quote`
from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from etl.ddl.operations import ActualColumn
from etl.destinations.base import CopyBatch, DestinationTable, TableMode
from etl.destinations.duckdb import changelog
from etl.destinations.duckdb.catalog import COPY_PREFIX, Catalog
from etl.destinations.duckdb.changelog import METADATA_COLUMNS
from etl.destinations.duckdb.dialect import quote
from etl.destinations.duckdb.housekeeping import Housekeeping
from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import insert
from etl.destinations.naming import printable_name, split_name
from etl.destinations.refusals import copy_not_whole, no_copy, old_rows_do_not_fit
from etl.lsn import Position
from etl.schema.table import ReplicatedTableSchema


class Copies:
    """The copies under way. Every method is called inside a transaction; `begin` and `finish` by one thread at a time."""

    def __init__(
        self, session: Session, housekeeping: Housekeeping, catalog: Catalog, pipeline_id: int
    ) -> None:
        self._session = session
        self._housekeeping = housekeeping
        self._catalog = catalog
        self._pipeline_id = pipeline_id

    def begin(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """An empty side table, in place of one that an earlier copy left. Raises `DestinationTableError`."""
        self._catalog.check_schema(table, schema)
        self._catalog.refuse_foreign(table)
        self.abandon(table)
        self._catalog.create(self._side(table), schema)
        self._housekeeping.begin_copy(table, schema.qualified_name)
        log = self._log(table)
        if log is not None:
            self._refuse_lossy(table, log)

    def append(self, table: DestinationTable, schema: ReplicatedTableSchema, batch: CopyBatch) -> None:
        """Collect rows. Raises `DestinationTableError`."""
        if self._housekeeping.copying(table) is None:
            raise no_copy(table)
        shape = replace(self._catalog.shape(self._side(table)), table=table)
        rows = pa.Table.from_batches([batch.rows])
        if table.mode is TableMode.CHANGELOG:
            changelog.append_copy(self._session, shape, schema, rows)
        else:
            insert(self._session, shape, schema.columns, rows)
        exact = ((value.attnum, 0, value.row, value.text) for value in batch.unrepresentable)
        self._housekeeping.keep_exact(table.oid, exact, copied=True)

    def finish(self, table: DestinationTable, watermark: Position, rows: int) -> None:
        """Make the side table the table, or add its rows to the log. Raises `DestinationTableError`."""
        if self._housekeeping.copying(table) is None:
            raise no_copy(table)
        side, log = self._side(table), self._log(table)
        found = int(self._session.rows(f"SELECT count(*) FROM {self._catalog.sql_name(side)}")[0][0])
        if found != rows:
            raise copy_not_whole(table, found, rows)
        if log is not None and log.name == table.name and self._columns(log) == self._columns(side):
            target, source = self._catalog.sql_name(log), self._catalog.sql_name(side)
            self._session.run(f"INSERT INTO {target} BY NAME SELECT * FROM {source}", table=table.name)
            self._drop(side)
        else:
            if log is not None:
                self._take_in(log, side)
            old = self._housekeeping.registered(table)
            if old is not None:
                self._catalog.drop_named(old.schema, old.name)
            self._catalog.forget_shape(table)
            self._catalog.rename(side, split_name(table.name)[1])
        self._housekeeping.end_copy(table, keep_texts=log is not None)
        self._housekeeping.set_watermarks({table.oid: watermark})

    def abandon(self, table: DestinationTable) -> None:
        """Drop what was collected; no error when nothing was."""
        if self._housekeeping.copying(table) is not None:
            self._drop(self._side(table))
            self._housekeeping.forget_copy(table)

    def _side(self, table: DestinationTable) -> DestinationTable:
        """The table that collects rows. Where a copy under way will have another name, in the schema of that one."""
        under_way = self._housekeeping.copying(table)
        schema = under_way.schema if under_way is not None else split_name(table.name)[0]
        name = f"{COPY_PREFIX}{self._pipeline_id}_{table.oid}"
        return DestinationTable(table.oid, printable_name(schema, name), table.mode)

    def _drop(self, side: DestinationTable) -> None:
        self._catalog.forget_shape(side)
        self._catalog.drop_named(*split_name(side.name))

    # --- a changelog ----------------------------------------------------------------------------------------------

    def _log(self, table: DestinationTable) -> DestinationTable | None:
        """The changelog that is there already and stays; None also when somebody moved it away."""
        there = self._housekeeping.registered(table)
        both_logs = there is not None and there.mode is table.mode is TableMode.CHANGELOG
        if there is None or not both_logs or not self._housekeeping.is_complete(table):
            return None
        log = DestinationTable(table.oid, printable_name(there.schema, there.name), table.mode)
        return log if self._catalog.describe(log) is not None else None

    def _columns(self, table: DestinationTable) -> frozenset[ActualColumn]:
        return frozenset(self._catalog.shape(table).columns)

    def _kept(self, log: DestinationTable, side: DestinationTable) -> list[tuple[ActualColumn, ActualColumn]]:
        """Each column of the log that is still one, and what it has become."""
        new = {column.attnum: column for column in self._catalog.shape(side).columns}
        old = self._catalog.shape(log).columns
        return [(column, new[column.attnum]) for column in old if column.attnum in new]

    def _refuse_lossy(self, table: DestinationTable, log: DestinationTable) -> None:
        for old, new in self._kept(log, self._side(table)):
            if old.type != new.type and self._loses(log, old, new):
                raise old_rows_do_not_fit(table, old, new)

    def _loses(self, log: DestinationTable, old: ActualColumn, new: ActualColumn) -> bool:
        value = quote(old.name)
        lost = f"TRY_CAST(TRY_CAST({value} AS {new.type}) AS {old.type}) IS DISTINCT FROM {value}"
        return bool(
            self._session.rows(
                f"SELECT 1 FROM {self._catalog.sql_name(log)} WHERE {lost} LIMIT 1", table=log.name
            )
        )

    def _take_in(self, log: DestinationTable, side: DestinationTable) -> None:
        kept = self._kept(log, side)
        names = [*(quote(new.name) for _, new in kept), *METADATA_COLUMNS]
        values = [*(f"CAST({quote(old.name)} AS {new.type})" for old, new in kept), *METADATA_COLUMNS]
        self._session.run(
            f"INSERT INTO {self._catalog.sql_name(side)} ({', '.join(names)})"
            f" SELECT {', '.join(values)} FROM {self._catalog.sql_name(log)}",
            table=log.name,
        )

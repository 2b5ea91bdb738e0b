"""Initial copies, by copying threads: each works in a Spark session of its own.

The first copy of a table goes straight into it: nobody has an older one to read, and a second write of all rows would
cost as much as the first. It has no watermark until it is finished, so the next copy replaces what a crash leaves of it.

Beside a complete table, rows are collected in a table of ``_etl``. `finish` puts its rows and its schema in the place of
the old ones in *one* commit, which carries the watermark. So after a crash the table is the old one with the old watermark
or the new one with the new; the side table is dropped at the next opening, or replaced by the next copy.

A changelog is never replaced by a copy: its rows stay, and those of the copy are added in one commit. Where the source's
columns have changed since, the rows of the log are taken along into the copy, which then takes its place.
"""

# ruff: noqa: S608 -- names go through `quote`
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from etl.ddl.operations import ActualColumn
from etl.destinations.base import CopyBatch, DestinationTable, DistributedCopy, FinishedRange, TableMode
from etl.destinations.change_rows import METADATA
from etl.destinations.delta import append
from etl.destinations.delta.catalog import Catalog
from etl.destinations.delta.commits import Commits
from etl.destinations.delta.conform import not_held
from etl.destinations.delta.dialect import quote
from etl.destinations.delta.executors import RangeTask
from etl.destinations.delta.housekeeping import Housekeeping, Registered, copied
from etl.destinations.delta.lanes import OwnSessions
from etl.destinations.delta.places import RESERVED, Places
from etl.destinations.delta.session import Session
from etl.destinations.delta.shape import shaped
from etl.destinations.delta.storage import Folder
from etl.destinations.delta.writes import Write
from etl.destinations.naming import printable_name
from etl.destinations.refusals import copy_not_whole, old_rows_do_not_fit
from etl.errors import DestinationTableError
from etl.lsn import Position
from etl.schema.table import ReplicatedTableSchema


@dataclass(frozen=True, slots=True)
class Copies:
    """The copies under way. Thread-safe; of one table several threads at once call `append` and `append_ranges` only.

    `session` is used for reading alone.
    """

    session: Session
    sessions: OwnSessions
    housekeeping: Housekeeping
    catalog: Catalog
    commits: Commits
    places: Places
    pipeline_id: int

    def begin(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Make an empty table for the copy. Raises `DestinationTableError`."""
        if self._complete(table) is None:
            stamp = self.commits.stamp(table, created=True)
            self.catalog.create(self.sessions.get(), table, schema, stamp)
            self.commits.created(table)
            return
        self.catalog.check_schema(table, schema)
        self.catalog.refuse_foreign(table)
        side, log = self._side(table), self._log(table)
        self.housekeeping.drop_exact(copied(table.oid))
        self.catalog.create_empty(self.sessions.get(), side, schema, self.commits.stamp(side, created=True))
        self.commits.created(side)
        if log is not None:
            self._refuse_lossy(table, log, side)

    def append(self, table: DestinationTable, schema: ReplicatedTableSchema, batch: CopyBatch) -> None:
        """Add rows in a commit of their own. Raises `DestinationTableError`."""
        target, exact = self._target(table)
        rows = pa.Table.from_batches([batch.rows])
        known = [(value.attnum, 0, value.row, value.text) for value in batch.unrepresentable]
        lost = [(attnum, 0, row, text) for row, attnum, text in not_held(schema.columns, rows)]
        self.housekeeping.keep_exact(exact, known + lost)
        with _blaming(table):
            write = Write(self.sessions.get(), self.commits, self.catalog.shape(target), None)
            if table.mode is TableMode.CHANGELOG:
                append.append_copy(write, schema, rows)
            else:
                append.append(write, schema.columns, shaped(write.shape, schema.columns, rows))

    def append_ranges(
        self, table: DestinationTable, schema: ReplicatedTableSchema, copy: DistributedCopy
    ) -> list[FinishedRange]:
        """Have Spark's executors read ranges, and add their rows in one commit. Raises as `copy.read` does."""
        target, exact = self._target(table)
        session = self.sessions.get()
        with (
            _blaming(table),
            session.staging_folder() as folder,
            session.interruptible(_ranges_of(table.oid)),
        ):
            write = Write(session, self.commits, self.catalog.shape(target), None)
            task = RangeTask(copy.read, write.shape, schema, folder)
            staged = session.run(copy.numbers, min(copy.parallel, len(copy.numbers)), task)
            texts = [(attnum, 0, row, text) for each in staged for attnum, row, text in each.exact]
            self.housekeeping.keep_exact(exact, texts)
            with session.staged_files([each.file for each in staged], task.output) as view:
                append.insert(write, schema.columns, view, task.output.names)
        return [finished for each in staged for finished in each.finished]

    def interrupt_ranges(self, oid: int) -> None:
        """End every `append_ranges` of this table."""
        self.session.interrupt(_ranges_of(oid))

    def finish(self, table: DestinationTable, watermark: Position, rows: int) -> None:
        """Make the copy the table, or add its rows to the log. Raises `DestinationTableError`."""
        session, side = self.sessions.get(), self._side(table)
        old = self._complete(table)
        with _blaming(table):
            place = self._sql(table if old is None else side)
            found = int(session.rows(f"SELECT count(*) FROM {place}", table.name)[0][0])
        if found != rows:
            raise copy_not_whole(table, found, rows)
        if old is not None:
            self._swap(old, table, side, watermark)
        self.commits.set_watermark(session, table, watermark)
        if old is not None:
            self.housekeeping.take_over_exact(table.oid)
            self._drop(side)

    def abandon(self, table: DestinationTable) -> None:
        """Drop what was copied; no error when nothing was."""
        if self._complete(table) is not None:
            self.housekeeping.drop_exact(copied(table.oid))
            self._drop(self._side(table))
        else:
            self.drop(table)

    def drop(self, table: DestinationTable) -> None:
        """Drop the table with all that is stored about it, and a copy beside it."""
        self._drop(self._side(table))
        self.commits.forget(table)
        self.catalog.drop(table)

    def clean(self) -> None:
        """Drop what copies of earlier runs left beside their tables."""
        folder, namespace = self.places.housekeeping_folder, self.places.housekeeping_namespace()
        if folder is not None:
            names = Folder.at(folder).names()
        else:
            names = [row[1] for row in self.sessions.get().rows(f"SHOW TABLES IN {namespace}")]
        for name in names:
            if name.startswith(self._prefix):
                self.catalog.drop_named(printable_name(RESERVED, name))

    # --- details --------------------------------------------------------------------------------------------------

    @property
    def _prefix(self) -> str:
        return f"copy_{self.pipeline_id}_"

    def _target(self, table: DestinationTable) -> tuple[DestinationTable, int]:
        """Where the copied rows go, and under which oid their exact texts."""
        if self._complete(table) is None:
            return table, table.oid
        return self._side(table), copied(table.oid)

    def _side(self, table: DestinationTable) -> DestinationTable:
        name = printable_name(RESERVED, f"{self._prefix}{table.oid}")
        return DestinationTable(table.oid, name, table.mode)

    def _sql(self, table: DestinationTable) -> str:
        return self.places.table(table.name).sql

    def _complete(self, table: DestinationTable) -> Registered | None:
        """The complete table that is there, whatever its name: it has a watermark."""
        known = self.housekeeping.registered(table)
        if known is None or self.commits.watermark(table.oid, known.name) is None:
            return None
        return known

    def _swap(
        self, old: Registered, table: DestinationTable, side: DestinationTable, watermark: Position
    ) -> None:
        session, log = self.sessions.get(), self._log(table)
        if log is not None and log.name == table.name and self._columns(log) == self._columns(side):
            names = ", ".join([*(quote(column.name) for column in self._columns(log)), *METADATA.names])
            added = f"INSERT INTO {self._sql(log)} ({names}) SELECT {names} FROM {self._sql(side)}"
            self.commits.write(session, table, added, watermark)
            return
        if log is not None:
            self._take_in(log, side)
        if old.name != table.name:
            self.commits.forget(DestinationTable(old.oid, old.name))
            self.catalog.create_like(session, table, side, self.commits.stamp(table, created=True))
            self.commits.created(table)
        self.commits.replace(session, table, side, watermark)
        self.catalog.forget_shape(table)
        if log is None:
            self.housekeeping.drop_exact(table.oid)

    def _drop(self, side: DestinationTable) -> None:
        self.commits.forget(side)
        self.catalog.forget_shape(side)
        self.catalog.drop_named(side.name)

    # --- a changelog ----------------------------------------------------------------------------------------------

    def _log(self, table: DestinationTable) -> DestinationTable | None:
        """The changelog that is there already and stays; None also when somebody moved it away."""
        there = self._complete(table)
        if there is None or not (there.mode is table.mode is TableMode.CHANGELOG):
            return None
        log = DestinationTable(table.oid, there.name, table.mode)
        return log if self.catalog.describe(log) is not None else None

    def _columns(self, table: DestinationTable) -> frozenset[ActualColumn]:
        return frozenset(self.catalog.shape(table).columns)

    def _kept(self, log: DestinationTable, side: DestinationTable) -> list[tuple[ActualColumn, ActualColumn]]:
        """Each column of the log that is still one, and what it has become."""
        new = {column.attnum: column for column in self.catalog.shape(side).columns}
        old = self.catalog.shape(log).columns
        return [(column, new[column.attnum]) for column in old if column.attnum in new]

    def _refuse_lossy(self, table: DestinationTable, log: DestinationTable, side: DestinationTable) -> None:
        for old, new in self._kept(log, side):
            if old.type != new.type and self._loses(log, old, new):
                raise old_rows_do_not_fit(table, old, new)

    def _loses(self, log: DestinationTable, old: ActualColumn, new: ActualColumn) -> bool:
        value = quote(old.name)
        same = f"try_cast(try_cast({value} AS {new.type}) AS {old.type}) <=> {value}"
        try:
            lost = self.sessions.get().rows(
                f"SELECT 1 FROM {self._sql(log)} WHERE NOT ({same}) LIMIT 1", log.name
            )
        except DestinationTableError:
            # a cast that there is none of
            return True
        return bool(lost)

    def _take_in(self, log: DestinationTable, side: DestinationTable) -> None:
        kept = self._kept(log, side)
        names = [*(quote(new.name) for _, new in kept), *METADATA.names]
        values = [*(f"CAST({quote(old.name)} AS {new.type})" for old, new in kept), *METADATA.names]
        self.commits.write(
            self.sessions.get(),
            side,
            f"INSERT INTO {self._sql(side)} ({', '.join(names)})"
            f" SELECT {', '.join(values)} FROM {self._sql(log)}",
            None,
        )


def _ranges_of(oid: int) -> str:
    return f"etl-copy-{oid}"


@contextmanager
def _blaming(table: DestinationTable) -> Iterator[None]:
    """A fault of the side table is one of its table."""
    try:
        yield
    except DestinationTableError as error:
        error.table = table.name
        raise

"""The schema ``_etl`` in the database: who owns it, how far each table is, which table is whose.

It is part of every transaction that writes rows or schemas, so it is never ahead of them or behind.

- ``pipeline``: one row a pipeline: its epoch and the versions of what is stored here.
- ``progress``: the watermark per table; a table without a row has no complete copy.
- ``tables``: the name each source table has here. Two source tables never share one.
- ``unrepresentable``: the exact text of values that their column cannot hold (the column has NULL there).
- ``copies``: the copies under way: the name that each copied table will have here.
- ``copied_unrepresentable``: the exact texts of those copies.

**One writer.** A file has one process, so only this process can take ownership away from one of its own destinations: a
lock of the process keeps that apart from every commit, and in it a commit looks at the epoch. Nothing is written for it,
hence transactions of several threads never conflict over it.
"""

# ruff: noqa: S608 -- the names are constants and go through `quote`; values are parameters
from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from etl.destinations.base import DestinationTable, TableMode
from etl.destinations.duckdb.dialect import quote, same_name
from etl.destinations.duckdb.session import Session
from etl.destinations.naming import split_name
from etl.errors import DestinationFencedError, DestinationVersionError
from etl.lsn import ORDINAL_RULE, Lsn, Position

SCHEMA: Final = "_etl"
FORMAT_VERSION: Final = 1

_NAMES: Final = (
    "pipeline_id BIGINT, table_oid UINTEGER, schema_name VARCHAR, table_name VARCHAR, source_name VARCHAR,"
    " mode VARCHAR"
)
_TEXTS: Final = (
    "pipeline_id BIGINT, table_oid UINTEGER, column_attnum SMALLINT, commit_lsn UBIGINT, ordinal UINTEGER,"
    " value VARCHAR"
)
_TABLES: Final = {
    "pipeline": "pipeline_id BIGINT, epoch BIGINT, format_version INTEGER, ordinal_rule INTEGER",
    "progress": "pipeline_id BIGINT, table_oid UINTEGER, commit_lsn UBIGINT, ordinal UINTEGER, epoch BIGINT",
    "tables": _NAMES,
    "unrepresentable": _TEXTS,
    "copies": _NAMES,
    "copied_unrepresentable": _TEXTS,
}

#: Held while an epoch is stored, and by every commit from its look at the epoch on.
_ownership: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Registered:
    """A table that a source table has here, or will have once its copy is complete."""

    schema: str
    name: str
    mode: TableMode


class Housekeeping:
    """One pipeline's rows in ``_etl``."""

    def __init__(self, session: Session, pipeline_id: int, epoch: int) -> None:
        self._session = session
        self._pipeline_id = pipeline_id
        self._epoch = epoch
        (
            self._pipeline,
            self._progress,
            self._tables,
            self._unrepresentable,
            self._copies,
            self._copied_unrepresentable,
        ) = (f"{quote(session.catalog)}.{SCHEMA}.{table}" for table in _TABLES)

    def take_ownership(self) -> None:
        """Create what is missing and store our epoch.

        Raises `DestinationVersionError` and `DestinationFencedError`.
        """
        with _ownership, self._session.transaction():
            self._session.run(f"CREATE SCHEMA IF NOT EXISTS {quote(self._session.catalog)}.{SCHEMA}")
            for table, columns in _TABLES.items():
                self._session.run(
                    f"CREATE TABLE IF NOT EXISTS {quote(self._session.catalog)}.{SCHEMA}.{table} ({columns})"
                )
            self.check_versions()
            stored = self._stored_epoch()
            if stored is None:
                self._session.run(
                    f"INSERT INTO {self._pipeline} VALUES (?, ?, ?, ?)",
                    (self._pipeline_id, self._epoch, FORMAT_VERSION, ORDINAL_RULE),
                )
                return
            self._refuse_newer(stored)
            self._session.run(
                f"UPDATE {self._pipeline} SET epoch = ? WHERE pipeline_id = ?",
                (self._epoch, self._pipeline_id),
            )

    def check_versions(self) -> None:
        """Refuse what a newer version wrote; a file without our schema is fine. Raises `DestinationVersionError`."""
        ours = "SELECT 1 FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? AND table_name = 'pipeline'"
        if not self._session.rows(ours, (self._session.catalog, SCHEMA)):
            return
        rows = self._session.rows(f"SELECT max(format_version), max(ordinal_rule) FROM {self._pipeline}")
        for stored, known, what in zip(
            rows[0], (FORMAT_VERSION, ORDINAL_RULE), ("format", "ordinal rule"), strict=True
        ):
            if stored is not None and stored > known:
                raise DestinationVersionError(
                    f"{self._session.path} was written with {what} {stored}; this version knows {known}",
                    hint="upgrade etl, or name another path",
                )

    def fence(self) -> None:
        """Raise `DestinationFencedError` when another owner's epoch is committed by now."""
        # the number stands in the text: this runs in every transaction, and preparing costs as much as executing
        rows = self._session.committed_rows(
            f"SELECT epoch FROM {self._pipeline} WHERE pipeline_id = {self._pipeline_id:d}"
        )
        stored = int(rows[0][0]) if rows else 0
        if stored != self._epoch:
            self._refuse_newer(stored, always=True)

    @contextmanager
    def committing(self) -> Iterator[None]:
        """What a COMMIT stands in: we are the owner, and nobody else becomes it meanwhile.

        Raises `DestinationFencedError`.
        """
        with _ownership:
            self.fence()
            yield

    def watermarks(self) -> dict[int, Position]:
        """Table oid → last position applied."""
        rows = self._session.rows(
            f"SELECT table_oid, commit_lsn, ordinal FROM {self._progress} WHERE pipeline_id = ?",
            (self._pipeline_id,),
        )
        return {oid: Position(Lsn(commit_lsn), ordinal) for oid, commit_lsn, ordinal in rows}

    def set_watermarks(self, positions: Mapping[int, Position]) -> None:
        """Store the watermarks of tables, by oid."""
        if not positions:
            return
        values = ", ".join(
            f"({oid:d}, {position.commit_lsn:d}::UBIGINT, {position.ordinal:d})"
            for oid, position in positions.items()
        )
        changed = self._session.run(
            f"UPDATE {self._progress} SET commit_lsn = v.commit_lsn, ordinal = v.ordinal, epoch = {self._epoch:d}"
            f" FROM (VALUES {values}) AS v(oid, commit_lsn, ordinal)"
            f" WHERE pipeline_id = {self._pipeline_id:d} AND table_oid = v.oid"
        )
        if changed != len(positions):
            self._session.run(
                f"INSERT INTO {self._progress} BY NAME SELECT {self._pipeline_id:d} AS pipeline_id, oid AS table_oid,"
                f" commit_lsn, ordinal, {self._epoch:d} AS epoch FROM (VALUES {values}) AS v(oid, commit_lsn, ordinal)"
                f" WHERE oid NOT IN (SELECT table_oid FROM {self._progress} WHERE pipeline_id = {self._pipeline_id:d})"
            )

    def is_complete(self, table: DestinationTable) -> bool:
        """Whether the table has a whole copy of its source table: it has a watermark."""
        return table.oid in self.watermarks()

    def other_owner(self, table: DestinationTable) -> str | None:
        """The source table, not `table`'s own, that has or is about to have its name here; None when it is free."""
        wanted = tuple(map(same_name, split_name(table.name)))
        columns = "pipeline_id, table_oid, schema_name, table_name, source_name"
        rows = self._session.rows(
            f"SELECT {columns} FROM {self._tables} UNION ALL SELECT {columns} FROM {self._copies}"
        )
        for pipeline_id, oid, schema, name, source in rows:
            is_own = (pipeline_id, oid) == (self._pipeline_id, table.oid)
            if not is_own and (same_name(schema), same_name(name)) == wanted:
                return f"{source} (oid {oid}, pipeline {pipeline_id})"
        return None

    def registered(self, table: DestinationTable) -> Registered | None:
        """The table that this source table has here, or None when it has none."""
        return self._registered(self._tables, table)

    def copying(self, table: DestinationTable) -> Registered | None:
        """What the copy of this source table that is under way will become, or None when none is."""
        return self._registered(self._copies, table)

    def begin_copy(self, table: DestinationTable, source_name: str) -> None:
        """Record the name of a table that is being copied."""
        self._session.run(
            f"INSERT INTO {self._copies} VALUES (?, ?, ?, ?, ?, ?)",
            (self._pipeline_id, table.oid, *split_name(table.name), source_name, table.mode.value),
        )

    def end_copy(self, table: DestinationTable, *, keep_texts: bool) -> None:
        """What was copied is the table from now on; of the exact texts so far, `keep_texts` or not."""
        ours = f"pipeline_id = {self._pipeline_id:d} AND table_oid = {table.oid:d}"
        moved = [(self._copies, self._tables), (self._copied_unrepresentable, self._unrepresentable)]
        for _, target in moved[: 1 if keep_texts else 2]:
            self._session.run(f"DELETE FROM {target} WHERE {ours}")
        for source, target in moved:
            self._session.run(f"INSERT INTO {target} SELECT * FROM {source} WHERE {ours}")
        self.forget_copy(table)

    def forget_copy(self, table: DestinationTable) -> None:
        """Remove everything stored about a copy under way."""
        self._delete(table, self._copies, self._copied_unrepresentable)

    def forget(self, table: DestinationTable) -> None:
        """Remove everything stored about a table that is complete."""
        self._delete(table, self._tables, self._progress, self._unrepresentable)

    def keep_exact(
        self, oid: int, values: Iterable[tuple[int, int, int, str]], *, copied: bool = False
    ) -> None:
        """Store exact texts: ``(attnum, commit_lsn, ordinal, text)`` each; `copied`: of a copy under way."""
        rows = list(values)
        if not rows:
            return
        attnums, lsns, ordinals, texts = zip(*rows, strict=True)
        columns = [
            pa.array(attnums, pa.int16()),
            pa.array(lsns, pa.uint64()),
            pa.array(ordinals, pa.uint32()),
            pa.array(texts, pa.string()),
        ]
        data = pa.table(columns, names=["attnum", "commit_lsn", "ordinal", "value"])
        with self._session.arrow("_etl_exact", data) as source:
            self._session.run(
                f"INSERT INTO {self._copied_unrepresentable if copied else self._unrepresentable} SELECT ?, ?, c0, c1, c2, c3 FROM {source}",
                (self._pipeline_id, oid),
            )

    def _registered(self, where: str, table: DestinationTable) -> Registered | None:
        rows = self._session.rows(
            f"SELECT schema_name, table_name, mode FROM {where} WHERE pipeline_id = ? AND table_oid = ?",
            (self._pipeline_id, table.oid),
        )
        return Registered(rows[0][0], rows[0][1], TableMode(rows[0][2])) if rows else None

    def _delete(self, table: DestinationTable, *places: str) -> None:
        for where in places:
            self._session.run(
                f"DELETE FROM {where} WHERE pipeline_id = ? AND table_oid = ?", (self._pipeline_id, table.oid)
            )

    def _stored_epoch(self) -> int | None:
        rows = self._session.rows(
            f"SELECT epoch FROM {self._pipeline} WHERE pipeline_id = ?", (self._pipeline_id,)
        )
        return int(rows[0][0]) if rows else None

    def _refuse_newer(self, stored: int, *, always: bool = False) -> None:
        if stored > self._epoch or always:
            raise DestinationFencedError(
                f"pipeline {self._pipeline_id} in {self._session.path} belongs to run {stored}, this is run {self._epoch}",
                hint="a newer process of this pipeline took over; stop this one",
            )

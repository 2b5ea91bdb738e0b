"""The schema ``_etl`` in the database: who owns it, how far each table is, which table is whose.

It is part of every transaction that writes rows or schemas, so it is never ahead of them or behind.

- ``pipeline``: one row a pipeline: its epoch and the versions of what is stored here.
- ``progress``: the watermark per table; a table without a row has no complete copy.
- ``tables``: the name each source table has here. Two source tables never share one.
- ``unrepresentable``: the exact text of values that their column cannot hold (the column has NULL there).
"""

# ruff: noqa: S608 -- the names are constants and go through `quote`; values are parameters
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import pyarrow as pa

from etl.destinations.base import DestinationTable
from etl.destinations.duckdb.dialect import quote, same_name
from etl.destinations.duckdb.session import Session
from etl.destinations.naming import split_name
from etl.errors import DestinationFencedError, DestinationVersionError
from etl.lsn import ORDINAL_RULE, Lsn, Position

SCHEMA: Final = "_etl"
FORMAT_VERSION: Final = 1

_TABLES: Final = {
    "pipeline": "pipeline_id BIGINT, epoch BIGINT, format_version INTEGER, ordinal_rule INTEGER",
    "progress": "pipeline_id BIGINT, table_oid UINTEGER, commit_lsn UBIGINT, ordinal UINTEGER, epoch BIGINT",
    "tables": (
        "pipeline_id BIGINT, table_oid UINTEGER, schema_name VARCHAR, table_name VARCHAR, source_name VARCHAR,"
        " mode VARCHAR"
    ),
    "unrepresentable": (
        "pipeline_id BIGINT, table_oid UINTEGER, column_attnum SMALLINT, commit_lsn UBIGINT, ordinal UINTEGER,"
        " value VARCHAR"
    ),
}


class Housekeeping:
    """One pipeline's rows in ``_etl``."""

    def __init__(self, session: Session, pipeline_id: int, epoch: int) -> None:
        self._session = session
        self._pipeline_id = pipeline_id
        self._epoch = epoch
        self._pipeline, self._progress, self._tables, self._unrepresentable = (
            f"{quote(session.catalog)}.{SCHEMA}.{table}" for table in _TABLES
        )

    def take_ownership(self) -> None:
        """Create what is missing and store our epoch.

        Raises `DestinationVersionError` and `DestinationFencedError`.
        """
        with self._session.transaction():
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
        """Make this transaction conflict with any other owner's. Raises `DestinationFencedError`."""
        # numbers stand in the text: this runs in every transaction, and preparing costs as much as executing
        mine = self._session.run(
            f"UPDATE {self._pipeline} SET epoch = epoch"
            f" WHERE pipeline_id = {self._pipeline_id:d} AND epoch = {self._epoch:d}"
        )
        if mine != 1:
            self._refuse_newer(self._stored_epoch() or 0, always=True)

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

    def other_owner(self, table: DestinationTable) -> str | None:
        """The source table, not `table`'s own, that already has its name here; None when it is free."""
        wanted = tuple(map(same_name, split_name(table.name)))
        rows = self._session.rows(
            f"SELECT pipeline_id, table_oid, schema_name, table_name, source_name FROM {self._tables}"
        )
        for pipeline_id, oid, schema, name, source in rows:
            is_own = (pipeline_id, oid) == (self._pipeline_id, table.oid)
            if not is_own and (same_name(schema), same_name(name)) == wanted:
                return f"{source} (oid {oid}, pipeline {pipeline_id})"
        return None

    def registered_name(self, table: DestinationTable) -> tuple[str, str] | None:
        """Schema and name of the table that this source table has here, or None when it has none."""
        rows = self._session.rows(
            f"SELECT schema_name, table_name FROM {self._tables} WHERE pipeline_id = ? AND table_oid = ?",
            (self._pipeline_id, table.oid),
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def register(self, table: DestinationTable, source_name: str) -> None:
        """Record the name of a table that is being created."""
        self._session.run(
            f"INSERT INTO {self._tables} VALUES (?, ?, ?, ?, ?, ?)",
            (self._pipeline_id, table.oid, *split_name(table.name), source_name, table.mode.value),
        )

    def forget(self, table: DestinationTable) -> None:
        """Remove everything stored about a table."""
        for where in (self._tables, self._progress, self._unrepresentable):
            self._session.run(
                f"DELETE FROM {where} WHERE pipeline_id = ? AND table_oid = ?", (self._pipeline_id, table.oid)
            )

    def keep_exact(self, oid: int, values: Iterable[tuple[int, int, int, str]]) -> None:
        """Store exact texts: ``(attnum, commit_lsn, ordinal, text)`` each."""
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
                f"INSERT INTO {self._unrepresentable} SELECT ?, ?, c0, c1, c2, c3 FROM {source}",
                (self._pipeline_id, oid),
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

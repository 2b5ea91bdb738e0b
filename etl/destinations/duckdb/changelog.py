"""Append every change of a table as a row of its changelog (`etl.destinations.change_rows`)."""

# ruff: noqa: S608 -- names go through `quote`; rows are Arrow columns
from __future__ import annotations

from typing import Final

import pyarrow as pa

from etl.destinations.change_rows import METADATA, change_rows, copied_rows
from etl.destinations.duckdb.dialect import type_of
from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import TableShape, staged
from etl.destinations.runs import JoinedRun
from etl.events import Truncate
from etl.schema.table import ReplicatedTableSchema

#: The columns that a changelog table has beside those of its source, and their types.
METADATA_COLUMNS: Final = {field.name: type_of(0, field.type) for field in METADATA}


def append_run(session: Session, shape: TableShape, run: JoinedRun) -> None:
    """Append the changes of a run in order. Raises `DestinationTableError`."""
    _append(session, shape, run.schema, change_rows(run))


def append_copy(session: Session, shape: TableShape, schema: ReplicatedTableSchema, rows: pa.Table) -> None:
    """Append copied rows. Raises `DestinationTableError`."""
    _append(session, shape, schema, copied_rows(rows))


def append_truncate(session: Session, shape: TableShape, truncate: Truncate) -> None:
    """Append that the table was emptied."""
    session.run(
        f"INSERT INTO {shape.sql} (_etl_op, _etl_commit_lsn, _etl_ordinal, _etl_commit_ts)"
        " VALUES ('truncate', ?, ?, make_timestamptz(?))",
        (int(truncate.position.commit_lsn), truncate.position.ordinal, truncate.timestamp),
        table=shape.table.name,
    )


def _append(session: Session, shape: TableShape, schema: ReplicatedTableSchema, values: pa.Table) -> None:
    with staged(session, shape, schema.columns, values) as rows:
        names = ", ".join([*rows.names, *METADATA_COLUMNS])
        session.run(
            f"INSERT INTO {shape.sql} ({names}) SELECT {', '.join([*rows.values, *rows.extra])}"
            f" FROM {rows.source} AS n",
            table=shape.table.name,
        )

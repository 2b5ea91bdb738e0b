"""Append every change of a table, with what it was and where it stood in the stream.

Each change is one row: an insert or update carries the new values, a delete those of the old image that was sent.
Values an update did not send (unchanged TOAST) are NULL and named in ``_etl_unchanged``. Copied rows have the
operation ``copy`` and stand at position zero.
"""

# ruff: noqa: S608 -- names go through `quote`; rows are Arrow columns
from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.destinations.duckdb.session import Session
from etl.destinations.duckdb.shape import TableShape, staged
from etl.destinations.runs import JoinedRun
from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, Truncate
from etl.schema.table import ReplicatedTableSchema

#: The columns that a changelog table has beside those of its source, and their types.
METADATA_COLUMNS: Final = {
    "_etl_op": "VARCHAR",
    "_etl_commit_lsn": "UBIGINT",
    "_etl_ordinal": "UINTEGER",
    "_etl_commit_ts": "TIMESTAMP WITH TIME ZONE",
    "_etl_unchanged": "VARCHAR[]",
}

_OPERATIONS: Final = {OP_INSERT: "insert", OP_UPDATE: "update", OP_DELETE: "delete"}
_NAMES: Final = pa.array(_OPERATIONS.values(), pa.string())
_PLACE_OF: Final = np.zeros(256, np.int8)
_PLACE_OF[list(_OPERATIONS)] = range(len(_OPERATIONS))


def append_run(session: Session, shape: TableShape, run: JoinedRun) -> None:
    """Append the changes of a run in order. Raises `DestinationTableError`."""
    metadata = [
        _NAMES.take(pa.array(_PLACE_OF[run.ops])),
        pa.array(run.commit_lsn, pa.uint64()),
        pa.array(run.ordinal, pa.uint32()),
        pa.array(run.commit_timestamp, pa.timestamp("us", tz="UTC")),
        _unchanged_names(run),
    ]
    _append(session, shape, run.schema, _values(run), metadata)


def append_copy(session: Session, shape: TableShape, schema: ReplicatedTableSchema, rows: pa.Table) -> None:
    """Append copied rows. Raises `DestinationTableError`."""
    count = rows.num_rows
    metadata = [
        pa.repeat(pa.scalar("copy"), count),
        pa.repeat(pa.scalar(0, pa.uint64()), count),
        pa.repeat(pa.scalar(0, pa.uint32()), count),
        pa.nulls(count, pa.timestamp("us", tz="UTC")),
        pa.nulls(count, pa.list_(pa.string())),
    ]
    _append(session, shape, schema, rows, metadata)


def append_truncate(session: Session, shape: TableShape, truncate: Truncate) -> None:
    """Append that the table was emptied."""
    session.run(
        f"INSERT INTO {shape.sql} (_etl_op, _etl_commit_lsn, _etl_ordinal, _etl_commit_ts)"
        " VALUES ('truncate', ?, ?, make_timestamptz(?))",
        (int(truncate.position.commit_lsn), truncate.position.ordinal, truncate.timestamp),
        table=shape.table.name,
    )


def _append(
    session: Session,
    shape: TableShape,
    schema: ReplicatedTableSchema,
    values: pa.Table,
    metadata: list[pa.Array],
) -> None:
    for name, column in zip(METADATA_COLUMNS, metadata, strict=True):
        values = values.append_column(name, column)
    with staged(session, shape, schema.columns, values) as rows:
        names = ", ".join([*rows.names, *METADATA_COLUMNS])
        session.run(
            f"INSERT INTO {shape.sql} ({names}) SELECT {', '.join([*rows.values, *rows.extra])}"
            f" FROM {rows.source} AS n",
            table=shape.table.name,
        )


def _values(run: JoinedRun) -> pa.Table:
    """The new values, or for deletes those of the old image."""
    if not run.is_delete.any():
        return run.new
    place = np.arange(len(run))
    place[run.is_delete] = len(run) + run.old_index[run.is_delete]
    return pa.concat_tables([run.new, run.old]).take(pa.array(place))


def _unchanged_names(run: JoinedRun) -> pa.Array:
    if not run.unchanged:
        return pa.nulls(len(run), pa.list_(pa.string()))
    names = list(run.unchanged)
    flags = np.column_stack([run.unchanged[name] for name in names])
    offsets = np.concatenate([[0], np.cumsum(flags.sum(axis=1))]).astype(np.int32)
    flat = pc.take(pa.array(names), pa.array(np.nonzero(flags)[1]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), flat)
    return pc.if_else(pa.array(flags.any(axis=1)), lists, pa.scalar(None, lists.type))

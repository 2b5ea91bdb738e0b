"""The rows of a changelog: every change of a table, with what it was and where it stood in the stream.

Each change is one row: an insert or update carries the new values, a delete those of the old image that was sent.
Values an update did not send (unchanged TOAST) are NULL and named in ``_etl_unchanged``. Copied rows have the
operation ``copy`` and stand at position zero.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl.destinations.runs import JoinedRun
from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, Truncate

#: What a changelog table has beside the columns of its source, and how it is carried.
METADATA: Final = pa.schema(
    {
        "_etl_op": pa.string(),
        "_etl_commit_lsn": pa.uint64(),
        "_etl_ordinal": pa.uint32(),
        "_etl_commit_ts": pa.timestamp("us", tz="UTC"),
        "_etl_unchanged": pa.list_(pa.string()),
    }
)

_OPERATIONS: Final = {OP_INSERT: "insert", OP_UPDATE: "update", OP_DELETE: "delete"}
_NAMES: Final = pa.array(_OPERATIONS.values(), pa.string())
_PLACE_OF: Final = np.zeros(256, np.int8)
_PLACE_OF[list(_OPERATIONS)] = range(len(_OPERATIONS))


def change_rows(run: JoinedRun) -> pa.Table:
    """One row per change in order: the run's columns, then those of `METADATA`."""
    metadata = [
        _NAMES.take(pa.array(_PLACE_OF[run.ops])),
        pa.array(run.commit_lsn, pa.uint64()),
        pa.array(run.ordinal, pa.uint32()),
        pa.array(run.commit_timestamp, pa.timestamp("us", tz="UTC")),
        _unchanged_names(run),
    ]
    return _with_metadata(_values(run), metadata)


def copied_rows(rows: pa.Table) -> pa.Table:
    """The rows of an initial copy with the columns of `METADATA` behind them."""
    count = rows.num_rows
    metadata = [
        pa.repeat(pa.scalar("copy"), count),
        pa.repeat(pa.scalar(0, pa.uint64()), count),
        pa.repeat(pa.scalar(0, pa.uint32()), count),
        pa.nulls(count, pa.timestamp("us", tz="UTC")),
        pa.nulls(count, pa.list_(pa.string())),
    ]
    return _with_metadata(rows, metadata)


def truncate_row(truncate: Truncate) -> pa.Table:
    """One row, columns of `METADATA` alone: the table was emptied."""
    values = {
        "_etl_op": "truncate",
        "_etl_commit_lsn": int(truncate.position.commit_lsn),
        "_etl_ordinal": truncate.position.ordinal,
        "_etl_commit_ts": truncate.timestamp,
    }
    return pa.table([pa.array([values.get(field.name)], field.type) for field in METADATA], schema=METADATA)


def _with_metadata(rows: pa.Table, metadata: list[pa.Array]) -> pa.Table:
    for name, column in zip(METADATA.names, metadata, strict=True):
        rows = rows.append_column(name, column)
    return rows


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

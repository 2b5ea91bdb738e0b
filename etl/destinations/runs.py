"""Several runs of one table joined into one, without copying the columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, RowChanges, Truncate, Unrepresentable
from etl.events.types import BoolArray
from etl.schema.table import ReplicatedTableSchema


@dataclass(frozen=True, slots=True)
class JoinedRun:
    """Consecutive runs of one table under one schema version; every field means what it means in `RowChanges`.

    `new` and `old` are tables whose chunks are the batches of the runs; `old` has m rows, 0 when no run had any.
    """

    schema: ReplicatedTableSchema
    ops: npt.NDArray[np.uint8]
    commit_lsn: npt.NDArray[np.uint64]
    ordinal: npt.NDArray[np.uint32]
    commit_timestamp: npt.NDArray[np.int64]
    new: pa.Table
    old: pa.Table
    old_index: npt.NDArray[np.int64]
    unchanged: Mapping[str, BoolArray]
    unrepresentable: tuple[Unrepresentable, ...]

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def is_insert(self) -> BoolArray:
        """Which of the n changes are inserts."""
        return _equal(self.ops, OP_INSERT)

    @property
    def is_update(self) -> BoolArray:
        """Which of the n changes are updates."""
        return _equal(self.ops, OP_UPDATE)

    @property
    def is_delete(self) -> BoolArray:
        """Which of the n changes are deletes."""
        return _equal(self.ops, OP_DELETE)

    @property
    def has_old(self) -> BoolArray:
        """Which of the n changes carry an old image."""
        return self.old_index >= 0


def join_runs(runs: Sequence[RowChanges]) -> JoinedRun:
    """Join runs in stream order; at least one, all under one schema version."""
    first = runs[0]
    starts = np.cumsum([0, *(len(run) for run in runs)])
    return JoinedRun(
        schema=first.schema,
        ops=np.concatenate([run.ops for run in runs]),
        commit_lsn=np.concatenate([run.commit_lsn for run in runs]),
        ordinal=np.concatenate([run.ordinal for run in runs]),
        commit_timestamp=np.concatenate([run.commit_timestamp for run in runs]),
        new=_table([run.new for run in runs], first.new.schema),
        old=_table([run.old for run in runs if run.old is not None], first.new.schema),
        old_index=_old_index(runs),
        unchanged=_unchanged(runs, starts),
        unrepresentable=tuple(
            Unrepresentable(u.row + int(start), u.attnum, u.text)
            for run, start in zip(runs, starts[:-1], strict=True)
            for u in run.unrepresentable
        ),
    )


def split_at_truncates(changes: Sequence[RowChanges | Truncate]) -> list[JoinedRun | Truncate]:
    """The same changes in order, with the runs between two truncates joined."""
    parts: list[JoinedRun | Truncate] = []
    pending: list[RowChanges] = []
    for change in changes:
        if isinstance(change, RowChanges):
            pending.append(change)
            continue
        if pending:
            parts.append(join_runs(pending))
            pending = []
        parts.append(change)
    if pending:
        parts.append(join_runs(pending))
    return parts


def _table(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(batches, schema)


def _equal(ops: npt.NDArray[np.uint8], op: int) -> BoolArray:
    equal: BoolArray = ops == op
    return equal


def _old_index(runs: Sequence[RowChanges]) -> npt.NDArray[np.int64]:
    offset = 0
    indices = []
    for run in runs:
        indices.append(np.where(run.old_index >= 0, run.old_index + offset, -1))
        offset += run.old.num_rows if run.old is not None else 0
    return np.concatenate(indices)


def _unchanged(runs: Sequence[RowChanges], starts: npt.NDArray[np.int64]) -> dict[str, BoolArray]:
    masks: dict[str, BoolArray] = {}
    for run, start in zip(runs, starts[:-1], strict=True):
        for name, mask in run.unchanged.items():
            if mask.any():
                whole = masks.setdefault(name, np.zeros(int(starts[-1]), np.bool_))
                whole[start : start + len(run)] = mask
    return masks

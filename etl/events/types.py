"""The ordered events of a pipeline. Rows travel as Arrow columns, one run per table and schema version.

A destination receives an ordered list of these. `Relation` is the only point where a table's schema changes:
rows before it belong to the old schema, rows after it to the new one (contract, "important public boundary").
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.lsn import Lsn, Position
from etl.schema.table import ReplicatedTableSchema

OP_INSERT = ord("I")
OP_UPDATE = ord("U")
OP_DELETE = ord("D")

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """A value its column type cannot hold; the column carries NULL and the exact text travels here.

    `row` is the index into the run, `attnum` the column, `text` the value exactly as Postgres printed it.
    """

    row: int
    attnum: int
    text: str


@dataclass(frozen=True, slots=True)
class Relation:
    """From `position` on, rows of this table are under `schema`. `position` is that of the first such row."""

    schema: ReplicatedTableSchema
    position: Position


@dataclass(frozen=True, slots=True)
class RowChanges:
    """A run of inserts, updates and deletes of one table under one schema version, in stream order.

    All arrays have n entries, one per change.

    - `ops`: uint8 of `OP_INSERT`, `OP_UPDATE`, `OP_DELETE`.
    - `commit_lsn` uint64, `ordinal` uint32, `commit_timestamp` int64 (µs since 1970-01-01 UTC).
    - `new`: one Arrow column per replicated column, named as in `schema.columns`; all NULL for a delete.
    - `old`: the old images that were sent, m <= n rows, same columns (a key image is NULL outside the identity
      columns), or None when there is none. `old_index` int64: the row in `old`, or -1.
    - `unchanged`: column name → bool mask of the rows whose value was not sent (unchanged TOAST) and could not be
      taken from the old image. The value in `new` is NULL there and must not be written.
    - `unrepresentable`: exact texts of values of `new` that its column cannot hold.
    """

    schema: ReplicatedTableSchema
    ops: npt.NDArray[np.uint8]
    commit_lsn: npt.NDArray[np.uint64]
    ordinal: npt.NDArray[np.uint32]
    commit_timestamp: npt.NDArray[np.int64]
    new: pa.RecordBatch
    old: pa.RecordBatch | None
    old_index: npt.NDArray[np.int64]
    unchanged: Mapping[str, BoolArray] = field(default_factory=dict)
    unrepresentable: tuple[Unrepresentable, ...] = ()

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def first(self) -> Position:
        """Position of the first change."""
        return Position(Lsn(int(self.commit_lsn[0])), int(self.ordinal[0]))

    @property
    def last(self) -> Position:
        """Position of the last change."""
        return Position(Lsn(int(self.commit_lsn[-1])), int(self.ordinal[-1]))

    @property
    def nbytes(self) -> int:
        """Bytes held by the Arrow columns."""
        return int(self.new.nbytes) + (int(self.old.nbytes) if self.old is not None else 0)

    def after(self, watermark: Position) -> RowChanges | None:
        """The changes above `watermark` (a replay drops the rest), or None when there are none."""
        lsn, ordinal = np.uint64(watermark.commit_lsn), np.uint32(watermark.ordinal)
        keep = (self.commit_lsn > lsn) | ((self.commit_lsn == lsn) & (self.ordinal > ordinal))
        if keep.all():
            return self
        start = int(keep.argmax()) if keep.any() else len(self)
        return self.slice(start) if start < len(self) else None

    def slice(self, start: int, stop: int | None = None) -> RowChanges:
        """The changes from `start` up to `stop`; positions only grow, so a slice is a range of the stream."""
        stop = len(self) if stop is None else stop
        return RowChanges(
            schema=self.schema,
            ops=self.ops[start:stop],
            commit_lsn=self.commit_lsn[start:stop],
            ordinal=self.ordinal[start:stop],
            commit_timestamp=self.commit_timestamp[start:stop],
            new=self.new.slice(start, stop - start),
            old=self.old,
            old_index=self.old_index[start:stop],
            unchanged={name: mask[start:stop] for name, mask in self.unchanged.items()},
            unrepresentable=tuple(
                Unrepresentable(u.row - start, u.attnum, u.text)
                for u in self.unrepresentable
                if start <= u.row < stop
            ),
        )


@dataclass(frozen=True, slots=True)
class Truncate:
    """TRUNCATE of one or several tables by one statement; `schemas` holds those we own."""

    schemas: tuple[ReplicatedTableSchema, ...]
    position: Position
    timestamp: int
    cascade: bool = False
    restart_identity: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """End of one or several transactions: everything before it in the list is complete.

    `commit_lsn` is the LSN of the last commit record, `end_lsn` the position after it (what Postgres is told is
    flushed), `timestamp` its commit time (µs since 1970-01-01 UTC), `transactions` how many ended since the last one.
    """

    commit_lsn: Lsn
    end_lsn: Lsn
    timestamp: int
    transactions: int = 1


Event = Relation | RowChanges | Truncate | Commit

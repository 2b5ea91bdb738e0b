"""Made-up changes as columns, the same for every engine, and what a table must hold after them.

A row's values follow from its id and from the number of the change that wrote it, so the expected table is known
without keeping any rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.events import OP_DELETE, OP_INSERT, OP_UPDATE, RowChanges
from etl.testing.builders import BOOL, INT4, INT8, JSONB, NUMERIC, TEXT, TIMESTAMPTZ, column, table_schema

Int64s = npt.NDArray[np.int64]

FLOAT8: Final = 701
SCHEMA: Final = table_schema(
    column("id", 1, INT8),
    column("n", 2, INT4),
    column("label", 3, TEXT),
    column("amount", 4, NUMERIC, typmod=(12 << 16 | 2) + 4),
    column("at", 5, TIMESTAMPTZ),
    column("doc", 6, JSONB),
    column("flag", 7, BOOL),
    column("score", 8, FLOAT8),
)
#: Rows of one batch of the initial copy, about what an 8 MiB block of COPY holds.
COPY_ROWS: Final = 100_000
_TRANSACTION: Final = 1_000
_UPDATES, _INSERTS = 0.6, 0.3
_HEX: Final = np.frombuffer(b"0123456789abcdef", np.uint8)


class Kind(StrEnum):
    """Which keys are changed: those of the newest rows, or any."""

    RECENT = "recent"
    UNIFORM = "uniform"


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch: the changes in stream order, and the same folded to one row per key.

    `net` has the table's columns and `op`: ``D`` (the id alone is set), ``U`` or ``I``.
    """

    changes: RowChanges
    net: pa.Table


@dataclass(frozen=True, slots=True)
class Sums:
    """A table in four numbers; `bound` ties ids to values."""

    rows: int
    ids: int
    cents: int
    bound: int

    #: SQL that yields these from a table ``t``; understood by every engine here.
    SQL = (
        "SELECT count(*), sum(id), cast(sum(amount) * 100 AS bigint),"
        " sum(cast(n AS bigint) * (id % 1000)) FROM t"
    )


class Model:
    """What the table holds, and batches that change it. The same arguments make the same batches."""

    def __init__(self, rows: int, kind: Kind, size: int, recent: int) -> None:
        self._alive: Int64s = np.arange(rows, dtype=np.int64)
        self._written: Int64s = np.zeros(rows, np.int64)
        self._random = np.random.default_rng([rows, size, kind is Kind.RECENT])
        self._window = min(recent, rows) if kind is Kind.RECENT else None
        self._size = size
        self._changes = 1

    def next(self) -> Batch:
        """60 % updates, 30 % inserts, 10 % deletes, mixed; a key may be updated several times."""
        inserts, updates = int(self._size * _INSERTS), int(self._size * _UPDATES)
        window = self._alive if self._window is None else self._alive[-self._window :]
        deleted = self._random.choice(
            len(window), self._size - inserts - updates, replace=False, shuffle=False
        )
        stays = np.ones(len(window), np.bool_)
        stays[deleted] = False
        updated = self._random.choice(window[stays], updates)
        first = len(self._written)
        born = np.arange(first, first + inserts)
        ids = np.concatenate([updated, born, window[deleted]])
        ops = np.repeat(
            np.array([OP_UPDATE, OP_INSERT, OP_DELETE], np.uint8), [updates, inserts, len(deleted)]
        )
        order = self._random.permutation(self._size)
        ids, ops = ids[order], ops[order]
        ids[ops == OP_INSERT] = born
        numbers = np.arange(self._changes, self._changes + self._size)
        self._apply(ids, ops, numbers, stays)
        return _batch(ids, ops, numbers)

    def expected(self) -> Sums:
        """The table after all batches so far."""
        written = self._written[self._alive]
        cents, n = _cents(self._alive, written), _n(self._alive, written)
        return Sums(
            len(self._alive), int(self._alive.sum()), int(cents.sum()), int((n * (self._alive % 1000)).sum())
        )

    def _apply(
        self, ids: Int64s, ops: npt.NDArray[np.uint8], numbers: Int64s, stays: npt.NDArray[np.bool_]
    ) -> None:
        written = ops != OP_DELETE
        self._written = np.append(self._written, np.zeros(int((ops == OP_INSERT).sum()), np.int64))
        self._written[ids[written]] = numbers[written]
        before = self._alive[: len(self._alive) - len(stays)]
        window = self._alive[len(before) :]
        self._alive = np.concatenate([before, window[stays], ids[ops == OP_INSERT]])
        self._changes += len(ids)


def copied(rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of the table before the first batch."""
    for start in range(0, rows, COPY_ROWS):
        ids = np.arange(start, min(start + COPY_ROWS, rows), dtype=np.int64)
        yield values(ids, np.zeros(len(ids), np.int64))


def values(ids: Int64s, written: Int64s) -> pa.RecordBatch:
    """Rows by id and by the number of the change that wrote them."""
    mixed = _mixed(ids, written)
    count = len(ids)
    decimals = np.zeros((count, 2), np.int64)
    decimals[:, 0] = _cents(ids, written)
    texts = pc.binary_join_element_wise('{"k": ', pc.cast(pa.array(ids), pa.string()), ', "tag": "x"}', "")
    columns = [
        pa.array(ids),
        pa.array(_n(ids, written).astype(np.int32)),
        _labels(mixed),
        pa.Array.from_buffers(pa.decimal128(12, 2), count, [None, pa.py_buffer(decimals)]),
        pa.array(1_700_000_000_000_000 + ids * 1000 + written, pa.timestamp("us", tz="UTC")),
        texts,
        pa.array((mixed & np.uint64(1)).astype(np.bool_)),
        pa.array(mixed.astype(np.float64) / 2**64),
    ]
    return pa.record_batch(columns, names=[c.name for c in SCHEMA.columns])


def _batch(ids: Int64s, ops: npt.NDArray[np.uint8], numbers: Int64s) -> Batch:
    deletes = ops == OP_DELETE
    rows = values(ids, numbers)
    new = rows.take(pa.array(np.arange(len(ids)), mask=deletes))
    gone = pa.array(ids[deletes])
    old = pa.record_batch(
        [gone, *(pa.nulls(len(gone), field.type) for field in list(rows.schema)[1:])], schema=rows.schema
    )
    old_index = np.where(deletes, np.cumsum(deletes) - 1, -1)
    transaction = (numbers - 1) // _TRANSACTION
    changes = RowChanges(
        schema=SCHEMA,
        ops=ops,
        commit_lsn=(0x1000 + transaction * 0x100).astype(np.uint64),
        ordinal=((numbers - 1) % _TRANSACTION + 1).astype(np.uint32),
        commit_timestamp=1_700_000_000_000_000 + transaction,
        new=new,
        old=old,
        old_index=old_index,
    )
    last = len(ids) - 1 - np.unique(ids[::-1], return_index=True)[1]
    leaving = pa.table([gone, *old.columns[1:]], schema=old.schema)
    staying = pa.Table.from_batches([new.take(pa.array(last[ops[last] != OP_DELETE]))])
    letters = np.append(
        np.where(ops[last[ops[last] != OP_DELETE]] == OP_INSERT, "I", "U"), np.repeat("D", len(gone))
    )
    net = pa.concat_tables([staying, leaving]).append_column("op", pa.array(letters, pa.string()))
    return Batch(changes, net.combine_chunks())


def _mixed(ids: Int64s, written: Int64s) -> npt.NDArray[np.uint64]:
    bits = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= written.astype(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F)
    bits ^= bits >> np.uint64(29)
    return bits * np.uint64(0xBF58476D1CE4E5B9)


def _n(ids: Int64s, written: Int64s) -> Int64s:
    return (ids * 31 + written * 17) % 1_000_003


def _cents(ids: Int64s, written: Int64s) -> Int64s:
    return (ids * 7919 + written * 104_729) % 10**9


def _labels(mixed: npt.NDArray[np.uint64]) -> pa.Array:
    """32 hexadecimal digits a row."""
    pairs = np.stack([mixed, ~mixed * np.uint64(0x94D049BB133111EB)], axis=1).view(np.uint8)
    digits = _HEX[np.stack([pairs >> 4, pairs & 15], axis=2)]
    ends = np.arange(0, 32 * (len(mixed) + 1), 32, dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(mixed), pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(digits))
    )

"""The rows of one range of a copy, converted as the stream converts them, until they are written as one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from etl.destinations.base import CopyBatch
from etl.events import Unrepresentable
from etl.pgoutput.values import convert
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.schema.types import TypeOptions
from etl.source.copy import TextBatch

#: Rows are given to the destination in pieces of about this size.
_BATCH_BYTES = 64 << 20


class CopiedRange:
    """Collects blocks of text; used by one thread. `rows` and `nbytes` count what was added, `held_bytes` what is there."""

    def __init__(self, schema: ReplicatedTableSchema, options: TypeOptions) -> None:
        self._schema = schema
        self._options = options
        self._blocks: list[CopyBatch] = []
        self.rows = 0
        self.nbytes = 0
        self.held_bytes = 0
        self.is_begun = False

    def add(self, block: TextBatch) -> None:
        """Convert a block. Raises `ValueConversionError`."""
        batch = converted(block, self._schema.columns, self._options)
        self._blocks.append(batch)
        self.rows += block.rows
        self.nbytes += block.nbytes
        self.held_bytes += batch.rows.nbytes

    def batches(self) -> Iterator[CopyBatch]:
        """Take the rows in few pieces: to most destinations every one is a commit. `is_begun` from then on."""
        blocks, self._blocks, self.held_bytes, self.is_begun = self._blocks, [], 0, True
        group: list[CopyBatch] = []
        size = 0
        for block in blocks:
            group.append(block)
            size += block.rows.nbytes
            if size >= _BATCH_BYTES:
                yield _joined(group)
                group, size = [], 0
        if group:
            yield _joined(group)


def converted(block: TextBatch, columns: Sequence[ColumnSchema], options: TypeOptions) -> CopyBatch:
    """A block of text in the types of its columns. Raises `ValueConversionError`."""
    arrays: list[pa.Array] = []
    unrepresentable: list[Unrepresentable] = []
    for text, column in zip(block.columns, columns, strict=True):
        values = convert(text, column.type_oid, column.typmod, options)
        arrays.append(values.array)
        unrepresentable += [
            Unrepresentable(row, column.attnum, exact) for row, exact in values.unrepresentable
        ]
    rows = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
    return CopyBatch(rows, tuple(unrepresentable))


def _joined(blocks: list[CopyBatch]) -> CopyBatch:
    if len(blocks) == 1:
        return blocks[0]
    unrepresentable: list[Unrepresentable] = []
    before = 0
    for block in blocks:
        unrepresentable += [
            Unrepresentable(value.row + before, value.attnum, value.text) for value in block.unrepresentable
        ]
        before += block.rows.num_rows
    return CopyBatch(pa.concat_batches([block.rows for block in blocks]), tuple(unrepresentable))

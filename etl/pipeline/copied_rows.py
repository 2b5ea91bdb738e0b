"""The rows of one range of a copy, converted as the stream converts them, until they are written as one."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from etl.destinations.base import CopyBatch
from etl.events import Unrepresentable
from etl.pgoutput.values import convert
from etl.schema.table import ReplicatedTableSchema
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
        arrays: list[pa.Array] = []
        unrepresentable: list[Unrepresentable] = []
        for text, column in zip(block.columns, self._schema.columns, strict=True):
            converted = convert(text, column.type_oid, column.typmod, self._options)
            arrays.append(converted.array)
            unrepresentable += [
                Unrepresentable(row, column.attnum, exact) for row, exact in converted.unrepresentable
            ]
        names = [column.name for column in self._schema.columns]
        rows = pa.RecordBatch.from_arrays(arrays, names=names)
        self._blocks.append(CopyBatch(rows, tuple(unrepresentable)))
        self.rows += block.rows
        self.nbytes += block.nbytes
        self.held_bytes += rows.nbytes

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

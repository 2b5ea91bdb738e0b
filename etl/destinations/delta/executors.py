"""Ranges of a copy read by Spark's executors: what runs there.

A task reads its ranges over a connection of its own and writes their rows, in the shape of the table, into a file of the
staging folder, which executors and daemon share. It returns what the daemon has to know of each range; a task that Spark
repeats writes another file, and only the files of tasks whose results arrived are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from etl.destinations.base import CopyBatch, FinishedRange, RangeReader, TableMode
from etl.destinations.change_rows import METADATA, copied_rows
from etl.destinations.delta.append import signed
from etl.destinations.delta.conform import not_held
from etl.destinations.delta.failures import marked
from etl.destinations.delta.shape import TableShape, natural_types, shaped
from etl.destinations.delta.storage import Folder
from etl.errors import EtlError
from etl.schema.table import ReplicatedTableSchema

#: Rows are written in groups of about this size.
_GROUP_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class StagedRanges:
    """What one task did. `exact` has ``(attnum, row, text)`` of values that Delta cannot hold; `file` has the rows."""

    file: str
    finished: tuple[FinishedRange, ...]
    exact: tuple[tuple[int, int, str], ...]


@dataclass(slots=True)
class _Range:
    rows: int = 0
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class RangeTask:
    """From the numbers of some ranges to what became of them. `folder` is the staging folder's address."""

    read: RangeReader
    shape: TableShape
    schema: ReplicatedTableSchema
    folder: str

    def __call__(self, numbers: Iterable[int]) -> Iterator[StagedRanges]:
        """Nothing for no numbers. Raises a `RuntimeError` that tells of the `EtlError`."""
        wanted = list(numbers)
        try:
            if wanted:
                yield self._staged(wanted)
        except EtlError as error:
            # raised without its cause, which may quote a value
            raise RuntimeError(marked(error)) from None

    @property
    def output(self) -> pa.Schema:
        """The columns of the files."""
        values = natural_types(self.shape, self.schema.columns)
        return pa.schema([*values, *signed(METADATA.empty_table()).schema] if self._is_changelog else values)

    @property
    def _is_changelog(self) -> bool:
        return self.shape.table.mode is TableMode.CHANGELOG

    def _staged(self, numbers: list[int]) -> StagedRanges:
        found = {number: _Range() for number in numbers}
        exact: list[tuple[int, int, str]] = []
        with _Groups(Folder.at(self.folder), self.output) as file:
            for block in self.read(numbers):
                known, rows = found[block.number], pa.Table.from_batches([block.batch.rows])
                exact += [
                    (attnum, known.rows + row, text) for attnum, row, text in self._lost(block.batch, rows)
                ]
                file.add(self._shaped(rows))
                known.rows += rows.num_rows
                known.nbytes += block.nbytes
        finished = [FinishedRange(number, each.rows, each.nbytes) for number, each in found.items()]
        return StagedRanges(file.address, tuple(finished), tuple(exact))

    def _lost(self, batch: CopyBatch, rows: pa.Table) -> Iterator[tuple[int, int, str]]:
        yield from ((value.attnum, value.row, value.text) for value in batch.unrepresentable)
        yield from ((attnum, row, text) for row, attnum, text in not_held(self.schema.columns, rows))

    def _shaped(self, rows: pa.Table) -> pa.Table:
        if self._is_changelog:
            return signed(shaped(self.shape, self.schema.columns, copied_rows(rows)))
        return shaped(self.shape, self.schema.columns, rows)


@dataclass(slots=True)
class _Groups:
    """A Parquet file of its own in a folder, written in groups of rows that are worth one."""

    folder: Folder
    schema: pa.Schema
    name: str = field(default_factory=lambda: f"{uuid4().hex}.parquet")
    _waiting: list[pa.Table] = field(default_factory=list)
    _size: int = 0
    _writer: pq.ParquetWriter | None = None

    @property
    def address(self) -> str:
        """As Spark names it."""
        return f"{self.folder.uri}/{self.name}"

    def __enter__(self) -> Self:
        with self.folder.errors():
            self._writer = pq.ParquetWriter(
                f"{self.folder.path}/{self.name}",
                self.schema,
                filesystem=self.folder.system,
                store_schema=False,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        if self._writer is not None:
            with self.folder.errors():
                self._writer.close()

    def add(self, rows: pa.Table) -> None:
        self._waiting.append(rows.cast(self.schema))
        self._size += rows.nbytes
        if self._size >= _GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        waiting, self._waiting, self._size = self._waiting, [], 0
        if waiting and self._writer is not None:
            with self.folder.errors():
                self._writer.write_table(pa.concat_tables(waiting))

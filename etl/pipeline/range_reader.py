"""Ranges of a copy read in another process: what a destination's workers are handed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from etl.destinations.base import RangeBlock
from etl.pipeline.copied_rows import converted
from etl.schema.table import ReplicatedTableSchema
from etl.schema.types import TypeOptions
from etl.source.copy import snapshot_connection
from etl.source.copy_plan import CopyRange
from etl.source.copy_range import read_range
from etl.source.publication import PublishedTable


@dataclass(frozen=True, slots=True)
class SnapshotRanges:
    """A `RangeReader`: reads over a connection of its own, under the snapshot that the daemon keeps.

    It goes to the workers as it is, secrets included, over the channel that they have for code. What `parameters` name as
    files must be there too.
    """

    parameters: Mapping[str, str] = field(repr=False)
    role: str
    snapshot: str
    table: PublishedTable
    schema: ReplicatedTableSchema
    parts: Mapping[int, CopyRange]
    options: TypeOptions

    def __call__(self, numbers: Iterable[int]) -> Iterator[RangeBlock]:
        """Raises `SnapshotOutdatedError`, other `SourceError`s and `ValueConversionError`."""
        with snapshot_connection(self.parameters, self.snapshot, self.role) as connection:
            for number in numbers:
                columns, part = self.schema.columns, self.parts[number]
                for block in read_range(connection, self.parameters, self.table, part, columns):
                    yield RangeBlock(number, converted(block, columns, self.options), block.nbytes)

"""The destination contract: two writes, one schema operation at a time, and a watermark kept with the rows.

A destination knows events and schemas, never the source. It is driven by `etl.destinations.writer.EventWriter`,
which drops what a replay repeats, flushes rows before a schema change and runs the Applying → Applied state machine,
and beside it by `etl.destinations.copy_writer.CopyWriter`; a destination itself only has to do what it is told,
atomically.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from etl.ddl.operations import ActualTable, SchemaOperation
from etl.lsn import Position
from etl.schema.defaults import DefaultLiteral
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from etl.events import RowChanges, Truncate, Unrepresentable


class TableMode(StrEnum):
    """How a table is kept: its current state, or every change appended."""

    MIRROR = "mirror"
    CHANGELOG = "changelog"


@dataclass(frozen=True, slots=True)
class DestinationTable:
    """One table at the destination. `name` is the destination's own printable name, unique per source table."""

    oid: int
    name: str
    mode: TableMode = TableMode.MIRROR


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a destination can do; differences are declared here, never special-cased by name.

    `transactional_ddl`: the operations of one plan and the watermark commit as one unit.
    `multi_table_transactions`: one write of several tables commits as one unit.
    `exact_old_rows`: tables without a key can be mirrored by full-row identity with multiplicity.
    `case_insensitive_names`: two names that differ only in case are one name.
    """

    transactional_ddl: bool
    multi_table_transactions: bool
    exact_old_rows: bool
    rename_column: bool = True
    drop_column: bool = True
    set_default: bool = True
    drop_default: bool = True
    case_insensitive_names: bool = False


@dataclass(frozen=True, slots=True)
class CopyBatch:
    """Rows of an initial copy: the replicated columns of the table's schema, and what they could not hold."""

    rows: pa.RecordBatch
    unrepresentable: tuple[Unrepresentable, ...] = ()


@dataclass(frozen=True, slots=True)
class RangeBlock:
    """Some rows of the range `number` of a copy; `nbytes`: what they were as text."""

    number: int
    batch: CopyBatch
    nbytes: int


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """A range whose rows are all at the destination."""

    number: int
    rows: int
    nbytes: int


#: Reads the ranges with these numbers, one after the other, in whatever process it is called: it can be pickled. It
#: raises `EtlError`.
RangeReader = Callable[[Iterable[int]], Iterator[RangeBlock]]


@dataclass(frozen=True, slots=True)
class DistributedCopy:
    """Ranges of a copy for the destination's own workers to read, `parallel` of them at once at most."""

    read: RangeReader
    numbers: range
    parallel: int


@dataclass(frozen=True, slots=True)
class TableChanges:
    """What one write does to one table, in order, all under one schema version."""

    table: DestinationTable
    changes: tuple[RowChanges | Truncate, ...]
    watermark: Position


class Destination(ABC):
    """Base of all destinations.

    **Threads.** Copying threads call `destination_table`, `check_schema`, `create_table`, `write_table_rows`,
    `finish_copy` and `abandon_copy`, several at once, also several `write_table_rows` of one table; of one table the
    others only one at a time. Meanwhile one thread, the apply worker's, calls everything else, for other tables than
    those. A copy holds up that thread for one short commit at most. `open` and `close` are called while no other call is
    under way.

    **Copies.** `create_table` begins a copy, `finish_copy` makes it the table, `abandon_copy` drops it. A table that is
    complete (it has a watermark) stays as it is, readable, until `finish_copy` replaces it by a copy that was found
    whole. A copy that nobody ends, because of a crash, is no obstacle: the next one of its table begins from nothing.

    Every method raises `etl.errors.DestinationError` subclasses only. A write that returns is durable. The `table` of a
    `DestinationTableError` is the `DestinationTable.name` at fault: the writer goes on without that table. After a
    `DestinationUnavailableError` nothing is known of the last write: close, open again and read `watermarks`.
    """

    name: str
    capabilities: Capabilities

    @abstractmethod
    def check(self) -> str:
        """Whether the destination can be opened, for the preflight; says what was found and changes no data.

        Raises `DestinationError` when it cannot. Not to be called while open.
        """

    @abstractmethod
    def open(self, pipeline_id: int, epoch: int) -> None:
        """Connect, create the housekeeping tables, and take ownership with `epoch`.

        Raises `DestinationFencedError` when a greater epoch is stored, `DestinationUnavailableError` when locked or
        unreachable, `DestinationVersionError` when written by a newer version. From here on every commit checks that
        the stored epoch is still ours.
        """

    @abstractmethod
    def close(self) -> None:
        """Release everything; idempotent."""

    @abstractmethod
    def destination_table(self, schema: ReplicatedTableSchema, mode: TableMode) -> DestinationTable:
        """The name this source table gets (pure). Two source tables never map to one name."""

    @abstractmethod
    def check_schema(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse a schema the destination cannot hold before any DDL.

        Case-colliding names, a name another table has, a key that existing rows lack. Raises `DestinationTableError`
        naming table and columns.
        """

    @abstractmethod
    def check_existing_rows(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Refuse a schema under which rows already there could not be addressed any more, before a schema change.

        So it is when the key becomes a column that these rows have no value for, because it was added after they were
        written. Raises `DestinationTableError`.
        """

    @abstractmethod
    def watermarks(self) -> Mapping[int, Position]:
        """Table oid → the last position applied, as committed."""

    @abstractmethod
    def describe(self, table: DestinationTable) -> ActualTable | None:
        """The table as it really is, or None when it does not exist."""

    @abstractmethod
    def render_default(self, column: ColumnSchema, literal: DefaultLiteral) -> str | None:
        """The default in this dialect's normal form, or None when it cannot be rendered safely (pure)."""

    @abstractmethod
    def create_table(self, table: DestinationTable, schema: ReplicatedTableSchema) -> None:
        """Begin a copy from nothing: what an earlier copy that was not finished left is dropped.

        A table of ours that is complete stays as it is, with its watermark; one that never was may be replaced at once.
        Every column of the copy is nullable, tagged ``pg:<oid>.<attnum>`` and free of constraints; literal defaults
        that can be rendered are installed.
        """

    @abstractmethod
    def drop_table(self, table: DestinationTable) -> None:
        """Drop the table, its watermark and a copy of it under way; no error when it is not there."""

    @abstractmethod
    def write_table_rows(
        self, table: DestinationTable, schema: ReplicatedTableSchema, batch: CopyBatch
    ) -> None:
        """Append rows to the copy; durable on return. Called only between `create_table` and `finish_copy`.

        Where there is a complete table, they are seen in it only after `finish_copy`.
        """

    @abstractmethod
    def finish_copy(self, table: DestinationTable, watermark: Position, rows: int) -> None:
        """Make the copy the table: its rows, its schema, and the watermark below which the stream's changes are in it.

        Raises `DestinationTableError` naming both counts when the copy does not hold exactly `rows` rows; the old table
        is then untouched. One transaction where the destination can; otherwise a crash leaves the old table complete
        with its old watermark, or no complete table, or the new one.

        A changelog is not replaced by a copy into a changelog: its rows stay, in the columns of the new schema, and the
        copied ones are added.
        """

    @abstractmethod
    def abandon_copy(self, table: DestinationTable) -> None:
        """Drop what was copied since `create_table`; a complete table stays. No error when there is no copy."""

    @abstractmethod
    def write_changes(self, writes: Sequence[TableChanges]) -> Mapping[int, int]:
        """Apply row changes and truncates with their watermarks; durable on return.

        One transaction for all tables where `multi_table_transactions`, otherwise one per table in the given order.
        Returns table oid → old rows that an update or delete meant and that were not there (left out when none).
        """

    @abstractmethod
    def execute(self, table: DestinationTable, operation: SchemaOperation) -> None:
        """Execute one schema operation."""

    @abstractmethod
    def set_watermark(self, table: DestinationTable, watermark: Position) -> None:
        """Set the watermark alone; inside `transaction` it commits with the schema operations."""

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """One unit for the operations of a plan where `transactional_ddl`; otherwise no effect.

        An error inside rolls everything back and goes on upwards.
        """
        yield


class DistributedDestination(Destination):
    """A destination with workers on other machines, which can read the rows of a copy themselves."""

    @abstractmethod
    def write_table_ranges(
        self, table: DestinationTable, schema: ReplicatedTableSchema, copy: DistributedCopy
    ) -> Sequence[FinishedRange]:
        """Have the workers read the ranges, and append their rows to the copy: all of them, durable on return, or none.

        Like `write_table_rows`, called by copying threads between `create_table` and `finish_copy`. Returns every range
        once. Raises what `copy.read` raised, and `DestinationError`.
        """

    @abstractmethod
    def interrupt_ranges(self, oid: int) -> None:
        """End every `write_table_ranges` of this table that is under way, by an error; called by another thread."""


class SchemaStatus(StrEnum):
    """Where a table's schema stands at the destination."""

    CREATING = "creating"
    APPLYING = "applying"
    APPLIED = "applied"


@dataclass(frozen=True, slots=True)
class DestinationMetadata:
    """What is recorded of a table at the destination: both endpoints of a change, so that a crash can be finished."""

    table: DestinationTable
    status: SchemaStatus
    schema: ReplicatedTableSchema
    previous: ReplicatedTableSchema | None = None


class SchemaJournal(ABC):
    """Where Applying and Applied are recorded. Implemented over the state store by the pipeline.

    Thread-safe: copying threads and the apply worker use it at the same time, for different tables.
    """

    @abstractmethod
    def get(self, oid: int) -> DestinationMetadata | None:
        """The recorded state of a table, or None when it was never created."""

    @abstractmethod
    def put(self, metadata: DestinationMetadata) -> None:
        """Record durably before returning."""

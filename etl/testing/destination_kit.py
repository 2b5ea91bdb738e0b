"""What the destination suite needs of a destination, and the world its rules play in."""

from __future__ import annotations

import pickle
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from etl.destinations.base import (
    CopyBatch,
    Destination,
    DestinationMetadata,
    DestinationTable,
    SchemaJournal,
    TableMode,
)
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.writer import EventWriter, WriteReport
from etl.events import Event
from etl.lsn import Position
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.testing.builders import (
    INT4,
    INT8,
    Change,
    Delete,
    Insert,
    PlainRow,
    Stream,
    Update,
    batch,
    column,
    table_schema,
)

PIPELINE_ID = 7

ORDERS = table_schema(column("id", 1, INT8), column("note", 2), column("doc", 3))
ITEMS = table_schema(column("id", 1, INT8), column("amount", 2, INT4), oid=16390, name="items")
LOG = table_schema(
    column("a", 1, INT8), column("b", 2), key=(), identity=ReplicaIdentity.FULL, oid=16400, name="log"
)

Case = TypeVar("Case")

#: Rows as a multiset: each row its ``(column, value)`` pairs, ordered by column.
Multiset = Counter[tuple[tuple[str, object], ...]]


class DestinationKit(ABC):
    """One empty storage and how to get at it. Everything it hands out is over that same storage."""

    #: How many examples the random rules try; a destination with slow commits may try fewer.
    examples: int = 30
    #: False where commits are slow: rules with a long table of cases then take some of them, spread evenly over it.
    thorough: bool = True

    def sample(self, cases: Sequence[Case], at_most: int) -> Sequence[Case]:
        """All cases, or where commits are slow at most so many, the first and the last among them."""
        if self.thorough or len(cases) <= at_most:
            return cases
        places = [round(number * (len(cases) - 1) / max(at_most - 1, 1)) for number in range(at_most)]
        return [cases[place] for place in places]

    @abstractmethod
    def connect(self) -> Destination:
        """A destination, not opened yet. Called again, a second one over the same storage."""

    @abstractmethod
    def rows(self, table: DestinationTable) -> list[PlainRow]:
        """All committed rows of a table, with every column of it.

        Values are plain Python (`int`, `str`, `Decimal`, `bool`, `bytes`, `list`, `date`, `time`, aware `datetime`);
        JSON and UUID are text.
        """

    @abstractmethod
    def fresh(self) -> DestinationKit:
        """The same with another, empty storage."""


class MemoryJournal(SchemaJournal):
    """A journal that outlives the destination's crashes, as the state store does."""

    def __init__(self) -> None:
        self.recorded: dict[int, DestinationMetadata] = {}

    def get(self, oid: int) -> DestinationMetadata | None:
        """See `SchemaJournal.get`."""
        return self.recorded.get(oid)

    def put(self, metadata: DestinationMetadata) -> None:
        """See `SchemaJournal.put`."""
        self.recorded[metadata.table.oid] = metadata


class FileJournal(MemoryJournal):
    """A journal that outlives the process too."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        if path.exists():
            self.recorded = pickle.loads(path.read_bytes())  # noqa: S301 -- written by ourselves

    def put(self, metadata: DestinationMetadata) -> None:
        """See `SchemaJournal.put`."""
        super().put(metadata)
        partial = self._path.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(self.recorded))
        partial.rename(self._path)


def multiset(rows: Iterable[PlainRow]) -> Multiset:
    """Rows without their order."""
    return Counter(tuple(sorted((name, _hashable(value)) for name, value in row.items())) for row in rows)


def _hashable(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


def _mirror(_: ReplicatedTableSchema) -> TableMode:
    return TableMode.MIRROR


@dataclass
class World:
    """A running destination with its writer; it can crash and start again."""

    kit: DestinationKit
    modes: Callable[[ReplicatedTableSchema], TableMode] = _mirror
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    epoch: int = 0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Open as a new process would: new objects, the next epoch."""
        self.epoch += 1
        self.destination = self.kit.connect()
        self.destination.open(PIPELINE_ID, self.epoch)
        self.writer = EventWriter(self.destination, self.journal)
        self.copies = CopyWriter(self.destination, self.journal, self.modes)

    def restart(self) -> WriteReport:
        """End, start again, and finish what was left unfinished."""
        self.destination.close()
        self.start()
        return self.writer.recover(self.journal.recorded)

    def copy(
        self,
        schema: ReplicatedTableSchema,
        rows: Sequence[PlainRow] = (),
        watermark: Position = Position.ZERO,
    ) -> DestinationTable:
        """A whole initial copy."""
        table = self.copies.create(schema)
        if rows:
            self.copies.copy_rows(schema, CopyBatch(batch(schema, rows)))
        self.finish(schema, len(rows), watermark)
        return table

    def finish(self, schema: ReplicatedTableSchema, rows: int, watermark: Position = Position.ZERO) -> None:
        """End a copy; from here on the stream writes to the table."""
        self.copies.finish(schema, watermark, rows)
        self.writer.retry(schema.oid)

    def write(self, events: Sequence[Event]) -> WriteReport:
        """Write and expect no table to fail."""
        report = self.writer.write(events)
        assert not report.failed, report.failed
        return report

    def table(self, schema: ReplicatedTableSchema) -> DestinationTable:
        """The destination table of a source table."""
        return self.journal.recorded[schema.oid].table

    def rows(self, schema: ReplicatedTableSchema) -> Multiset:
        """What is in the destination table."""
        return multiset(self.kit.rows(self.table(schema)))

    def columns(self, schema: ReplicatedTableSchema) -> set[tuple[str, int | None]]:
        """Names and attnums of the destination table's columns."""
        actual = self.destination.describe(self.table(schema))
        assert actual is not None
        return {(column.name, column.attnum) for column in actual.columns}


class Model:
    """A mirror as one would write it without a thought for speed: a list of rows, one change at a time.

    Values are kept by attnum, so that a rename is no event at all. Existing rows never get a new column's default.
    """

    def __init__(self, schema: ReplicatedTableSchema, rows: Iterable[PlainRow] = ()) -> None:
        self.schema = schema
        self._rows = [self._keyed(row) for row in rows]

    def relation(self, schema: ReplicatedTableSchema) -> None:
        """Rows lose dropped columns and know nothing of new ones."""
        kept = {column.attnum for column in schema.columns}
        self._rows = [{a: v for a, v in row.items() if a in kept} for row in self._rows]
        self.schema = schema

    def truncate(self) -> None:
        """No rows."""
        self._rows.clear()

    def apply(self, change: Change) -> None:
        """One insert, update or delete of a row that is there."""
        match change:
            case Insert(new):
                self._rows.append(self._keyed(new))
            case Update(new, old, unchanged):
                place = self._find(new if old is None else old)
                sent = self._keyed({n: v for n, v in new.items() if n not in unchanged})
                kept = {c.attnum for c in self.schema.columns if c.name in unchanged}
                self._rows[place] = {a: v for a, v in self._rows[place].items() if a in kept} | sent
            case Delete(old):
                del self._rows[self._find(old)]

    def rows(self) -> list[PlainRow]:
        """Every row with all columns of the schema."""
        return [{c.name: row.get(c.attnum) for c in self.schema.columns} for row in self._rows]

    def _keyed(self, row: PlainRow) -> dict[int, object]:
        return {c.attnum: row[c.name] for c in self.schema.columns if row.get(c.name) is not None}

    def _find(self, old: PlainRow) -> int:
        attnums = [c.attnum for c in self.schema.key_columns or self.schema.columns]
        wanted = self._keyed(old)
        return next(
            place
            for place, row in enumerate(self._rows)
            if all(row.get(attnum) == wanted.get(attnum) for attnum in attnums)
        )


@dataclass
class Scenario:
    """Events and, beside them, the models of what they should come to."""

    stream: Stream = field(default_factory=Stream)
    events: list[Event] = field(default_factory=list)
    models: dict[int, Model] = field(default_factory=dict)

    def start(self, schema: ReplicatedTableSchema, rows: Sequence[PlainRow] = ()) -> None:
        """A table as the copy left it."""
        self.models[schema.oid] = Model(schema, rows)

    def relation(self, schema: ReplicatedTableSchema) -> None:
        """From here on rows of the table are under `schema`."""
        self.models[schema.oid].relation(schema)
        self.events.append(self.stream.relation(schema))

    def rows(self, schema: ReplicatedTableSchema, *changes: Change) -> None:
        """A run of changes."""
        for change in changes:
            self.models[schema.oid].apply(change)
        self.events.append(self.stream.rows(schema, *changes))

    def truncate(self, *schemas: ReplicatedTableSchema) -> None:
        """TRUNCATE of tables."""
        for schema in schemas:
            self.models[schema.oid].truncate()
        self.events.append(self.stream.truncate(*schemas))

    def commit(self) -> None:
        """End of the transaction."""
        self.events.append(self.stream.commit())

    def expected(self, schema: ReplicatedTableSchema) -> Multiset:
        """What the table should hold."""
        return multiset(self.models[schema.oid].rows())

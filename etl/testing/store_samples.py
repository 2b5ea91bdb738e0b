"""What the store suite stores: names, schemas and records at the edges of what a store must keep exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from etl.lsn import Lsn, SnapshotId
from etl.schema.table import ColumnSchema, ReplicaIdentity, TableSchema
from etl.store.base import (
    CopyRecord,
    DestinationRecord,
    Shown,
    StateStore,
    TableState,
    TableStateRecord,
    TableVerb,
)

OID = 16_384
HIGHEST_OID = 2**32 - 1
HIGHEST_LSN = Lsn(2**64 - 1)

ODD_NAMES = (
    "plain",
    "Mixed Case",
    'quo"te',
    "back\\slash",
    "apo'strophe",
    "{brace,comma}",
    "new\nline\ttab",
    "ünïcödé-名前-🦆",
    "NULL",
    "%s %(x)s",
    "$1; DROP SCHEMA etl CASCADE; --",
    " ",
    "n" * 63,
)

SHOWN = (
    Shown(),
    Shown(frozenset({1, HIGHEST_OID}), "(a > 'x')", frozenset({1, 3}), frozenset({"16384@742"})),
)


class StoreOpener(Protocol):
    """Opens one more store over the test's database."""

    def __call__(self, pipeline_id: int = 1) -> StateStore:
        """A store that has not acquired its pipeline yet."""


def snapshot(commit: int, message: int = 0) -> SnapshotId:
    """A version key."""
    return SnapshotId(Lsn(commit), Lsn(message))


def table(*names: str, oid: int = OID, at: SnapshotId = SnapshotId.COPY) -> TableSchema:
    """A table of nullable text columns."""
    columns = tuple(ColumnSchema(name, attnum, 25, type_name="text") for attnum, name in enumerate(names, 1))
    return TableSchema(oid, "public", "users", columns, at, max_attnum=len(names))


def metadata(oid: int = OID, at: SnapshotId = SnapshotId.COPY, **changed: object) -> DestinationRecord:
    """Destination metadata of an applied table of two columns."""
    record = DestinationRecord(oid, "public.users", "mirror", "applied", at, (True, True), (True, False))
    return replace(record, **changed)  # type: ignore[arg-type]


def copy(oid: int = OID, ranges: int = 4, note: str = "") -> CopyRecord:
    """The ledger of a copy that has just begun."""
    return CopyRecord(oid, "00000003-0000001B-1", Lsn(90), ranges, note=note)


def open_copies(store: StateStore) -> Mapping[int, CopyRecord]:
    """The ledgers of open copies, but for times."""
    return {oid: replace(record, started_at=None) for oid, record in store.copies().items()}


EXACT_SCHEMAS = {
    "a table without columns": table(),
    "odd names": replace(table(*ODD_NAMES), schema='odd "schema"', name="odd \\ 'table'"),
    "everything a column can say": TableSchema(
        HIGHEST_OID,
        "public",
        "orders",
        (
            ColumnSchema("id", 1, 20, nullable=False, primary_key_ordinal=2, type_name="bigint"),
            ColumnSchema("part", 2, 23, nullable=False, primary_key_ordinal=1, type_name="integer"),
            ColumnSchema("price", 5, 1700, 655_366, default_expression="'42.10'::numeric(10,2)"),
            ColumnSchema("mood", 9, HIGHEST_OID, type_name='app."Mood"', default_expression="'a''b'::mood"),
            ColumnSchema("empty", 10, 25, default_expression="", missing_value=""),
            ColumnSchema("null", 11, 25, default_expression="NULL", missing_value="NULL"),
            ColumnSchema("added", 1600, 25, missing_value='{"a": "\\\\x"}\n{1,NULL}'),
        ),
        SnapshotId(Lsn.parse("16/B374D848"), HIGHEST_LSN),
        ReplicaIdentity.INDEX,
        (5, 1),
        1600,
    ),
    "1600 columns": table(*(f"column_{number}" for number in range(1, 1601))),
    "a large default": replace(
        table("a"), columns=(ColumnSchema("a", 1, 25, default_expression="'" + "x" * 1_000_000 + "'::text"),)
    ),
    **{
        f"identity {identity.name}": replace(table("a", "b"), identity=identity)
        for identity in ReplicaIdentity
    },
}

PRUNING = {
    "the newest version at the boundary and all after it stay": ([0, 10, 20, 30], 20, None, [20, 30]),
    "between two versions the older one is what a replay starts with": ([0, 10, 20], 15, None, [10, 20]),
    "beyond the last version only the last stays": ([0, 10, 20], 99, None, [20]),
    "below the first version nothing is dropped": ([10, 20], 5, None, [10, 20]),
    "a single version is never dropped": ([0], 99, None, [0]),
    "the destination's version stays": ([0, 10, 20], 20, metadata(at=snapshot(10)), [10, 20]),
    "both endpoints of an unfinished change stay": (
        [0, 10, 20, 30, 40],
        40,
        metadata(at=snapshot(30), status="applying", previous_snapshot_id=snapshot(10)),
        [10, 30, 40],
    ),
    "another table's metadata keeps nothing": ([0, 10], 10, metadata(OID + 1, at=snapshot(0)), [10]),
}


def fill(store: StateStore) -> None:
    """Two tables with a state, a schema version, destination metadata, a copy and a request each, and progress."""
    for oid in (OID, OID + 1):
        store.set_table_state(TableStateRecord(oid, TableState.READY))
        store.save_schema(table("id", "name", oid=oid))
        store.save_destination_record(metadata(oid))
        store.begin_copy(copy(oid))
        store.request(oid, TableVerb.RESYNC)
    store.save_progress(Lsn(100))

"""Applying and Applied in a state store: what was put comes back the same, also for the next process."""

from __future__ import annotations

import pytest

from etl.destinations.base import DestinationMetadata, DestinationTable, SchemaStatus, TableMode
from etl.errors import StoreError
from etl.pipeline.journal import StoreJournal
from etl.schema.table import ReplicatedTableSchema
from etl.store.memory import MemoryStore
from etl.testing.builders import INT8, altered, column, table_schema

OLD = table_schema(column("id", 1, INT8), column("a", 2))
NEW = altered(OLD, column("id", 1, INT8), column("b", 2), column("c", 3))
TABLE = DestinationTable(OLD.oid, "public.orders", TableMode.CHANGELOG)
APPLYING = DestinationMetadata(TABLE, SchemaStatus.APPLYING, NEW, OLD)


@pytest.fixture
def store() -> MemoryStore:
    store = MemoryStore()
    store.acquire()
    for version in (OLD, NEW):
        store.save_schema(version.schema)
    return store


@pytest.mark.parametrize(
    "metadata",
    [
        DestinationMetadata(TABLE, SchemaStatus.CREATING, OLD),
        DestinationMetadata(TABLE, SchemaStatus.APPLIED, OLD),
        APPLYING,
        DestinationMetadata(
            TABLE,
            SchemaStatus.APPLYING,
            ReplicatedTableSchema(NEW.schema, (True, False, True), (True, False, False)),
            ReplicatedTableSchema(OLD.schema, (True, False), (True, False)),
        ),
    ],
    ids=["creating", "applied", "applying", "with columns that are not replicated"],
)
def test_what_was_recorded_is_what_the_next_process_reads(store: MemoryStore, metadata: DestinationMetadata):
    journal = StoreJournal(store)
    journal.put(metadata)

    assert journal.get(TABLE.oid) == metadata
    assert StoreJournal(store).get(TABLE.oid) == metadata


def test_a_table_that_was_never_created_has_no_record(store: MemoryStore):
    assert StoreJournal(store).get(TABLE.oid) is None


def test_the_last_record_counts(store: MemoryStore):
    journal = StoreJournal(store)
    applied = DestinationMetadata(TABLE, SchemaStatus.APPLIED, NEW)
    journal.put(APPLYING)
    journal.put(applied)

    assert journal.get(TABLE.oid) == applied
    assert StoreJournal(store).get(TABLE.oid) == applied


def test_a_forgotten_table_is_unknown_until_it_is_recorded_again(store: MemoryStore):
    StoreJournal(store).put(APPLYING)
    journal = StoreJournal(store)
    store.prepare_for_copy(TABLE.oid)
    journal.forget(TABLE.oid)

    assert journal.get(TABLE.oid) is None


@pytest.mark.parametrize("lost", [OLD, NEW], ids=["where it comes from", "where it goes to"])
def test_a_version_that_is_missing_in_the_store_is_refused(store: MemoryStore, lost: ReplicatedTableSchema):
    StoreJournal(store).put(APPLYING)
    kept = NEW if lost is OLD else OLD
    record = store.destination_records()[TABLE.oid]
    restored = MemoryStore()
    restored.acquire()
    restored.save_schema(kept.schema)
    restored.save_destination_record(record)

    with pytest.raises(StoreError, match=f"schema version {lost.schema.snapshot_id} of the table with oid"):
        StoreJournal(restored).get(TABLE.oid)

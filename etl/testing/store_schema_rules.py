"""The rules of a state store for schema versions and destination metadata (see `store_suite`)."""

# a rule's name is its specification
# ruff: noqa: D102

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.errors import StoreError
from etl.lsn import SnapshotId
from etl.schema.table import ColumnSchema, ReplicaIdentity, TableSchema
from etl.store.base import DestinationRecord, StateStore
from etl.testing.store_samples import (
    EXACT_SCHEMAS,
    HIGHEST_LSN,
    HIGHEST_OID,
    ODD_NAMES,
    OID,
    PRUNING,
    metadata,
    snapshot,
    table,
)


class SchemaRules:
    """Schema versions."""

    @pytest.mark.parametrize("schema", EXACT_SCHEMAS.values(), ids=EXACT_SCHEMAS.keys())
    def test_schemas_round_trip_exactly(self, store: StateStore, schema: TableSchema) -> None:
        store.save_schema(schema)
        assert store.schemas() == [schema]
        assert store.schemas(schema.oid) == [schema]

    def test_versions_come_by_table_and_ascending_snapshot(self, store: StateStore) -> None:
        keys = [snapshot(0), snapshot(2, 2**40), snapshot(2**40, 1), snapshot(2**40, 2), snapshot(2**63, 0)]
        expected = [table("a", oid=oid, at=key) for oid in (OID, HIGHEST_OID) for key in keys]
        for schema in reversed(expected):
            store.save_schema(schema)
        assert store.schemas() == expected
        assert store.schemas(OID) == expected[: len(keys)]
        assert store.schemas(OID + 1) == []

    def test_the_same_version_again_replaces_it(self, store: StateStore) -> None:
        store.save_schema(table("a", "b", "c"))
        again = replace(table("b"), schema="other", name="moved", identity=ReplicaIdentity.FULL, max_attnum=9)
        store.save_schema(again)
        assert store.schemas() == [again]

    @pytest.mark.parametrize(
        "columns",
        [
            (ColumnSchema("a", 2, 25), ColumnSchema("b", 1, 25)),
            (ColumnSchema("a", 1, 25), ColumnSchema("b", 1, 25)),
            (ColumnSchema("a", 1, 25), ColumnSchema("a", 2, 25)),
        ],
        ids=["out of order", "one attnum twice", "one name twice"],
    )
    def test_a_schema_no_table_can_have_is_refused(
        self, store: StateStore, columns: tuple[ColumnSchema, ...]
    ) -> None:
        with pytest.raises(StoreError, match=r"public\.users"):
            store.save_schema(replace(table(), columns=columns))
        assert store.schemas() == []

    @pytest.mark.parametrize(("versions", "below", "record", "kept"), PRUNING.values(), ids=PRUNING.keys())
    def test_pruning_keeps_what_a_replay_or_an_unfinished_change_needs(
        self,
        store: StateStore,
        versions: list[int],
        below: int,
        record: DestinationRecord | None,
        kept: list[int],
    ) -> None:
        for version in versions:
            store.save_schema(table("a", at=snapshot(version)))
            store.save_schema(table("a", oid=OID + 1, at=snapshot(version)))
        if record is not None:
            store.save_destination_record(record)
        assert store.prune_schemas(OID, snapshot(below)) == len(versions) - len(kept)
        assert [schema.snapshot_id.commit_lsn for schema in store.schemas(OID)] == kept
        assert len(store.schemas(OID + 1)) == len(versions)

    def test_pruning_looks_at_both_parts_of_a_snapshot_id(self, store: StateStore) -> None:
        for message in (1, 2, 3):
            store.save_schema(table("a", at=snapshot(10, message)))
        assert store.prune_schemas(OID, snapshot(10, 2)) == 1
        assert [schema.snapshot_id for schema in store.schemas()] == [snapshot(10, 2), snapshot(10, 3)]

    def test_pruning_an_unknown_table_drops_nothing(self, store: StateStore) -> None:
        assert store.prune_schemas(OID, snapshot(1)) == 0


class DestinationRules:
    """Destination metadata."""

    @pytest.mark.parametrize(
        "record",
        [
            metadata(),
            metadata(HIGHEST_OID, status="creating", mode="changelog", replication_mask=(), identity_mask=()),
            metadata(at=SnapshotId(HIGHEST_LSN, HIGHEST_LSN), replication_mask=(True, False) * 800),
            metadata(
                at=snapshot(2, 1),
                status="applying",
                previous_snapshot_id=SnapshotId.COPY,
                previous_replication_mask=(True, False, True),
                previous_identity_mask=(False, False, False),
            ),
        ]
        + [metadata(destination_table=name) for name in ODD_NAMES],
        ids=lambda record: f"{record.status} {record.destination_table[:20]!r}",
    )
    def test_destination_metadata_round_trips_exactly(
        self, store: StateStore, record: DestinationRecord
    ) -> None:
        store.save_destination_record(record)
        assert store.destination_records() == {record.oid: record}

    def test_a_change_replaces_the_record_of_its_table_only(self, store: StateStore) -> None:
        applying = metadata(
            at=snapshot(1),
            destination_table="before",
            mode="changelog",
            status="applying",
            replication_mask=(True,),
            identity_mask=(False,),
            previous_snapshot_id=snapshot(0, 1),
            previous_replication_mask=(False,),
            previous_identity_mask=(True,),
        )
        other = metadata(OID + 1)
        applied = metadata(at=snapshot(2))
        for record in (applying, other, applied):
            store.save_destination_record(record)
        assert store.destination_records() == {OID: applied, OID + 1: other}

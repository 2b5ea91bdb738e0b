from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.lsn import SnapshotId
from etl.schema.catalog import SchemaCatalog
from tests.unit.schema.builders import OID, column, snapshot, table

VERSIONS = [SnapshotId.COPY, snapshot(10, 5), snapshot(20, 8), snapshot(20, 15)]


@pytest.fixture
def catalog() -> SchemaCatalog:
    """Filled out of order, for transactions are not stored in the order of their messages."""
    return SchemaCatalog(table(column(1, "id")).at(VERSIONS[place]) for place in (2, 0, 3, 1))


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (SnapshotId.COPY, SnapshotId.COPY),
        (snapshot(10, 4), SnapshotId.COPY),
        (snapshot(10, 5), snapshot(10, 5)),
        (snapshot(19, 99), snapshot(10, 5)),
        (snapshot(20, 14), snapshot(20, 8)),
        (snapshot(99), snapshot(20, 15)),
    ],
)
def test_a_lookup_finds_the_greatest_version_at_or_below_the_asked_one(
    catalog: SchemaCatalog, asked: SnapshotId, expected: SnapshotId
):
    found = catalog.at(OID, asked)
    assert found is not None
    assert found.snapshot_id == expected


def test_there_is_no_version_below_the_first():
    catalog = SchemaCatalog([table(column(1, "id")).at(snapshot(10))])
    assert catalog.at(OID, snapshot(9)) is None


def test_an_unknown_table_has_no_version(catalog: SchemaCatalog):
    assert catalog.latest(1) is None
    assert catalog.at(1, snapshot(99)) is None
    assert catalog.versions(1) == ()
    catalog.forget(1)


def test_versions_are_listed_in_ascending_order(catalog: SchemaCatalog):
    assert [version.snapshot_id for version in catalog.versions(OID)] == VERSIONS
    assert catalog.latest(OID) == catalog.versions(OID)[-1]


def test_the_same_version_again_replaces_it(catalog: SchemaCatalog):
    catalog.add(table(column(1, "renamed")).at(snapshot(10, 5)))
    assert [version.snapshot_id for version in catalog.versions(OID)] == VERSIONS
    assert catalog.versions(OID)[1].columns[0].name == "renamed"


def test_forgetting_a_table_leaves_the_others(catalog: SchemaCatalog):
    catalog.forget(OID)
    assert catalog.versions(OID) == ()


@pytest.mark.parametrize(
    ("below", "left"),
    [
        (SnapshotId.COPY, VERSIONS),
        (snapshot(10, 5), VERSIONS[1:]),
        (snapshot(15), VERSIONS[1:]),
        (snapshot(99), VERSIONS[3:]),
    ],
)
def test_pruning_keeps_the_newest_version_at_or_below_the_boundary_and_all_after_it(
    catalog: SchemaCatalog, below: SnapshotId, left: list[SnapshotId]
):
    assert catalog.prune(OID, below) == len(VERSIONS) - len(left)
    assert [version.snapshot_id for version in catalog.versions(OID)] == left


positions = st.builds(snapshot, st.integers(0, 9), st.integers(0, 9))


@given(st.lists(positions), positions, positions)
def test_pruning_never_changes_what_a_lookup_from_the_boundary_on_finds(
    added: list[SnapshotId], below: SnapshotId, asked: SnapshotId
):
    catalog = SchemaCatalog(table(column(1, "id")).at(position) for position in added)
    asked = max(asked, below)
    before = catalog.at(OID, asked)
    catalog.prune(OID, below)
    assert catalog.at(OID, asked) == before

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.schema.relation import RelationMismatch, TypeMismatch, match_relation
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from tests.unit.schema.builders import INT4, INT8, TEXT, VARCHAR, column, relation, snapshot, table

ORDERS = table(
    column(1, "id", INT8, primary_key_ordinal=1),
    column(2, "name", VARCHAR, typmod=14),
    column(4, "note"),
)


def matched(*columns: tuple[str, int] | tuple[str, int, int], **fields: object) -> ReplicatedTableSchema:
    found = match_relation(ORDERS, relation(*columns, **fields))  # type: ignore[arg-type]
    assert isinstance(found, ReplicatedTableSchema)
    return found


def mismatched(*columns: tuple[str, int] | tuple[str, int, int]) -> RelationMismatch:
    found = match_relation(ORDERS, relation(*columns))
    assert isinstance(found, RelationMismatch)
    return found


ID, NAME, NOTE = ("id", INT8), ("name", VARCHAR, 14), ("note", TEXT)


def test_the_replication_mask_covers_the_columns_that_relation_names():
    assert matched(ID, NOTE).replication_mask == (True, False, True)


def test_the_identity_mask_is_made_of_the_key_flags():
    assert matched(ID, NAME, NOTE, key=("id", "note")).identity_mask == (True, False, True)


def test_the_replica_identity_of_relation_wins_over_the_stored_one():
    found = matched(ID, NAME, NOTE, key=("note",), identity=ReplicaIdentity.INDEX)
    assert found.schema.identity is ReplicaIdentity.INDEX
    assert found.schema.identity_attnums == (4,)
    assert [c.name for c in found.key_columns] == ["note"]


def test_under_full_identity_every_replicated_column_is_part_of_the_old_image():
    found = matched(ID, NOTE, key=(), identity=ReplicaIdentity.FULL)
    assert found.identity_mask == (True, False, True)
    assert found.old_image_is_full


def test_without_an_identity_no_column_identifies_a_row():
    assert matched(ID, NAME, NOTE, key=(), identity=ReplicaIdentity.NOTHING).key_columns == ()


def test_names_the_stored_version_lacks_are_drift():
    assert mismatched(ID, NAME, NOTE, ("extra", TEXT)) == RelationMismatch(unknown=("extra",))


@pytest.mark.parametrize(
    ("changed", "expected", "got"),
    [
        (("note", INT4), (TEXT, -1), (INT4, -1)),
        (("name", VARCHAR, 24), (VARCHAR, 14), (VARCHAR, 24)),
    ],
)
def test_another_type_or_typmod_is_drift(
    changed: tuple[str, int] | tuple[str, int, int], expected: tuple[int, int], got: tuple[int, int]
):
    columns = [changed if c[0] == changed[0] else c for c in (ID, NAME, NOTE)]
    assert mismatched(*columns) == RelationMismatch(types=(TypeMismatch(changed[0], expected, got),))


def test_known_names_out_of_attnum_order_are_drift_for_only_exchanged_names_look_so():
    schema = table(column(1, "id"), column(2, "a"), column(3, "b"))
    found = match_relation(schema, relation(("id", TEXT), ("b", TEXT), ("a", TEXT)))
    assert found == RelationMismatch(out_of_order=("b", "a"))


def test_a_mismatch_names_every_column_concerned():
    assert mismatched(ID, ("note", INT4), ("extra", TEXT)).columns == ("extra", "note")


def test_relation_of_another_table_is_refused():
    with pytest.raises(ValueError, match="oid"):
        match_relation(replace(ORDERS, oid=1), relation(ID))


def test_matching_keeps_the_version_key_of_the_stored_schema():
    found = match_relation(ORDERS.at(snapshot(7, 3)), relation(ID))
    assert isinstance(found, ReplicatedTableSchema)
    assert found.schema.snapshot_id == snapshot(7, 3)

"""The contract's sentences about schema diffs, each as a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from etl.schema.diff import ColumnChange, Modification, SchemaDiff, diff
from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema
from tests.unit.schema.builders import INT4, VARCHAR, column, shown

ID = column(1, "id", INT4, primary_key_ordinal=1)


def only_change(old: ColumnSchema, new: ColumnSchema) -> ColumnChange:
    changes = diff(shown(ID, old), shown(ID, new))
    assert not changes.added
    assert not changes.removed
    (change,) = changes.changed
    return change


def test_same_ordinal_position_with_a_different_name_is_a_column_rename():
    change = only_change(column(2, "a"), column(2, "b"))
    assert change.modifications == {Modification.RENAME}


def test_same_ordinal_position_with_a_different_default_expression_is_a_column_default_change():
    change = only_change(column(2, "a"), column(2, "a", default_expression="'x'::text"))
    assert change.modifications == {Modification.DEFAULT}


def test_a_dropped_default_is_a_column_default_removal():
    change = only_change(column(2, "a", default_expression="'x'::text"), column(2, "a"))
    assert change.modifications == {Modification.DEFAULT}
    assert change.new.default_expression is None


@pytest.mark.parametrize("now", [True, False])
def test_same_ordinal_position_with_different_nullability_is_a_detected_metadata_change(now: bool):
    change = only_change(column(2, "a", nullable=not now), column(2, "a", nullable=now))
    assert change.modifications == {Modification.NULLABILITY}


def test_an_old_ordinal_position_missing_from_the_new_schema_is_a_column_drop():
    changes = diff(shown(ID, column(2, "a")), shown(ID))
    assert [c.name for c in changes.removed] == ["a"]
    assert not changes.added
    assert not changes.changed


def test_a_new_ordinal_position_missing_from_the_old_schema_is_a_column_add():
    changes = diff(shown(ID), shown(ID, column(2, "a")))
    assert [(a.column.name, a.newly_published) for a in changes.added] == [("a", False)]


def test_a_drop_and_re_add_is_not_a_rename_but_a_drop_plus_an_add():
    changes = diff(shown(ID, column(2, "a")), shown(ID, column(3, "a")))
    assert [c.attnum for c in changes.removed] == [2]
    assert [a.column.attnum for a in changes.added] == [3]
    assert not changes.changed


def test_several_modifications_of_one_logical_column_are_grouped_into_one_change():
    change = only_change(column(2, "a"), column(2, "b", default_expression="5", nullable=False))
    assert change.modifications == {Modification.RENAME, Modification.DEFAULT, Modification.NULLABILITY}
    assert (change.old.name, change.new.name) == ("a", "b")


def test_several_changes_in_one_statement_are_one_diff_of_additions_removals_and_modifications():
    changes = diff(
        shown(ID, column(2, "a"), column(3, "b"), column(4, "c")),
        shown(ID, column(2, "z"), column(4, "c", default_expression="'x'::text"), column(5, "d")),
    )
    assert [c.name for c in changes.removed] == ["b"]
    assert [a.column.name for a in changes.added] == ["d"]
    assert [(c.old.name, *c.modifications) for c in changes.changed] == [
        ("a", Modification.RENAME),
        ("c", Modification.DEFAULT),
    ]


def test_diffs_are_computed_over_replicated_columns_only():
    old = shown(ID, column(2, "a"), column(3, "b"), hidden=(2, 3))
    new = shown(ID, column(2, "renamed"), column(4, "c"), hidden=(2, 4))
    assert not diff(old, new)


def test_a_column_that_leaves_the_publication_is_removed_though_it_exists():
    columns = (ID, column(2, "a"))
    assert [c.name for c in diff(shown(*columns), shown(*columns, hidden=(2,))).removed] == ["a"]


def test_a_column_that_becomes_visible_because_the_column_list_changed_is_newly_published():
    columns = (ID, column(2, "a", default_expression="'x'::text"))
    changes = diff(shown(*columns, hidden=(2,)), shown(*columns))
    assert [(a.column.name, a.newly_published) for a in changes.added] == [("a", True)]


def test_a_column_that_was_generated_before_is_newly_published_too():
    changes = diff(shown(ID, max_attnum=2), shown(ID, column(2, "a")))
    assert changes.added[0].newly_published


def test_an_attnum_beyond_the_highest_ever_used_is_a_new_column():
    changes = diff(shown(ID, max_attnum=2), shown(ID, column(3, "a")))
    assert not changes.added[0].newly_published


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (column(2, "a", INT4), column(2, "a")),
        (column(2, "a", VARCHAR, typmod=14), column(2, "a", VARCHAR, typmod=24)),
    ],
    ids=["another type", "another typmod"],
)
def test_a_type_change_is_visible_but_not_interpreted(old: ColumnSchema, new: ColumnSchema):
    assert only_change(old, new).modifications == {Modification.TYPE}


def test_a_change_of_the_primary_key_is_visible_per_column():
    change = only_change(column(2, "a"), column(2, "a", primary_key_ordinal=2))
    assert change.modifications == {Modification.KEY}


def test_a_replica_identity_change_is_visible_and_changes_no_column():
    changes = diff(shown(ID), shown(ID, identity=ReplicaIdentity.FULL))
    assert changes == SchemaDiff(identity_changed=True)


def test_other_identity_columns_are_an_identity_change():
    old = shown(ID, column(2, "a"), identity=ReplicaIdentity.INDEX, identity_attnums=(1,))
    new = shown(ID, column(2, "a"), identity=ReplicaIdentity.INDEX, identity_attnums=(2,))
    assert diff(old, new) == SchemaDiff(identity_changed=True)


def test_under_full_identity_a_new_column_is_no_identity_change():
    full = ReplicaIdentity.FULL
    assert not diff(shown(ID, identity=full), shown(ID, column(2, "a"), identity=full)).identity_changed


def test_a_table_rename_is_outside_the_contract_and_only_reported():
    renamed = ReplicatedTableSchema.all_columns(replace(shown(ID).schema, name="orders_2026"))
    assert diff(shown(ID), renamed) == SchemaDiff(table_renamed=True)


def test_what_the_source_fills_into_older_rows_is_no_difference_of_schemas():
    assert not diff(shown(ID, column(2, "a")), shown(ID, column(2, "a", missing_value="x", type_name="text")))


def test_a_statement_that_changes_nothing_makes_an_empty_diff_which_is_false():
    columns = (ID, column(2, "a", default_expression="'x'::text"))
    assert diff(shown(*columns), shown(*columns)) == SchemaDiff()
    assert not diff(shown(*columns), shown(*columns))


def test_versions_of_different_tables_have_no_diff():
    other = ReplicatedTableSchema.all_columns(replace(shown(ID).schema, oid=1))
    with pytest.raises(ValueError, match="different tables"):
        diff(shown(ID), other)

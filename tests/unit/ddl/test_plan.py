from __future__ import annotations

import duckdb
import pytest

from etl.ddl.operations import (
    ActualColumn,
    ActualTable,
    AddColumn,
    DropColumn,
    DropDefault,
    RenameColumn,
    SchemaOperation,
    SetDefault,
    SkipReason,
    kind_of,
    words_of,
)
from etl.ddl.plan import apply_operation, plan, skipped_defaults
from etl.errors import DestinationTableError, SchemaAmbiguousError
from etl.schema.defaults import DefaultLiteral, LiteralKind
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from tests.unit.ddl.world import Abilities, created, executed, names, planned, render, untagged
from tests.unit.schema.builders import BOOL, INT4, INT8, column, shown

ID = column(1, "id", INT8)
TMP = "supabase_etl_ddl_tmp_column_"
FOLDING = Abilities(case_insensitive_names=True)


def kinds(operations: tuple[SchemaOperation, ...]) -> list[str]:
    return [type(operation).__name__ for operation in operations]


# --- order ------------------------------------------------------------------------------------------------------------


def test_the_order_is_drops_then_renames_then_adds_then_defaults():
    previous = shown(ID, column(2, "a"), column(3, "b"), column(4, "c", default_expression="'x'::text"))
    target = shown(ID, column(3, "a"), column(4, "c"), column(5, "b", default_expression="'y'::text"))
    operations = planned(previous, target)
    assert kinds(operations) == ["DropColumn", "RenameColumn", "AddColumn", "SetDefault", "DropDefault"]


def test_a_column_dropped_and_added_again_under_its_name_is_dropped_first():
    again = column(3, "c")
    assert planned(shown(ID, column(2, "c")), shown(ID, again)) == (DropColumn(2, "c"), AddColumn(again))


def test_a_chain_of_renames_starts_at_its_free_end():
    previous = shown(ID, column(2, "a"), column(3, "b"), column(4, "c"))
    target = shown(ID, column(2, "b"), column(3, "c"), column(4, "d"))
    assert planned(previous, target) == (
        RenameColumn(4, "c", "d"),
        RenameColumn(3, "b", "c"),
        RenameColumn(2, "a", "b"),
    )


def test_an_exchange_of_names_is_opened_by_one_temporary_name():
    previous = shown(ID, column(2, "a"), column(3, "b"))
    target = shown(ID, column(2, "b"), column(3, "a"))
    assert planned(previous, target) == (
        RenameColumn(2, "a", f"{TMP}2"),
        RenameColumn(3, "b", "a"),
        RenameColumn(2, f"{TMP}2", "b"),
    )


def test_a_rotation_of_names_is_opened_by_one_temporary_name():
    previous = shown(ID, column(2, "a"), column(3, "b"), column(4, "c"))
    target = shown(ID, column(2, "b"), column(3, "c"), column(4, "a"))
    operations = planned(previous, target)
    assert len(operations) == 4
    assert names(executed(created(previous), operations)) == {1: "id", 2: "b", 3: "c", 4: "a"}


def test_a_name_freed_by_a_drop_needs_no_temporary_one():
    previous = shown(ID, column(2, "a"), column(3, "b"))
    assert planned(previous, shown(ID, column(3, "a"))) == (DropColumn(2, "a"), RenameColumn(3, "b", "a"))


def test_a_rename_and_an_add_of_the_old_name_keep_the_data_with_its_column():
    previous, target = shown(ID, column(2, "c")), shown(ID, column(2, "d"), column(3, "c"))
    assert planned(previous, target) == (RenameColumn(2, "c", "d"), AddColumn(target.columns[2]))


def test_a_temporary_name_that_is_taken_is_lengthened():
    previous = shown(column(1, "a"), column(2, "b"), column(3, f"{TMP}1"))
    target = shown(column(1, "b"), column(2, "a"), column(3, f"{TMP}1"))
    assert planned(previous, target)[0] == RenameColumn(1, "a", f"{TMP}1_")


def test_a_temporary_name_that_the_target_needs_is_lengthened():
    previous = shown(column(1, "a"), column(2, "b"))
    target = shown(column(1, "b"), column(2, "a"), column(3, f"{TMP}1"))
    assert planned(previous, target)[0] == RenameColumn(1, "a", f"{TMP}1_")


def test_when_every_column_is_replaced_the_last_is_dropped_after_the_adds_for_no_engine_drops_the_only_one():
    new = column(3, "b")
    assert planned(shown(column(1, "a"), column(2, "b")), shown(new)) == (
        DropColumn(1, "a"),
        RenameColumn(2, "b", f"{TMP}2"),
        AddColumn(new),
        DropColumn(2, f"{TMP}2"),
    )


def test_when_names_fold_a_change_of_case_goes_through_a_temporary_name():
    previous, target = shown(ID, column(2, "a")), shown(ID, column(2, "A"))
    assert planned(previous, target, abilities=FOLDING) == (
        RenameColumn(2, "a", f"{TMP}2"),
        RenameColumn(2, f"{TMP}2", "A"),
    )
    assert planned(previous, target) == (RenameColumn(2, "a", "A"),)


def test_when_names_fold_a_name_is_taken_whatever_its_case():
    previous = shown(ID, column(2, "a"), column(3, "b"))
    target = shown(ID, column(2, "B"), column(3, "c"))
    assert planned(previous, target, abilities=FOLDING) == (
        RenameColumn(3, "b", "c"),
        RenameColumn(2, "a", "B"),
    )


def test_when_names_fold_two_columns_of_one_name_are_refused_before_anything_is_done():
    with pytest.raises(DestinationTableError, match="columns a and A") as caught:
        planned(shown(ID), shown(ID, column(2, "a"), column(3, "A")), abilities=FOLDING)
    assert caught.value.table == "public.orders"


def test_duckdb_accepts_every_step_of_an_exchange_a_change_of_case_and_a_whole_replacement():
    engine = duckdb.connect()
    for previous, target in (
        (shown(ID, column(2, "a"), column(3, "b")), shown(ID, column(2, "B"), column(3, "A"))),
        (shown(column(1, "a")), shown(column(2, "A"))),
        (shown(ID, column(2, "a")), shown(column(2, "ID"), column(3, "a"))),
    ):
        engine.execute(
            "CREATE OR REPLACE TABLE t (" + ", ".join(f'"{c.name}" TEXT' for c in previous.columns) + ")"
        )
        for operation in planned(previous, target, abilities=FOLDING):
            engine.execute(statement(operation))
        described = engine.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = 't'"
        ).fetchall()
        assert {name for (name,) in described} == {c.name for c in target.columns}


def statement(operation: SchemaOperation) -> str:
    match operation:
        case DropColumn():
            return f'ALTER TABLE t DROP COLUMN "{operation.name}"'
        case RenameColumn():
            return f'ALTER TABLE t RENAME COLUMN "{operation.name}" TO "{operation.new_name}"'
        case AddColumn():
            return f'ALTER TABLE t ADD COLUMN "{operation.column.name}" TEXT'
        case _:
            raise AssertionError(operation)


# --- defaults ---------------------------------------------------------------------------------------------------------


def test_a_new_column_is_added_first_and_its_default_set_for_future_writes():
    new = column(2, "a", default_expression="'x'::text")
    assert planned(shown(ID), shown(ID, new)) == (
        AddColumn(new),
        SetDefault(new, DefaultLiteral(LiteralKind.STRING, "x")),
    )


def test_a_newly_published_column_is_added_without_its_default_and_the_reason_is_told():
    columns = (ID, column(2, "a", default_expression="'x'::text"))
    previous, target = shown(*columns, hidden=(2,)), shown(*columns)
    found = plan(created(previous), target, previous, Abilities(), render)
    assert found.operations == (AddColumn(columns[1]),)
    assert [(s.column, s.change) for s in found.skipped] == [("a", "default")]
    assert "unknown" in found.skipped[0].reason


def test_a_changed_default_is_set():
    previous = shown(ID, column(2, "a", default_expression="'x'::text"))
    target = shown(ID, column(2, "a", default_expression="'y'::text"))
    assert planned(previous, target) == (
        SetDefault(target.columns[1], DefaultLiteral(LiteralKind.STRING, "y")),
    )


def test_a_dropped_default_is_dropped_under_the_columns_new_name():
    previous = shown(ID, column(2, "a", default_expression="'x'::text"))
    assert planned(previous, shown(ID, column(2, "b"))) == (RenameColumn(2, "a", "b"), DropDefault(2, "b"))


@pytest.mark.parametrize("unsupported", ["now()", "true"], ids=["no literal", "not rendered"])
def test_from_a_supported_to_an_unsupported_default_the_old_one_is_dropped_and_the_reason_told(
    unsupported: str,
):
    type_oid = BOOL if unsupported == "true" else 25
    before = column(2, "a", 25, default_expression="'x'::text")
    previous, target = shown(ID, before), shown(ID, column(2, "a", type_oid, default_expression=unsupported))
    found = plan(created(previous), target, previous, Abilities(), render)
    assert found.operations == (DropDefault(2, "a"),)
    assert any(s.change == "default" for s in found.skipped)


def test_from_one_unsupported_default_to_another_nothing_is_done():
    previous = shown(ID, column(2, "a", default_expression="now()"))
    assert planned(previous, shown(ID, column(2, "a", default_expression="random()"))) == ()


def test_a_default_that_did_not_change_is_not_touched_whatever_is_installed():
    schema = shown(ID, column(2, "a", default_expression="'x'::text"))
    actual = ActualTable((ActualColumn("id", "", 1), ActualColumn("a", "", 2, default="somebody's")))
    assert planned(schema, schema, actual) == ()


def test_a_default_that_is_installed_already_is_not_set_again():
    previous = shown(ID, column(2, "a"))
    target = shown(ID, column(2, "a", default_expression="'x'::text"))
    assert planned(previous, target, created(target)) == ()


def test_without_a_previous_version_every_default_is_compared():
    target = shown(ID, column(2, "a", default_expression="'x'::text"), column(3, "b"))
    actual = ActualTable(
        (ActualColumn("id", "", 1), ActualColumn("a", "", 2), ActualColumn("b", "", 3, default="<y>"))
    )
    assert kinds(planned(None, target, actual)) == ["SetDefault", "DropDefault"]


# --- what is detected and not applied ----------------------------------------------------------------------------------


def test_changes_of_type_nullability_and_key_are_skipped_with_a_reason():
    previous = shown(ID, column(2, "a", INT4), column(3, "b"), column(4, "c"))
    target = shown(
        ID, column(2, "a", INT8), column(3, "b", nullable=False), column(4, "c", primary_key_ordinal=1)
    )
    found = plan(created(previous), target, previous, Abilities(), render)
    assert found.operations == ()
    assert [(s.attnum, s.column, s.change) for s in found.skipped] == [
        (2, "a", "type"),
        (3, "b", "nullability"),
        (4, "c", "key"),
    ]
    assert all(s.reason for s in found.skipped)


def test_a_new_table_lacks_the_defaults_that_are_no_literals_or_cannot_be_rendered():
    schema = shown(
        ID,
        column(2, "a", default_expression="'x'::text"),
        column(3, "b", default_expression="lower('X')"),
        column(4, "c", BOOL, default_expression="true"),
        column(5, "d"),
    )

    assert [(skip.attnum, skip.change, skip.reason) for skip in skipped_defaults(schema, render)] == [
        (3, "default", SkipReason.NOT_LITERAL),
        (4, "default", SkipReason.NOT_RENDERABLE),
    ]


@pytest.mark.parametrize(
    ("operation", "kind", "words"),
    [
        (DropColumn(2, "a"), "drop_column", "drop a"),
        (RenameColumn(2, "a", "b"), "rename_column", "rename a to b"),
        (AddColumn(column(2, "a")), "add_column", "add a"),
        (
            SetDefault(column(2, "a"), DefaultLiteral(LiteralKind.STRING, "geheim")),
            "set_default",
            "set the default of a",
        ),
        (DropDefault(2, "a"), "drop_default", "remove the default of a"),
    ],
)
def test_an_operation_is_told_without_the_literal_it_carries(
    operation: SchemaOperation, kind: str, words: str
):
    assert (kind_of(operation), words_of(operation)) == (kind, words)


def test_an_identity_change_alone_needs_no_operation():
    assert planned(shown(ID), shown(ID, identity=ReplicaIdentity.FULL)) == ()


# --- what a destination cannot do ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("abilities", "target", "told"),
    [
        (Abilities(drop_column=False), shown(ID), "drop column a"),
        (Abilities(rename_column=False), shown(ID, column(2, "b")), "rename column a"),
    ],
)
def test_a_drop_or_rename_the_destination_cannot_do_stops_the_table(
    abilities: Abilities, target: ReplicatedTableSchema, told: str
):
    with pytest.raises(DestinationTableError, match=told):
        planned(shown(ID, column(2, "a")), target, abilities=abilities)


def test_a_default_the_destination_cannot_set_is_skipped_and_the_stale_one_dropped():
    previous = shown(ID, column(2, "a", default_expression="'x'::text"))
    target = shown(ID, column(2, "a", default_expression="'y'::text"))
    found = plan(created(previous), target, previous, Abilities(set_default=False), render)
    assert found.operations == (DropDefault(2, "a"),)
    assert "cannot set" in found.skipped[0].reason


def test_a_default_the_destination_cannot_drop_is_skipped():
    previous = shown(ID, column(2, "a", default_expression="'x'::text"))
    found = plan(
        created(previous), shown(ID, column(2, "a")), previous, Abilities(drop_default=False), render
    )
    assert found.operations == ()
    assert "cannot remove" in found.skipped[0].reason


def test_a_table_without_a_column_left_is_refused():
    with pytest.raises(DestinationTableError, match="no replicated column"):
        planned(shown(ID), shown(ID, hidden=(1,)))


# --- what nobody can explain --------------------------------------------------------------------------------------------


def refused(
    actual: ActualTable, previous: ReplicatedTableSchema | None, target: ReplicatedTableSchema
) -> str:
    with pytest.raises(SchemaAmbiguousError) as caught:
        planned(previous, target, actual)
    error = caught.value
    assert error.table == "public.orders"
    assert error.hint
    assert "expected before" in error.message
    return error.message


def test_a_tag_that_no_version_knows_is_ambiguous():
    actual = ActualTable((ActualColumn("id", "", 1), ActualColumn("stray", "", 9)))
    assert "stray" in refused(actual, shown(ID), shown(ID))


def test_a_tag_present_twice_is_ambiguous():
    actual = ActualTable((ActualColumn("id", "", 1), ActualColumn("id2", "", 1)))
    assert "id and id2" in refused(actual, shown(ID), shown(ID))


def test_an_untagged_column_whose_name_is_needed_is_ambiguous():
    actual = ActualTable((ActualColumn("id", "", 1), ActualColumn("a", "")))
    assert "hold the names a" in refused(actual, shown(ID), shown(ID, column(2, "a")))


def test_a_column_of_both_versions_that_is_missing_is_ambiguous_for_its_values_are_gone():
    schema = shown(ID, column(2, "a"))
    assert "columns a " in refused(ActualTable((ActualColumn("id", "", 1),)), schema, schema)


def test_the_error_names_what_is_there_and_what_was_expected_before_and_after():
    message = refused(
        ActualTable((ActualColumn("x", "", 9), ActualColumn("mine", ""))),
        shown(ID, column(2, "a")),
        shown(ID, column(2, "b")),
    )
    assert "it has: x (9), mine (untagged)" in message
    assert "before: id (1), a (2)" in message
    assert "after: id (1), b (2)" in message


def test_a_drop_is_only_planned_for_columns_a_version_knows():
    columns = (ID, column(2, "a"))
    hidden_before_and_after = shown(*columns, hidden=(2,))
    actual = ActualTable((ActualColumn("id", "", 1), ActualColumn("a", "", 2)))
    assert planned(hidden_before_and_after, hidden_before_and_after, actual) == (DropColumn(2, "a"),)


def test_without_tags_the_previous_names_mean_nothing_was_done_yet():
    previous, target = shown(ID, column(2, "a")), shown(ID, column(2, "b"), column(3, "c"))
    actual = untagged(created(previous))
    assert planned(previous, target, actual) == planned(previous, target)


def test_without_tags_the_target_names_mean_everything_was_done():
    previous, target = shown(ID, column(2, "a")), shown(ID, column(2, "b"), column(3, "c"))
    assert planned(previous, target, untagged(created(target))) == ()


def test_without_tags_the_names_of_exactly_one_prefix_mean_the_rest_is_left():
    previous, target = shown(ID, column(2, "a")), shown(ID, column(2, "b"), column(3, "c"))
    half = ActualTable((ActualColumn("id", ""), ActualColumn("b", "")))
    assert planned(previous, target, half) == (AddColumn(target.columns[2]),)


def test_without_tags_a_temporary_name_tells_which_column_it_is():
    previous = shown(ID, column(2, "a"), column(3, "b"))
    target = shown(ID, column(2, "b"), column(3, "a"))
    half = ActualTable((ActualColumn("id", ""), ActualColumn(f"{TMP}2", ""), ActualColumn("b", "")))
    assert planned(previous, target, half) == planned(previous, target)[1:]


@pytest.mark.parametrize(
    ("previous", "target"),
    [
        (shown(ID, column(2, "a"), column(3, "b")), shown(ID, column(2, "b"), column(3, "a"))),
        (shown(ID, column(2, "a")), shown(ID, column(3, "a"))),
    ],
    ids=["an exchange", "a drop and re-add"],
)
def test_without_tags_what_looks_alike_before_and_after_is_ambiguous(
    previous: ReplicatedTableSchema, target: ReplicatedTableSchema
):
    assert "more than one state" in refused(untagged(created(previous)), previous, target)


def test_without_tags_names_of_no_known_state_are_ambiguous():
    actual = ActualTable((ActualColumn("id", ""), ActualColumn("what", "")))
    assert "no known state" in refused(actual, shown(ID, column(2, "a")), shown(ID))


def test_without_tags_and_without_a_previous_version_only_the_target_itself_is_recognised():
    target = shown(ID, column(2, "a"))
    assert planned(None, target, untagged(created(target))) == ()
    assert "no known state" in refused(ActualTable((ActualColumn("id", ""),)), None, target)


# --- the model ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operation",
    [
        DropColumn(2, "b"),
        DropColumn(1, "id"),
        RenameColumn(9, "id", "x"),
        RenameColumn(1, "id", "id"),
        AddColumn(column(5, "id")),
        DropDefault(2, "id"),
    ],
)
def test_the_model_refuses_what_an_engine_would_refuse(operation: SchemaOperation):
    with pytest.raises(ValueError, match="column"):
        apply_operation(ActualTable((ActualColumn("id", "", 1),)), operation)


def test_without_a_renderer_the_model_keeps_the_literals_text():
    target = column(1, "id")
    after = apply_operation(
        ActualTable((ActualColumn("id", "", 1),)),
        SetDefault(target, DefaultLiteral(LiteralKind.NUMERIC, "42")),
    )
    assert after.columns[0].default == "42"

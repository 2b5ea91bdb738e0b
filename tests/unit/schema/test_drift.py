from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from etl.schema.drift import Ambiguous, CatalogColumn, explain_drift
from etl.schema.relation import RelationShape, match_relation
from etl.schema.table import ColumnSchema, ReplicaIdentity, ReplicatedTableSchema, TableSchema
from tests.unit.schema.builders import INT4, INT8, TEXT, column, relation, snapshot, table

ID = column(1, "id", INT8, nullable=False, primary_key_ordinal=1)
STORED = table(ID, column(2, "a", default_expression="'x'::text"), column(3, "b"), max_attnum=3)


def today(
    *columns: ColumnSchema, dropped: tuple[int, ...] = (), unpublished: tuple[int, ...] = ()
) -> list[CatalogColumn]:
    alive = [
        CatalogColumn(
            c.attnum,
            c.name,
            c.type_oid,
            c.typmod,
            published=c.attnum not in unpublished,
            nullable=c.nullable,
            default_expression=c.default_expression,
            primary_key_ordinal=c.primary_key_ordinal,
            type_name=c.type_name,
            missing_value=c.missing_value,
        )
        for c in columns
    ]
    return [*alive, *(CatalogColumn(attnum, None, 0, dropped=True) for attnum in dropped)]


def healed(stored: TableSchema, shape: RelationShape, catalog: list[CatalogColumn]) -> TableSchema:
    found = explain_drift(stored, shape, catalog)
    assert isinstance(found, TableSchema), found
    assert isinstance(match_relation(found, shape), ReplicatedTableSchema)
    return found


def names(schema: TableSchema) -> dict[int, str]:
    return {c.attnum: c.name for c in schema.columns}


def refused(stored: TableSchema, shape: RelationShape, catalog: list[CatalogColumn]) -> str:
    found = explain_drift(stored, shape, catalog)
    assert isinstance(found, Ambiguous), found
    return found.reason


def test_an_unlogged_rename_is_healed_and_the_column_keeps_its_identity():
    found = healed(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("z", TEXT)),
        today(ID, column(2, "a"), column(3, "z")),
    )
    assert names(found) == {1: "id", 2: "a", 3: "z"}
    assert found.columns[1] == STORED.columns[1]
    assert found.snapshot_id == STORED.snapshot_id


def test_an_unlogged_exchange_of_names_is_healed():
    found = healed(
        STORED,
        relation(("id", INT8), ("b", TEXT), ("a", TEXT)),
        today(ID, column(2, "b"), column(3, "a")),
    )
    assert names(found) == {1: "id", 2: "b", 3: "a"}


def test_an_unlogged_add_is_healed_with_what_todays_catalog_says_of_the_column():
    new = column(
        4, "new", INT4, nullable=False, default_expression="5", missing_value="5", type_name="integer"
    )
    found = healed(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("new", INT4)),
        today(*STORED.columns, new),
    )
    assert found.columns[3] == new
    assert found.max_attnum == 4


def test_an_unlogged_add_of_two_columns_is_healed():
    found = healed(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("x", TEXT), ("y", TEXT)),
        today(*STORED.columns, column(4, "x"), column(5, "y")),
    )
    assert names(found) == {1: "id", 2: "a", 3: "b", 4: "x", 5: "y"}


def test_a_column_added_after_the_row_was_written_is_not_part_of_the_healed_schema():
    found = healed(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("x", TEXT)),
        today(*STORED.columns, column(4, "x"), column(5, "later")),
    )
    assert names(found) == {1: "id", 2: "a", 3: "b", 4: "x"}


def test_an_unlogged_drop_is_healed_together_with_what_else_changed():
    found = healed(
        STORED,
        relation(("id", INT8), ("z", TEXT)),
        today(ID, column(3, "z"), dropped=(2,)),
    )
    assert names(found) == {1: "id", 3: "z"}


def test_an_unlogged_change_of_type_is_healed():
    found = healed(
        STORED,
        relation(("id", INT8), ("a", INT4), ("b", TEXT)),
        today(ID, column(2, "a", INT4, type_name="integer"), column(3, "b")),
    )
    assert (found.columns[1].type_oid, found.columns[1].type_name) == (INT4, "integer")


def test_a_column_dropped_since_may_have_had_any_name():
    found = healed(
        STORED,
        relation(("id", INT8), ("who knows", TEXT), ("b", TEXT)),
        today(ID, column(3, "b"), dropped=(2,)),
    )
    assert names(found) == {1: "id", 2: "who knows", 3: "b"}


def test_a_column_added_unlogged_and_dropped_since_is_healed_when_nothing_else_explains_it():
    found = healed(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("gone", INT4)),
        today(*STORED.columns, dropped=(4,)),
    )
    assert names(found) == {1: "id", 2: "a", 3: "b", 4: "gone"}


def test_the_replica_identity_of_relation_is_taken_over():
    shape = relation(("id", INT8), ("a", TEXT), ("z", TEXT), key=("z",), identity=ReplicaIdentity.INDEX)
    found = healed(STORED, shape, today(ID, column(2, "a"), column(3, "z")))
    assert (found.identity, found.identity_attnums) == (ReplicaIdentity.INDEX, (3,))


def test_a_column_outside_the_column_list_stays_as_it_was_stored():
    found = healed(
        STORED,
        relation(("id", INT8), ("z", TEXT)),
        today(ID, column(2, "a"), column(3, "z"), unpublished=(2,)),
    )
    assert names(found) == {1: "id", 2: "a", 3: "z"}


def test_the_healed_version_keeps_the_stored_version_key():
    found = healed(
        STORED.at(snapshot(7)),
        relation(("id", INT8), ("a", TEXT), ("z", TEXT)),
        today(ID, column(2, "a"), column(3, "z")),
    )
    assert found.snapshot_id == snapshot(7)


def test_an_unlogged_add_followed_by_a_drop_and_re_add_of_the_name_is_ambiguous():
    reason = refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("x", TEXT)),
        today(*STORED.columns, column(5, "x"), dropped=(4,)),
    )
    assert "x = attnum 4" in reason
    assert "x = attnum 5" in reason


def test_a_drop_and_re_add_of_the_last_column_is_ambiguous_for_both_relations_look_alike():
    refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT)),
        today(ID, column(2, "a"), column(4, "b"), dropped=(3,)),
    )


def test_a_name_given_to_another_column_since_does_not_decide():
    # the row was written under 4 = y; then 4 became x and 5 was added as y
    reason = refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("y", TEXT)),
        today(*STORED.columns, column(4, "x"), column(5, "y")),
    )
    assert "column y" in reason


def test_a_dropped_columns_old_place_and_a_new_column_that_was_renamed_since_are_ambiguous():
    # unlogged: drop a, add y; logged later: rename y to x
    refused(
        table(ID, column(2, "a"), max_attnum=2),
        relation(("id", INT8), ("y", TEXT)),
        today(ID, column(3, "x"), dropped=(2,)),
    )


def test_a_name_that_is_neither_stored_nor_present_is_refused_and_named():
    reason = refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("passing", TEXT)),
        today(ID, column(2, "a"), column(3, "z")),
    )
    assert "column passing" in reason


def test_a_type_that_is_neither_stored_nor_present_is_refused_and_named():
    reason = refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", INT4)),
        today(ID, column(2, "a"), column(3, "b", INT8)),
    )
    assert "column b" in reason
    assert "type" in reason


def test_columns_that_no_attnum_is_left_for_are_refused_and_named():
    reason = refused(
        STORED,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT), ("x", TEXT)),
        today(*STORED.columns),
    )
    assert "id, a, b, x" in reason


def test_a_tombstone_of_the_stored_version_never_comes_back_to_life():
    stored = table(ID, column(3, "b"), max_attnum=3)
    refused(
        stored,
        relation(("id", INT8), ("a", TEXT), ("b", TEXT)),
        today(ID, column(3, "b"), dropped=(2,)),
    )


def test_a_dropped_table_has_no_catalog_and_no_explanation():
    refused(STORED, relation(("id", INT8), ("z", TEXT)), [])


def test_another_tables_relation_is_refused():
    with pytest.raises(ValueError, match="oid"):
        explain_drift(replace(STORED, oid=1), relation(("id", INT8)), today(ID))


# --- soundness: whatever happened, a healed schema is the true one ----------------------------------------------------


Step = tuple[str, int, int]

steps = st.tuples(
    st.sampled_from(("add", "drop", "rename", "swap", "retype")), st.integers(0, 5), st.integers(0, 5)
)
POOL = ("a", "b", "c", "d")


@dataclass
class History:
    """A table that statements change; attnums are given out as Postgres does."""

    columns: dict[int, ColumnSchema]
    highest: int

    def run(self, *taken: Step) -> TableSchema:
        """The table after these statements; what is impossible is left out. `x` and `y` choose column and name."""
        for kind, x, y in taken:
            free = [n for n in POOL if n not in {c.name for c in self.columns.values()}]
            movable = [a for a in self.columns if a != 1]
            if kind == "add" and free:
                self.highest += 1
                name, type_oid = free[y % len(free)], (TEXT, INT4)[x % 2]
                self.columns[self.highest] = column(self.highest, name, type_oid)
            elif kind != "add" and movable:
                self._change(kind, movable[x % len(movable)], movable[y % len(movable)], free, y)
        return table(*(self.columns[a] for a in sorted(self.columns)), max_attnum=self.highest)

    def _change(self, kind: str, attnum: int, other: int, free: list[str], y: int) -> None:
        one = self.columns[attnum]
        if kind == "drop":
            del self.columns[attnum]
        elif kind == "rename" and free:
            self.columns[attnum] = replace(one, name=free[y % len(free)])
        elif kind == "swap":
            self.columns[attnum] = replace(one, name=self.columns[other].name)
            self.columns[other] = replace(self.columns[other], name=one.name)
        elif kind == "retype":
            self.columns[attnum] = replace(one, type_oid=INT4 if one.type_oid == TEXT else TEXT)


def history() -> History:
    return History({1: column(1, "id", INT8), 2: column(2, "a")}, 2)


@settings(max_examples=500)
@given(st.lists(steps, max_size=4), st.lists(steps, max_size=4), st.lists(steps, max_size=4))
def test_a_healed_schema_is_the_one_the_table_really_had(
    logged: list[Step], unlogged: list[Step], since: list[Step]
):
    source = history()
    stored = source.run(*logged)
    truth = source.run(*unlogged)
    alive = source.run(*since)
    graves = tuple(a for a in range(1, source.highest + 1) if a not in source.columns)
    shape = relation(*((c.name, c.type_oid) for c in truth.columns), key=())
    found = explain_drift(stored, shape, today(*alive.columns, dropped=graves))
    event("healed" if isinstance(found, TableSchema) else "ambiguous")
    if isinstance(found, TableSchema):
        assert names(found) == names(truth)


@given(st.lists(steps.filter(lambda step: step[0] != "drop"), min_size=1, max_size=4))
def test_when_the_reader_is_up_to_date_and_nothing_was_dropped_drift_always_heals(unlogged: list[Step]):
    source = history()
    stored = source.run()
    truth = source.run(*unlogged)
    shape = relation(*((c.name, c.type_oid) for c in truth.columns), key=())
    assert names(healed(stored, shape, today(*truth.columns))) == names(truth)

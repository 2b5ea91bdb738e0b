"""Folding a run: what it says of every key, done to a plain dict, comes to what the changes one by one come to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.destinations.fold import Fold, fold_by_key
from etl.destinations.runs import JoinedRun, join_runs
from etl.errors import DestinationTableError
from etl.schema.table import ReplicaIdentity, ReplicatedTableSchema
from etl.testing.builders import (
    DATE,
    INT4,
    INT8,
    Change,
    Delete,
    Insert,
    Stream,
    Update,
    column,
    table_schema,
)

Row = dict[str, Any]
Key = tuple[Any, ...]

INT4_ARRAY = 1007
VALUES = [column("note", 8), column("doc", 9)]
BY_ID = table_schema(column("id", 1, INT8), *VALUES)
BY_ID_IN_FULL = table_schema(column("id", 1, INT8), *VALUES, identity=ReplicaIdentity.FULL)
BY_TWO = table_schema(column("a", 1), column("b", 2, INT4), *VALUES, key=("a", "b"))
BY_DAY = table_schema(column("day", 1, DATE), *VALUES, key=("day",))
BY_ARRAY = table_schema(column("path", 1, INT4_ARRAY), *VALUES, key=("path",))

#: Schemas, and five keys each.
WORLDS: list[tuple[ReplicatedTableSchema, list[Row]]] = [
    (BY_ID, [{"id": n} for n in (0, 1, -1, 2**63 - 1, -(2**63))]),
    (BY_ID_IN_FULL, [{"id": n} for n in range(5)]),
    (BY_TWO, [{"a": a, "b": b} for a, b in (("", 0), ("x", 0), ("x", 1), ("", 1), ("é", -1))]),
    (BY_DAY, [{"day": date(2026, 1, n)} for n in range(1, 6)]),
    (BY_ARRAY, [{"path": path} for path in ([], [1], [1, 2], [2, 1], [None])]),
]


def key_of(schema: ReplicatedTableSchema, row: Row) -> Key:
    return tuple(str(row[c.name]) for c in schema.key_columns)


@dataclass
class History:
    """A table before, changes that Postgres could have made to it, and the table after, by one change at a time."""

    schema: ReplicatedTableSchema
    before: dict[Key, Row]
    changes: list[Change] = field(default_factory=list)
    after: dict[Key, Row] = field(default_factory=dict)

    def insert(self, new: Row) -> None:
        self.after[key_of(self.schema, new)] = new
        self.changes.append(Insert(new))

    def update(self, old: Row, new: Row, unchanged: frozenset[str]) -> None:
        moved = key_of(self.schema, old) != key_of(self.schema, new)
        del self.after[key_of(self.schema, old)]
        row = {name: old[name] if name in unchanged else value for name, value in new.items()}
        self.after[key_of(self.schema, row)] = row
        sends_old = moved or self.schema.old_image_is_full
        self.changes.append(Update(row, dict(old) if sends_old else None, unchanged))

    def delete(self, old: Row) -> None:
        del self.after[key_of(self.schema, old)]
        self.changes.append(Delete(dict(old)))


@st.composite
def histories(draw: st.DrawFn) -> History:
    schema, keys = draw(st.sampled_from(WORLDS))
    numbers = iter(range(1000))

    def row(key: Row) -> Row:
        return {**key, "note": f"n{next(numbers)}", "doc": draw(st.sampled_from([f"d{next(numbers)}", None]))}

    living = {key_of(schema, key): row(key) for key in draw(st.lists(st.sampled_from(keys), unique_by=str))}
    history = History(schema, dict(living), after=dict(living))
    for _ in range(draw(st.integers(1, 14))):
        free = [key for key in keys if key_of(schema, key) not in history.after]
        rows = list(history.after.values())
        options = ["insert"] * bool(free) + ["update", "delete"] * bool(rows) + ["move"] * bool(free and rows)
        what = draw(st.sampled_from(options))
        if what == "insert":
            history.insert(row(draw(st.sampled_from(free))))
            continue
        old = draw(st.sampled_from(rows))
        if what == "delete":
            history.delete(old)
            continue
        key = (
            draw(st.sampled_from(free))
            if what == "move"
            else {c.name: old[c.name] for c in schema.key_columns}
        )
        history.update(old, row(key), draw(st.frozensets(st.sampled_from(["note", "doc"]))))
    return history


def folded(history: History, cuts: Sequence[int] = ()) -> tuple[JoinedRun, Fold]:
    """The changes as runs of the stream, cut at some places, joined and folded."""
    run = Stream().rows(history.schema, *history.changes)
    ends = [0, *sorted({cut for cut in cuts if 0 < cut < len(run)}), len(run)]
    joined = join_runs([run.slice(start, stop) for start, stop in itertools.pairwise(ends)])
    return joined, fold_by_key(joined, "public.t")


def applied(history: History, fold: Fold) -> dict[Key, Row]:
    """What a fold makes of the table before."""
    schema, table = history.schema, dict(history.before)
    rows = fold.rows.to_pylist()
    if fold.partial is not None:
        roots = fold.partial.roots.to_pylist()
        for place, row in enumerate(rows):
            for name, missing in fold.partial.missing.items():
                if missing[place]:
                    assert row[name] is None
                    row[name] = history.before[key_of(schema, roots[fold.partial.root[place]])][name]
    for gone in fold.gone.to_pylist():
        del table[key_of(schema, gone)]
    for row in rows:
        assert key_of(schema, row) not in table
        table[key_of(schema, row)] = row
    return table


CUTS = st.lists(st.integers(1, 13), max_size=3)


@given(histories(), CUTS)
@settings(max_examples=400)
def test_a_fold_comes_to_what_the_changes_one_by_one_come_to(history: History, cuts: list[int]):
    _, fold = folded(history, cuts)
    assert applied(history, fold) == history.after


@given(histories(), CUTS)
@settings(max_examples=200)
def test_every_key_is_told_as_what_it_was_and_what_it_becomes(history: History, cuts: list[int]):
    _, fold = folded(history, cuts)
    schema = history.schema
    gone = [key_of(schema, row) for row in fold.gone.to_pylist()]
    born = [key_of(schema, row) for row in fold.rows.to_pylist()]
    assert len(set(gone)) == len(gone)
    assert set(gone) <= set(history.before)
    assert (
        fold.returns.tolist() == [key in history.after for key in gone] == [key in set(born) for key in gone]
    )
    assert len(set(born)) == len(born)
    assert set(born) <= set(history.after)
    assert (
        fold.existed.tolist() == [key in history.before for key in born] == [key in set(gone) for key in born]
    )


@given(histories(), CUTS)
@settings(max_examples=200)
def test_what_a_row_still_lacks_is_told_with_where_it_was(history: History, cuts: list[int]):
    _, fold = folded(history, cuts)
    partial = fold.partial
    if partial is None:
        return
    schema, rows = history.schema, fold.rows.to_pylist()
    roots = [key_of(schema, row) for row in partial.roots.to_pylist()]
    assert len(set(roots)) == len(roots)
    assert set(roots) <= set(history.before)
    assert all(mask.any() for mask in partial.missing.values())
    lacking = np.any(list(partial.missing.values()), axis=0)
    assert ((partial.root >= 0) == lacking).all()
    assert set(partial.root[lacking].tolist()) == set(range(len(roots)))
    moved = [key_of(schema, rows[place]) != roots[partial.root[place]] for place in np.flatnonzero(lacking)]
    assert partial.moved is any(moved)


@given(histories())
def test_without_values_left_out_nothing_is_lacking(history: History):
    if not any(isinstance(change, Update) and change.unchanged for change in history.changes):
        assert folded(history)[1].partial is None


# --- by example -------------------------------------------------------------------------------------------------

A1, A2, B1 = ({"id": n, "note": note, "doc": "d"} for n, note in ((1, "1"), (1, "2"), (2, "3")))

#: changes, keys that existed and go, which of them return, keys that stay, which of them existed
EXAMPLES: dict[str, tuple[list[Change], list[int], list[bool], list[int], list[bool]]] = {
    "an insert is new": ([Insert(A1)], [], [], [1], [False]),
    "an update existed and returns": ([Update(A2)], [1], [True], [1], [True]),
    "a delete existed and goes": ([Delete(A1)], [1], [False], [], []),
    "an insert that is deleted again never was": ([Insert(A1), Delete(A1)], [], [], [], []),
    "a delete with an insert is one that returns": ([Delete(A1), Insert(A2)], [1], [True], [1], [True]),
    "a moved row goes and is new elsewhere": ([Update(B1, A1)], [1], [False], [2], [False]),
    "a row that moves there and back returns": ([Update(B1, A1), Update(A1, B1)], [1], [True], [1], [True]),
    "two rows may take each other's place": (
        [Delete(A1), Update({**A1, "id": 1}, B1), Insert(B1)],
        [1, 2],
        [True, True],
        [1, 2],
        [True, True],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "gone", "returns", "born", "existed"), EXAMPLES.values(), ids=EXAMPLES)
def test_by_example(
    changes: list[Change], gone: list[int], returns: list[bool], born: list[int], existed: list[bool]
):
    fold = fold_by_key(join_runs([Stream().rows(BY_ID, *changes)]), "public.t")
    assert dict(zip(fold.gone["id"].to_pylist(), fold.returns.tolist(), strict=True)) == dict(
        zip(gone, returns, strict=True)
    )
    assert dict(zip(fold.rows["id"].to_pylist(), fold.existed.tolist(), strict=True)) == dict(
        zip(born, existed, strict=True)
    )


@pytest.mark.parametrize(
    ("schema", "changes", "said"),
    [
        (BY_ID, [Insert({"note": "secret"})], "'id'"),
        (BY_ID, [Insert(A1), Update({"id": None, "note": "secret"}, A1)], "'id'"),
        (BY_ID, [Delete({"id": None})], "'id'"),
        (BY_TWO, [Insert({"a": "secret"})], "'b'"),
    ],
)
def test_a_key_that_is_null_is_refused_and_named(
    schema: ReplicatedTableSchema, changes: list[Change], said: str
):
    with pytest.raises(DestinationTableError) as caught:
        fold_by_key(join_runs([Stream().rows(schema, *changes)]), "public.t")
    assert said in caught.value.message
    assert caught.value.table == "public.t"
    assert "secret" not in str(caught.value)


def test_a_delete_without_an_old_image_is_refused():
    run = Stream().rows(BY_ID, Delete(A1))
    run.old_index[:] = -1
    with pytest.raises(DestinationTableError, match="without the old row's key"):
        fold_by_key(join_runs([run]), "public.t")

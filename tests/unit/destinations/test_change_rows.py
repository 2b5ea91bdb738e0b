"""The rows of a changelog: every change with what it was, where it stood and what it did not send."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.destinations.change_rows import METADATA, change_rows, copied_rows, truncate_row
from etl.destinations.runs import join_runs
from etl.schema.table import ReplicaIdentity
from etl.testing.builders import (
    INT8,
    Change,
    Delete,
    Insert,
    Stream,
    Update,
    batch,
    column,
    table_schema,
)

COLUMNS = (column("id", 1, INT8), column("note", 2), column("doc", 3))
BY_KEY = table_schema(*COLUMNS)
IN_FULL = table_schema(*COLUMNS, key=(), identity=ReplicaIdentity.FULL)
ROW = {"id": 1, "note": "n", "doc": "d"}
NOTHING = {"id": None, "note": None, "doc": None}

#: schema, change, operation, values, names of what was not sent
CHANGES: dict[str, tuple[Any, Change, str, dict[str, Any], list[str] | None]] = {
    "an insert": (BY_KEY, Insert(ROW), "insert", ROW, None),
    "an update": (BY_KEY, Update(ROW), "update", ROW, None),
    "an update that left values out": (
        BY_KEY,
        Update(ROW, unchanged=frozenset({"note", "doc"})),
        "update",
        {"id": 1, "note": None, "doc": None},
        ["note", "doc"],
    ),
    "an update of the key": (BY_KEY, Update(ROW, {"id": 9}), "update", ROW, None),
    "a delete by key": (BY_KEY, Delete(ROW), "delete", {"id": 1, "note": None, "doc": None}, None),
    "a delete by the whole row": (IN_FULL, Delete(ROW), "delete", ROW, None),
}


@pytest.mark.parametrize(("schema", "change", "operation", "values", "unsent"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_one_row(
    schema: Any, change: Change, operation: str, values: dict[str, Any], unsent: list[str] | None
):
    stream = Stream(commit_lsn=2**63 + 5, timestamp=1)
    (row,) = change_rows(join_runs([stream.rows(schema, change)])).to_pylist()
    assert {name: row[name] for name in NOTHING} == values
    assert (row["_etl_op"], row["_etl_unchanged"]) == (operation, unsent)
    assert (row["_etl_commit_lsn"], row["_etl_ordinal"]) == (2**63 + 5, 1)
    assert row["_etl_commit_ts"].isoformat() == "1970-01-01T00:00:00.000001+00:00"


KINDS = st.lists(
    st.sampled_from(["insert", "update", "left out", "moved", "delete"]), min_size=1, max_size=12
)


@given(KINDS, st.integers(0, 12))
def test_changes_keep_their_order_and_places_however_the_stream_was_cut(kinds: list[str], cut: int):
    run = Stream().rows(BY_KEY, *(_change(kind, number) for number, kind in enumerate(kinds)))
    cut = min(cut, len(run))
    parts = [part for part in (run.slice(0, cut), run.slice(cut)) if len(part)]
    rows = change_rows(join_runs(parts))
    assert rows.schema == pa.schema([*run.new.schema, *METADATA])
    told = rows.to_pylist()
    assert [row["_etl_ordinal"] for row in told] == list(range(1, len(kinds) + 1))
    assert [row["id"] for row in told] == list(range(len(kinds)))
    assert [row["_etl_op"] for row in told] == [_OPERATION.get(kind, "update") for kind in kinds]
    assert [row["_etl_unchanged"] for row in told] == [
        ["doc"] if kind == "left out" else None for kind in kinds
    ]
    assert [row["doc"] for row in told] == [
        None if kind in {"left out", "delete"} else f"d{number}" for number, kind in enumerate(kinds)
    ]


_OPERATION = {"insert": "insert", "delete": "delete"}


def _change(kind: str, number: int) -> Change:
    row = {"id": number, "note": f"n{number}", "doc": f"d{number}"}
    match kind:
        case "insert":
            return Insert(row)
        case "delete":
            return Delete(row)
        case "moved":
            return Update(row, {"id": -number})
        case "left out":
            return Update(row, unchanged=frozenset({"doc"}))
        case _:
            return Update(row)


def test_copied_rows_stand_at_position_zero():
    rows = copied_rows(pa.Table.from_batches([batch(BY_KEY, [ROW, NOTHING])]))
    assert rows.schema == pa.schema([*batch(BY_KEY, []).schema, *METADATA])
    metadata = {"_etl_op": "copy", "_etl_commit_lsn": 0, "_etl_ordinal": 0, "_etl_commit_ts": None}
    assert rows.to_pylist() == [{**row, **metadata, "_etl_unchanged": None} for row in (ROW, NOTHING)]


def test_a_copy_without_rows_has_the_columns_all_the_same():
    rows = copied_rows(pa.Table.from_batches([batch(BY_KEY, [])]))
    assert (rows.num_rows, rows.schema) == (0, pa.schema([*batch(BY_KEY, []).schema, *METADATA]))


def test_a_truncate_is_one_row_of_metadata():
    stream = Stream(commit_lsn=7, timestamp=0)
    rows = truncate_row(stream.truncate(BY_KEY))
    assert rows.schema == METADATA
    (row,) = rows.to_pylist()
    assert (row["_etl_op"], row["_etl_commit_lsn"], row["_etl_ordinal"]) == ("truncate", 7, 1)
    assert row["_etl_unchanged"] is None

"""Fold a run to its net effect per key, in whole columns.

A change of the stream kills the row under its old key, bears one under its new key, or both. Postgres keeps keys
unique after every single change, so per key the kills and births alternate, and the net effect is told by two
events: when the first one kills, a row existed before the run and goes; when the last one bears, its row stays.

A value that was not sent (unchanged TOAST) is the one its row had before the update. It is followed backwards through
the run, over key changes too, by pointer jumping; what still has no value then is at the destination, under the key
which the row had before the run: its root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.destinations.runs import JoinedRun
from etl.errors import DestinationTableError
from etl.events.types import BoolArray

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Partial:
    """Rows of a fold that need values from the destination.

    `roots` has one row of key columns per distinct root; `root` (k entries, one per row of the fold) is the index into
    it, -1 for a row that is complete; `missing` tells per column name which of the k rows take its value from there;
    `moved` is True when a root has another key than its row: the row changed its key in this run.
    """

    roots: pa.Table
    root: Int64s
    missing: Mapping[str, BoolArray]
    moved: bool


@dataclass(frozen=True, slots=True)
class Fold:
    """The net effect: delete the rows under `gone`, then insert `rows`.

    `gone` holds the key columns of the g distinct keys that existed before the run, `returns` which of them have a row
    among `rows` again; `rows` the k rows to insert, all columns, `existed` which of their keys are among `gone`;
    `partial` what they still lack.
    """

    gone: pa.Table
    returns: BoolArray
    rows: pa.Table
    existed: BoolArray
    partial: Partial | None = None


def fold_by_key(run: JoinedRun, table: str) -> Fold:
    """Fold `run` by the key columns of its schema; at least one.

    Raises `DestinationTableError` (of `table`) when a key value is NULL, or a delete carries no old image.
    """
    if run.is_insert.all() and not run.unchanged:
        _refuse_null_keys(run, table)
        nothing = np.zeros(0, np.bool_)
        return Fold(_keys(run).slice(0, 0), nothing, run.new, np.zeros(len(run), np.bool_))
    _refuse_null_keys(run, table)
    keys = _keys(run)
    events = _events(run, keys)
    order = np.argsort(events.code, kind="stable")
    starts = _group_starts(events.code[order])
    first, last = order[starts], order[np.append(starts[1:], len(order)) - 1]
    existed, stays = events.kills[first], events.births[last]
    final, by_row = np.unique(events.row[last[stays]], return_index=True)
    gone = keys.take(pa.array(events.key[first[existed]]))
    returns, existed_rows = stays[existed], existed[stays][by_row]
    if not any(mask[final].any() for mask in run.unchanged.values()):
        kept = np.zeros(len(run), np.bool_)
        kept[final] = True
        rows = run.new if kept.all() else run.new.filter(pa.array(kept))
        return Fold(gone, returns, rows, existed_rows)
    rows, partial = _resolve(run, keys, final, _previous_rows(run, events, order, starts))
    return Fold(gone, returns, rows, existed_rows, partial)


@dataclass(frozen=True, slots=True)
class _Events:
    """n + (number of key changes) entries in stream order.

    `code` says which key, `row` which change, `key` where the key's values stand in the table of `_keys`.
    """

    code: Int64s
    row: Int64s
    key: Int64s
    kills: BoolArray
    births: BoolArray


def _keys(run: JoinedRun) -> pa.Table:
    """The key columns of the n new rows, then of the m old images."""
    names = [column.name for column in run.schema.key_columns]
    return pa.concat_tables([run.new.select(names), run.old.select(names)])


def _old_keys(run: JoinedRun) -> Int64s:
    """Per change, where the key that it kills stands in `_keys`: its old image's, or else its own."""
    return np.where(run.has_old, len(run) + run.old_index, np.arange(len(run)))


def _events(run: JoinedRun, keys: pa.Table) -> _Events:
    codes = _codes(keys.columns)
    own = np.arange(len(run))
    killed = _old_keys(run)
    moved = run.is_update & (codes[killed] != codes[own])
    row = np.repeat(own, 1 + moved)
    second = np.zeros(len(row), np.bool_)
    second[np.cumsum(1 + moved)[moved] - 1] = True
    leaves = moved[row] & ~second
    kills = ~run.is_insert[row] & ~second
    births = ~run.is_delete[row] & ~leaves
    key = np.where(kills, killed[row], row)
    return _Events(code=codes[key], row=row, key=key, kills=kills, births=births)


def _previous_rows(run: JoinedRun, events: _Events, order: Int64s, starts: Int64s) -> Int64s:
    """Per change, the change of this run whose row it replaced; -1 when that row is older than the run."""
    before = np.empty(len(order), np.int64)
    before[order[1:]] = order[:-1]
    before[order[starts]] = -1
    replaces = events.kills & (before >= 0)
    replaces[replaces] &= events.births[before[replaces]]
    previous = np.full(len(run), -1, np.int64)
    previous[events.row[replaces]] = events.row[before[replaces]]
    return previous


def _resolve(
    run: JoinedRun, keys: pa.Table, final: Int64s, previous: Int64s
) -> tuple[pa.Table, Partial | None]:
    """The final rows with what the run itself knows, and what they still lack."""
    rows = run.new.take(pa.array(final))
    root_change = np.full(len(final), -1, np.int64)
    missing: dict[str, BoolArray] = {}
    for name, unchanged in run.unchanged.items():
        source = _follow(np.where(unchanged & (previous >= 0), previous, np.arange(len(run))))[final]
        place = run.new.schema.get_field_index(name)
        rows = rows.set_column(
            place, run.new.schema.field(place), run.new.column(place).take(pa.array(source))
        )
        at_destination = unchanged[source]
        if at_destination.any():
            missing[name] = at_destination
            root_change[at_destination] = source[at_destination]
    if not missing:
        return rows, None
    has_root = root_change >= 0
    changes, index = np.unique(root_change[has_root], return_inverse=True)
    root = np.full(len(final), -1, np.int64)
    root[has_root] = index
    root_keys = _old_keys(run)[changes]
    own, theirs = keys.take(pa.array(final[has_root])), keys.take(pa.array(root_keys[index]))
    codes = _codes(
        [pa.chunked_array([*a.chunks, *b.chunks]) for a, b in zip(own.columns, theirs.columns, strict=True)]
    )
    moved = not np.array_equal(codes[: own.num_rows], codes[own.num_rows :])
    return rows, Partial(roots=keys.take(pa.array(root_keys)), root=root, missing=missing, moved=moved)


def _follow(pointers: Int64s) -> Int64s:
    """Where each pointer ends; an end points at itself."""
    while True:
        further = pointers[pointers]
        if np.array_equal(further, pointers):
            return pointers
        pointers = further


def _codes(columns: Sequence[pa.ChunkedArray]) -> Int64s:
    """A number per row, equal for rows that are equal in all `columns`."""
    if len(columns) == 1 and pa.types.is_signed_integer(columns[0].type):
        # a delete has no new row: its own key is NULL here and never looked at
        return np.asarray(pc.fill_null(columns[0], 0).to_numpy(), np.int64)
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes *= len(codes) + 1
        codes += _dictionary_codes(column)
        # ranks again, so that the next product stays below 2⁶³ for any number of columns
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _dictionary_codes(column: pa.ChunkedArray) -> Int64s:
    if pa.types.is_nested(column.type):
        # Arrow hashes no lists; a key with an array in it is rare enough for a row at a time
        column = pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.string())])
    # one dictionary for all chunks, so the indices of all of them mean the same
    chunks = pc.dictionary_encode(column, null_encoding="encode").chunks
    return np.concatenate([np.zeros(0, np.int64), *(np.asarray(chunk.indices, np.int64) for chunk in chunks)])


def _group_starts(ordered: Int64s) -> Int64s:
    return np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))


def _refuse_null_keys(run: JoinedRun, table: str) -> None:
    if (run.is_delete & ~run.has_old).any():
        raise DestinationTableError(
            "a delete arrived without the old row's key",
            hint="the table has no usable replica identity: see REPLICA IDENTITY in the Postgres manual",
            table=table,
        )
    born = ~run.is_delete
    for column in run.schema.key_columns:
        new = run.new.column(column.name)
        living = new if born.all() else new.filter(pa.array(born))
        if living.null_count or run.old.column(column.name).null_count:
            raise DestinationTableError(
                f"key column {column.name!r} holds NULL, or a value that its type cannot hold here",
                hint="a row without a key cannot be addressed: keep this table in changelog mode",
                table=table,
            )

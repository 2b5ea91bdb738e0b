"""Keep the current state of a table with a key: one MERGE per write, one commit.

The fold says of every key whether it existed before (see `etl.destinations.fold`), so each source row knows what it is:
a delete, an update or an insert. Values that the stream did not send are left as the row has them; only when a row
changed its key in the same run are they looked up under the old one. Key ranges in the condition let Delta skip the files
that hold none of the keys.
"""

# ruff: noqa: S608 -- names go through `quote`; rows are staged columns, bounds are numbers
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from etl.destinations.delta.append import append
from etl.destinations.delta.prune import key_ranges
from etl.destinations.delta.shape import shaped
from etl.destinations.delta.writes import Write
from etl.destinations.fold import Fold, Partial, fold_by_key
from etl.destinations.runs import JoinedRun
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema, ReplicatedTableSchema

_DELETE: Final = "D"
_UPDATE: Final = "U"
_INSERT: Final = "I"


def merge_run(write: Write, run: JoinedRun) -> int:
    """Apply a run; returns how many old rows were not there. Raises `DestinationTableError`."""
    fold = fold_by_key(run, write.name)
    if not fold.gone.num_rows:
        append(write, run.schema.columns, _shaped(write, run.schema, fold.rows))
        return 0
    source = _source(write, run.schema, fold)
    partial = fold.partial
    with write.session.staged(source) as view:
        if partial is not None and partial.moved:
            roots = _roots(write, run.schema, partial)
            with write.session.staged(roots) as root_view:
                using = _with_moved_values(write, run.schema, partial, (view, root_view))
                counts = _merge(write, run.schema, source, using, missing=())
        else:
            missing = [] if partial is None else _missing_places(run.schema, partial)
            counts = _merge(write, run.schema, source, view, missing=missing)
    return _unmatched(fold, counts)


def overwrite_run(write: Write, run: JoinedRun) -> int:
    """Apply a run to a table that a TRUNCATE has just emptied, both in one commit; returns as `merge_run` does."""
    if run.schema.key_columns:
        fold = fold_by_key(run, write.name)
        rows, unmatched = fold.rows, int(fold.gone.num_rows)
    else:
        rows, unmatched = run.new.filter(pa.array(run.is_insert)), int((~run.is_insert).sum())
    append(write, run.schema.columns, shaped(write.shape, run.schema.columns, rows), overwrite=True)
    return unmatched


def _shaped(write: Write, schema: ReplicatedTableSchema, rows: pa.Table) -> pa.Table:
    """Rows as the destination takes them, each with a key it can be found by."""
    result = shaped(write.shape, schema.columns, rows)
    for place, column in enumerate(schema.columns):
        if column in schema.key_columns and result.column(place).null_count > rows.column(place).null_count:
            raise DestinationTableError(
                f"key column {column.name!r} holds a value that its type cannot hold here",
                hint="a row without a key cannot be addressed: keep this table in changelog mode",
                table=write.name,
            )
    return result


def _source(write: Write, schema: ReplicatedTableSchema, fold: Fold) -> pa.Table:
    """One row per key: its values, what is to be done (`op`), and which values its row already has (`m…`, `root`)."""
    leaving = fold.gone.filter(pa.array(~fold.returns))
    nulls = [
        leaving.column(field.name)
        if field.name in leaving.schema.names
        else pa.nulls(len(leaving), field.type)
        for field in fold.rows.schema
    ]
    everything = pa.concat_tables([fold.rows, pa.table(nulls, schema=fold.rows.schema)])
    ops = np.where(np.append(fold.existed, np.ones(len(leaving), np.bool_)), _UPDATE, _INSERT)
    ops[len(fold.existed) :] = _DELETE
    everything = everything.append_column("op", pa.array(ops, pa.string()))
    if fold.partial is not None:
        root = np.append(fold.partial.root, np.full(len(leaving), -1))
        everything = everything.append_column("root", pa.array(root, pa.int64()))
        for place, name in _missing_places(schema, fold.partial):
            mask = np.append(fold.partial.missing[name], np.zeros(len(leaving), np.bool_))
            everything = everything.append_column(f"m{place}", pa.array(mask))
    return _shaped(write, schema, everything)


def _missing_places(schema: ReplicatedTableSchema, partial: Partial) -> list[tuple[int, str]]:
    return [(place, c.name) for place, c in enumerate(schema.columns) if c.name in partial.missing]


def _roots(write: Write, schema: ReplicatedTableSchema, partial: Partial) -> pa.Table:
    keys = schema.key_columns
    ordered = partial.roots.select([key.name for key in keys])
    numbered = ordered.append_column("root", pa.array(np.arange(ordered.num_rows)))
    return shaped(write.shape, keys, numbered)


def _with_moved_values(
    write: Write, schema: ReplicatedTableSchema, partial: Partial, views: tuple[str, str]
) -> str:
    """The source with what its rows lack taken from the rows they were before their key changed."""
    source, roots = views
    lacking = dict(_missing_places(schema, partial))
    names = write.shape.names(schema.columns)
    same = " AND ".join(f"t.{name} = r.c{i}" for i, name in enumerate(write.shape.names(schema.key_columns)))
    kept = ", ".join(f"t.{names[place]} AS e{place}" for place in lacking)
    values = [
        f"CASE WHEN s.m{place} THEN e.e{place} ELSE s.c{place} END AS c{place}"
        if place in lacking
        else f"s.c{place}"
        for place in range(len(names))
    ]
    return (
        f"(SELECT {', '.join(values)}, s.op FROM {source} AS s LEFT JOIN (SELECT r.root, {kept} FROM {write.sql} AS t"
        f" JOIN {roots} AS r ON {same}) AS e ON e.root = s.root)"
    )


def _merge(
    write: Write,
    schema: ReplicatedTableSchema,
    rows: pa.Table,
    using: str,
    *,
    missing: Sequence[tuple[int, str]],
) -> tuple[int, int]:
    """Execute the MERGE; how many rows it deleted and how many it inserted."""
    names = write.shape.names(schema.columns)
    keys = [(place, column) for place, column in enumerate(schema.columns) if column in schema.key_columns]
    condition = " AND ".join(f"t.{names[place]} = s.c{place}" for place, _ in keys)
    pruning = _pruning(rows, keys, names)
    lacking = {place for place, _ in missing}
    key_places = {place for place, _ in keys}
    sets = [
        f"t.{name} = {f'CASE WHEN s.m{place} THEN t.{name} ELSE s.c{place} END' if place in lacking else f's.c{place}'}"
        for place, name in enumerate(names)
        if place not in key_places
    ]
    update = f" WHEN MATCHED THEN UPDATE SET {', '.join(sets)}" if sets else ""
    values = ", ".join(f"s.c{place}" for place in range(len(names)))
    found = write.commit(
        f"MERGE INTO {write.sql} AS t USING {using} AS s ON {condition}{pruning}"
        f" WHEN MATCHED AND s.op = '{_DELETE}' THEN DELETE{update}"
        f" WHEN NOT MATCHED AND s.op <> '{_DELETE}' THEN INSERT ({', '.join(names)}) VALUES ({values})",
    )
    # affected, updated, deleted, inserted
    return (int(found[0][2]), int(found[0][3])) if found else (0, 0)


def _pruning(rows: pa.Table, keys: Sequence[tuple[int, ColumnSchema]], names: Sequence[str]) -> str:
    for place, _ in keys:
        ranges = key_ranges(rows.column(place))
        if ranges is not None:
            return f" AND {ranges.condition(f't.{names[place]}')}"
    return ""


def _unmatched(fold: Fold, counts: tuple[int, int]) -> int:
    deleted, inserted = counts
    leaving = int((~fold.returns).sum())
    born = int((~fold.existed).sum())
    return max(leaving - deleted, 0) + max(inserted - born, 0)

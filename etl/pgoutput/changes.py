"""From the split tuples of one table to a run of `RowChanges`: typed columns, old images, unchanged TOAST."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from etl.errors import ValueConversionError
from etl.events import RowChanges, Unrepresentable
from etl.pgoutput.rows import RawRows
from etl.pgoutput.transactions import Placement
from etl.pgoutput.values import convert
from etl.pgoutput.wire import Bools, Int64s
from etl.schema.table import ColumnSchema, ReplicatedTableSchema
from etl.schema.types import TypeOptions, arrow_type


def build_changes(
    raw: RawRows, index: Int64s, placement: Placement, schema: ReplicatedTableSchema, options: TypeOptions
) -> RowChanges:
    """Type the columns of `raw`, whose messages stand at the frames `index`.

    Raises `ValueConversionError` naming table and column when a text cannot be of its type.
    """
    names = [column.name for column in schema.columns]
    new: list[pa.Array] = []
    unchanged: dict[str, Bools] = {}
    unrepresentable: list[Unrepresentable] = []
    old = _old_images(raw, schema, options)
    for j, column in enumerate(schema.columns):
        array, exact = _typed(raw.new_text(j).values, column, schema, options)
        unrepresentable += [Unrepresentable(row, column.attnum, text) for row, text in exact]
        missing = raw.unchanged(j)
        if missing is not None:
            array, missing = _fill_from_old(
                array, missing, raw, old, j, in_key=column in schema.identity_columns
            )
            if missing.any():
                unchanged[column.name] = missing
        new.append(array)
    return RowChanges(
        schema=schema,
        ops=raw.ops,
        commit_lsn=placement.commit_lsn[index],
        ordinal=placement.ordinal[index].astype(np.uint32),
        commit_timestamp=placement.timestamp[index],
        new=pa.RecordBatch.from_arrays(new, names=names),
        old=None if old is None else pa.RecordBatch.from_arrays(list(old), names=names),
        old_index=raw.old_index,
        unchanged=unchanged,
        unrepresentable=tuple(unrepresentable),
    )


def _old_images(
    raw: RawRows, schema: ReplicatedTableSchema, options: TypeOptions
) -> Sequence[pa.Array] | None:
    """The old images' columns; outside the identity a key image has only NULLs, which need no reading."""
    if raw.old is None:
        return None
    sent = set(schema.columns if schema.old_image_is_full else schema.identity_columns)
    return [
        _typed(raw.old_text(j).values, column, schema, options)[0]
        if column in sent
        else pa.nulls(len(raw.old), arrow_type(column.type_oid, column.typmod, options))
        for j, column in enumerate(schema.columns)
    ]


def _typed(
    text: pa.Array, column: ColumnSchema, schema: ReplicatedTableSchema, options: TypeOptions
) -> tuple[pa.Array, tuple[tuple[int, str], ...]]:
    try:
        converted = convert(text, column.type_oid, column.typmod, options)
    except ValueConversionError as error:
        raise ValueConversionError(
            f"column {column.name}: {error.message}", hint=error.hint, table=schema.qualified_name
        ) from error
    return converted.array, converted.unrepresentable


def _fill_from_old(
    array: pa.Array, missing: Bools, raw: RawRows, old: Sequence[pa.Array] | None, j: int, *, in_key: bool
) -> tuple[pa.Array, Bools]:
    """Take values that were not sent because they did not change from the old image, where it has them."""
    if old is None:
        return array, missing
    has_old = missing & (raw.old_index >= 0)
    if not has_old.any() or not (in_key or _is_full(raw)):
        return array, missing
    # by take, because Arrow's replace_with_mask knows no lists
    place = np.where(has_old, len(array) + raw.old_index, np.arange(len(array)))
    return pa.concat_arrays([array, old[j]]).take(pa.array(place)), missing & ~has_old


def _is_full(raw: RawRows) -> bool:
    return len(raw.old_kind) > 0 and bool((raw.old_kind == ord("O")).all())

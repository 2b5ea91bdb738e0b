"""The values that rows older than a column read at the source (``attmissingval``), as Arrow carries them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa

from etl.errors import ValueConversionError
from etl.pgoutput.values import convert
from etl.schema.table import ColumnSchema
from etl.schema.types import ArrayForm, NumericForm, TypeOptions, arrow_type

_TEXT_FORMS: Final = TypeOptions(numeric=NumericForm.TEXT, arrays=ArrayForm.TEXT)


def missing_values(columns: Sequence[ColumnSchema], carried: pa.Schema) -> pa.Table:
    """One row: per column the value that rows older than the column read at the source, else NULL."""
    return pa.table(
        [_missing_value(column, carried.field(index).type) for index, column in enumerate(columns)],
        names=[column.name for column in columns],
    )


def _missing_value(column: ColumnSchema, carried: pa.DataType) -> pa.Array:
    if column.missing_value is not None:
        options = TypeOptions() if arrow_type(column.type_oid, column.typmod) == carried else _TEXT_FORMS
        # a text that is cut short or not the type's stays unmatched, and is counted
        with suppress(ValueConversionError):
            text = pa.array([column.missing_value], pa.string())
            return convert(text, column.type_oid, column.typmod, options).array
    return pa.nulls(1, carried)

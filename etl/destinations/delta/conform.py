"""Arrow columns as a Delta table takes them, purely: nothing is lost, rounded or guessed on the way.

- What Spark has no type for becomes its text: a time of day.
- ±infinity of dates and timestamps, which Spark does not know, becomes NULL; `not_held` tells where.
- A source column's type may have changed since the table was made; its values are then cast to the type the column has
  here. A cast that would change a value is not made: the table fails, and says where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from etl.destinations.delta.dialect import arrow_of, type_of
from etl.errors import DestinationTableError
from etl.schema.table import ColumnSchema
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
)

Int64s = npt.NDArray[np.int64]

_DAY_US: Final = 86_400_000_000


def conform(column: pa.ChunkedArray, spark_type: str, name: str, table: str) -> pa.ChunkedArray:
    """`column` as values of `spark_type`. Raises `DestinationTableError` naming column and table."""
    target = arrow_of(spark_type)
    natural = type_of(column.type)
    infinite = _infinite(column)
    if infinite is not None:
        column = pc.if_else(infinite, pa.scalar(None, column.type), column)
    column = _natural(column)
    if natural == spark_type:
        return column
    converted = None if target is None else _cast(column, target)
    if converted is None:
        raise DestinationTableError(
            f"column {name!r} is {spark_type} here and cannot take the values, which come as {natural}",
            hint="the source column's type has changed; copy the table again to take the new type",
            table=table,
        )
    return converted


def not_held(columns: Sequence[ColumnSchema], rows: pa.Table) -> Iterator[tuple[int, int, str]]:
    """``(row, attnum, text)`` of every value that becomes NULL for want of an infinity, as Postgres prints it."""
    for place, column in enumerate(columns):
        values = rows.column(place)
        infinite = _infinite(values)
        if infinite is not None:
            lost = pa.array(np.flatnonzero(infinite.to_numpy()))
            for row, value in zip(lost.to_pylist(), values.take(lost), strict=True):
                yield row, column.attnum, _text(value)


def _natural(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column in the Arrow type that Spark reads without loss."""
    kind = column.type
    if pa.types.is_list(kind):
        return pa.chunked_array([_natural_list(chunk) for chunk in column.chunks], _natural_type(kind))
    if pa.types.is_time64(kind):
        return _time_text(column)
    return column.cast(_natural_type(kind))


def _natural_type(kind: pa.DataType) -> pa.DataType:
    natural = arrow_of(type_of(kind))
    if natural is None:
        raise ValueError(f"no Spark type for {kind}")
    return natural


def _natural_list(chunk: pa.ListArray) -> pa.ListArray:
    """Built anew from the elements that are in it: a slice's offsets do not begin at zero."""
    offsets = np.concatenate([[0], np.cumsum(_lengths(chunk))]).astype(np.int32)
    values = _natural(pa.chunked_array([chunk.flatten()])).combine_chunks()
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=chunk.is_null())


def _lengths(lists: pa.ListArray) -> Int64s:
    """How many elements each list has; a NULL has none, whatever lies behind it."""
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0), np.int64)


def _time_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """``HH:MM:SS`` with as many fractional digits as Postgres prints; Arrow itself has no name for the day's end."""
    text = pc.replace_substring_regex(column.cast(pa.string()), r"\.0+$|0+$", "")
    return pc.if_else(pc.equal(column.cast(pa.int64()), _DAY_US), "24:00:00", text)


def _cast(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray | None:
    """The cast that can be undone, None where one value cannot."""
    if _is_guess(column.type, target):
        return None
    try:
        there = _converted(column, target)
        back = _converted(there, column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return there if _same(back, column) else None


def _converted(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Arrow's cast; between decimals and floats by their text, for its own does not always find the nearest float."""
    kinds = (_element(column.type), _element(target))
    if any(map(pa.types.is_decimal, kinds)) and any(map(pa.types.is_floating, kinds)):
        column = column.cast(pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string())
    return column.cast(target)


def _is_guess(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow's cast would read numbers as days or microseconds: nobody said they are."""
    kinds = (_element(source), _element(target))
    return not any(map(pa.types.is_string, kinds)) and len(set(map(pa.types.is_temporal, kinds))) > 1


def _element(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_list(kind) else kind


def _same(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    if pa.types.is_floating(left.type):
        return bool(
            np.array_equal(
                left.to_numpy(zero_copy_only=False), right.to_numpy(zero_copy_only=False), equal_nan=True
            )
        )
    return bool(left.equals(right))


# --- infinity -------------------------------------------------------------------------------------------------


def _infinite(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which values are infinite, or lists with an infinite element; None when none is, which is nearly always."""
    is_list = pa.types.is_list(column.type)
    ends = _ends(_element(column.type))
    if ends is None or not len(column):
        return None
    array = column.combine_chunks()
    numbers = _numbers(array.flatten() if is_list else array)
    extremes = pc.min_max(numbers)
    if extremes["min"].as_py() not in ends and extremes["max"].as_py() not in ends:
        return None
    infinite = pc.is_in(numbers, pa.array(ends, numbers.type))
    if is_list:
        parents = np.repeat(np.arange(len(array)), _lengths(array))
        rows = np.zeros(len(array), np.bool_)
        rows[parents[infinite.to_numpy(zero_copy_only=False)]] = True
        infinite = pa.array(rows)
    return pa.chunked_array([infinite])


def _text(value: pa.Scalar) -> str:
    if not pa.types.is_list(value.type):
        return _printed(pa.array([value], value.type))[0] or ""
    cells = (
        "NULL" if text is None else f'"{text}"' if " " in text else text for text in _printed(value.values)
    )
    return "{" + ",".join(cells) + "}"


def _printed(values: pa.Array) -> list[str | None]:
    """Dates and timestamps as Postgres prints them in the ISO style, whatever their year: Arrow stops at 9999."""
    unit: Literal["D", "us"] = "D" if pa.types.is_date32(values.type) else "us"
    zone = "+00" if unit == "us" and values.type.tz else ""
    names = dict(zip(_ends(values.type) or (), ("infinity", "-infinity"), strict=True))
    return [
        None if number is None else names.get(number) or _moment(np.datetime64(number, unit), zone)
        for number in _numbers(values).to_pylist()
    ]


def _moment(moment: np.datetime64, zone: str) -> str:
    date, _, time = str(moment).partition("T")
    year = int(date[:-6])
    day = f"{year if year > 0 else 1 - year:04}{date[-6:]}"
    whole = f"{day} {time.rstrip('0').rstrip('.') if '.' in time else time}" if time else day
    return f"{whole}{zone}{'' if year > 0 else ' BC'}"


def _ends(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_date32(kind):
        return DATE_INFINITY, DATE_MINUS_INFINITY
    if pa.types.is_timestamp(kind):
        return TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY
    return None


def _numbers(values: pa.Array) -> pa.Array:
    return values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())

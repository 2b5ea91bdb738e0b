"""Columns as a Delta table takes them: a value arrives exactly, or the table fails and says where; never anything else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal
from itertools import product, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etl.destinations.delta.conform import conform, not_held
from etl.destinations.delta.dialect import arrow_of, type_of
from etl.errors import DestinationTableError
from etl.schema.types import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    arrow_type,
    known_types,
)
from etl.testing.builders import column

DAY = 86_400_000_000
TIME, DATE, STAMP, MOMENT = pa.time64("us"), pa.date32(), pa.timestamp("us"), pa.timestamp("us", tz="UTC")

SCALARS: list[pa.DataType] = [
    *sorted({arrow_type(kind.oid) for kind in known_types() if kind.element_oid is None}, key=str),
    pa.decimal128(10, 2),
    pa.decimal128(38, 0),
    pa.decimal128(38, 38),
]
CARRIED = SCALARS + [pa.list_(scalar) for scalar in SCALARS]
SPARK_TYPES = [
    *dict.fromkeys(type_of(carried) for carried in CARRIED),
    *("tinyint", "array<tinyint>", "struct<a:int>", "map<string,int>", "interval day to second"),
]

#: What reading the storage as integers loses: nothing. Python itself knows no year above 9999.
STORED = {TIME: pa.int64(), DATE: pa.int32(), STAMP: pa.int64(), MOMENT: pa.int64()}

#: Values per type, as they are stored.
SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int16(): [0, 1, -(2**15), 2**15 - 1],
    pa.int32(): [0, 1, -(2**31), 2**31 - 1],
    pa.int64(): [0, 1, -1, -(2**63), 2**63 - 1, 2**53 + 1],
    pa.uint32(): [0, 1, 2**31, 2**32 - 1],
    pa.float32(): [0.0, 1.5, float("nan"), float("inf"), -float("inf"), 2.0**-149],
    pa.float64(): [0.0, 1.0, 0.1, 1.5, float("nan"), float("inf"), 1e300, 2.0**63, 5e-324],
    pa.string(): ["", "1", "07", "1.5", "true", "2026-01-01", "2026-01-01 12:30:00.000001", "NaN", "é😀", "secret"],
    pa.binary(): [b"", b"abc", b"\x00\xff"],
    DATE: [0, 20454, -2440588, 2145042905, DATE_INFINITY, DATE_MINUS_INFINITY],
    TIME: [0, 1, 45_000_500_000, DAY - 1, DAY],
    STAMP: [0, 1, DAY, -210866803200000000, 9223371331200000000, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY],
    MOMENT: [0, 1, DAY, -210866803200000000, 9223371331200000000, TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("1.50"), Decimal("-12345678.90"), Decimal("7.00")],
    pa.decimal128(38, 0): [Decimal(0), Decimal(7), Decimal("9" * 38), Decimal("-" + "9" * 38)],
    pa.decimal128(38, 38): [Decimal("0E-38"), Decimal("0." + "9" * 38), Decimal("0.5" + "0" * 37)],
}  # fmt: skip

_WIDE: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint32(): st.integers(0, 2**32 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(exclude_categories=("Cs",))) | st.from_regex(r"-?\d{1,3}(\.\d)?", fullmatch=True),
    pa.binary(): st.binary(),
    DATE: st.integers(-2440588, 2145042905),
    TIME: st.integers(0, DAY),
    STAMP: st.integers(-211813488000000000, 9223371331199999999),
    MOMENT: st.integers(-211813488000000000, 9223371331199999999),
    **{
        kind: st.integers(1 - 10**kind.precision, 10**kind.precision - 1).map(
            lambda unscaled, scale=kind.scale: Decimal(f"{unscaled}E-{scale}")
        )
        for kind in SCALARS
        if pa.types.is_decimal(kind)
    },
}  # fmt: skip


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as they are stored, as an array; lists are lists of such values."""
    if pa.types.is_list(kind):
        lengths = [0 if value is None else len(value) for value in values]
        flat = array_of([item for value in values for item in value or ()], kind.value_type)
        mask = pa.array([value is None for value in values], pa.bool_())
        return pa.ListArray.from_arrays(
            pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), flat, mask=mask
        )
    stored = STORED.get(kind)
    return pa.array(values, kind) if stored is None else pa.array(values, stored).view(kind)


def values_of(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values as they are stored."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in values_of(chunk)]
    if pa.types.is_list(array.type):
        return [values_of(item.values) if item.is_valid else None for item in array]
    stored = STORED.get(array.type)
    return list((array if stored is None else array.view(stored)).to_pylist())


def conformed(values: Sequence[Any], kind: pa.DataType, spark_type: str) -> list[Any] | None:
    """What the values become, None when the table fails; whatever else happens is an error."""
    try:
        result = conform(pa.chunked_array([array_of(values, kind)]), spark_type, "v", "public.t")
    except DestinationTableError as error:
        refused = error
    else:
        return checked(result, len(values), spark_type)
    assert "'v'" in refused.message
    assert refused.table == "public.t"
    assert "secret" not in str(refused)
    return None


def checked(result: pa.ChunkedArray, rows: int, spark_type: str) -> list[Any]:
    result.validate(full=True)
    assert (result.type, len(result)) == (arrow_of(spark_type), rows)
    return values_of(result)


# --- nothing changes silently ---------------------------------------------------------------------------------


def is_infinite(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return value is not None and any(is_infinite(item, kind.value_type) for item in value)
    if kind == DATE:
        return value in {DATE_INFINITY, DATE_MINUS_INFINITY}
    return pa.types.is_timestamp(kind) and value in {TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY}


def means(came: Any, kind: pa.DataType, stands: Any, target: pa.DataType) -> bool:
    """Whether `stands` in a column of `target` says what `came` as `kind`, by the values alone."""
    if is_infinite(came, kind):
        return stands is None
    if came is None or stands is None:
        return came is stands
    if pa.types.is_list(kind) and pa.types.is_list(target):
        pairs = zip_longest(came, stands, fillvalue=object())
        return all(means(one, kind.value_type, other, target.value_type) for one, other in pairs)
    return same_scalar(came, kind, stands, target)


def same_scalar(came: Any, kind: pa.DataType, stands: Any, target: pa.DataType) -> bool:
    if target == kind and not pa.types.is_floating(kind):
        same = came == stands
    elif kind == TIME:
        same = encoded(stands) == clock(came).encode()
    elif pa.types.is_temporal(kind) or pa.types.is_temporal(target):
        same = moment(came, kind) == moment(stands, target) is not None
    elif pa.types.is_binary(kind) or pa.types.is_binary(target):
        same = encoded(came) == encoded(stands) is not None
    else:
        same = same_number(came, kind, stands, target)
    return same


def clock(us: int) -> str:
    """A time of day as Postgres prints it."""
    whole, fraction = divmod(us, 1_000_000)
    text = f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def moment(value: Any, kind: pa.DataType) -> int | None:
    """Microseconds since 1970 of a date, a timestamp, or a text that is one; no number is one."""
    if pa.types.is_temporal(kind):
        return value * DAY if kind == DATE else value
    return int(np.datetime64(value.rstrip("Z"), "us").astype(np.int64)) if isinstance(value, str) else None


def encoded(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None


def same_number(came: Any, kind: pa.DataType, stands: Any, target: pa.DataType) -> bool:
    """Equal as numbers, where a binary fraction is equal to the shortest decimal that reads as it."""
    one, other = number(came), number(stands)
    for value, theirs, their_kind in ((one, other, target), (other, one, kind)):
        if pa.types.is_floating(their_kind) and value is not None:
            return bool(np.array_equal(narrow(value, their_kind), narrow(theirs, their_kind), equal_nan=True))
    return one == other and (not isinstance(came, str) or came in {str(stands), str(stands).lower()})


def number(value: Any) -> Any:
    words = {"true": 1, "false": 0}
    return Decimal(words.get(value, value)) if isinstance(value, str) and is_number(value) else value


def is_number(text: str) -> bool:
    try:
        Decimal({"true": "1", "false": "0"}.get(text, text))
    except ArithmeticError:
        return False
    return True


def narrow(value: Any, kind: pa.DataType) -> Any:
    return np.float32(float(value)) if kind == pa.float32() else np.float64(float(value))


@pytest.mark.parametrize("carried", CARRIED, ids=str)
def test_a_sample_value_arrives_exactly_or_the_table_fails(carried: pa.DataType):
    scalar = carried.value_type if pa.types.is_list(carried) else carried
    samples = SAMPLES[scalar]
    if pa.types.is_list(carried):
        samples = [[sample] for sample in samples] + [samples, [None], [], [samples[0], None]]
    for spark_type, sample in product(SPARK_TYPES, [*samples, None]):
        result = conformed([sample], carried, spark_type)
        if result is not None:
            target = arrow_of(spark_type)
            assert means(sample, carried, result[0], target), (carried, spark_type, sample, result)


@given(st.data())
@settings(max_examples=400)
def test_any_value_of_any_type_arrives_exactly_or_the_table_fails(data: st.DataObject):
    carried, spark_type = data.draw(st.sampled_from(CARRIED)), data.draw(st.sampled_from(SPARK_TYPES))
    values = data.draw(st.lists(st.none() | values_for(carried), max_size=6))
    result = conformed(values, carried, spark_type)
    if result is not None:
        target = arrow_of(spark_type)
        for came, stands in zip(values, result, strict=True):
            assert means(came, carried, stands, target), (came, stands)


def values_for(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_list(kind):
        return st.lists(st.none() | values_for(kind.value_type), max_size=3)
    return st.sampled_from(SAMPLES[kind]) | _WIDE[kind]


@given(st.data())
@settings(max_examples=150)
def test_in_its_own_type_a_value_is_never_refused(data: st.DataObject):
    carried = data.draw(st.sampled_from(CARRIED))
    values = data.draw(st.lists(st.none() | values_for(carried), max_size=6))
    assert conformed(values, carried, type_of(carried)) is not None


@pytest.mark.parametrize("carried", CARRIED, ids=str)
@pytest.mark.parametrize("values", [[], [None], [None] * 3], ids=["no rows", "a NULL", "only NULL"])
def test_a_column_without_values_has_the_type_all_the_same(carried: pa.DataType, values: list[None]):
    assert conformed(values, carried, type_of(carried)) == values
    assert list(not_held([column("v", 1)], pa.table({"v": array_of(values, carried)}))) == []


def test_a_column_without_chunks_has_the_type_all_the_same():
    for carried in CARRIED:
        result = conform(pa.chunked_array([], carried), type_of(carried), "v", "t")
        assert (result.type, len(result)) == (arrow_of(type_of(carried)), 0)


# --- layouts: what lies in memory around and behind the values --------------------------------------------------


def sliced(array: pa.Array) -> pa.Array:
    """The same values as a slice out of the middle of more."""
    return pa.concat_arrays([array, array, array]).slice(len(array), len(array))


def in_chunks(array: pa.Array) -> pa.ChunkedArray:
    chunks = [array.slice(0, 1), array.slice(1, 0), array.slice(1, 2), array.slice(3)]
    return pa.chunked_array(chunks, array.type)


def with_remains_behind_nulls(array: pa.ListArray) -> pa.ListArray:
    """Lists that are NULL, and yet have elements behind them."""
    full = [
        value if value is not None else [*filter(None, values_of(array)), [None]][0]
        for value in values_of(array)
    ]
    mask = array.is_null()
    plain = array_of(full, array.type)
    return pa.ListArray.from_arrays(plain.offsets, plain.values, mask=mask)


@given(st.data())
@settings(max_examples=150)
def test_the_layout_in_memory_does_not_matter(data: st.DataObject):
    carried = data.draw(st.sampled_from(CARRIED))
    values = data.draw(st.lists(st.none() | values_for(carried), max_size=6))
    plain = array_of(values, carried)
    layouts = [pa.chunked_array([sliced(plain)]), in_chunks(plain), in_chunks(sliced(plain))]
    if pa.types.is_list(carried):
        layouts += [in_chunks(sliced(with_remains_behind_nulls(plain)))]
    expected = conform(pa.chunked_array([plain]), type_of(carried), "v", "t")
    lost = list(not_held([column("v", 1)], pa.table({"v": plain})))
    for layout in layouts:
        assert bits(conform(layout, type_of(carried), "v", "t")) == bits(expected)
        assert list(not_held([column("v", 1)], pa.table({"v": layout}))) == lost


def bits(array: pa.ChunkedArray) -> list[Any]:
    return [packed(value) for value in values_of(array)]


def packed(value: Any) -> Any:
    if isinstance(value, list):
        return [packed(item) for item in value]
    return struct.pack("d", value) if isinstance(value, float) else value


# --- what Spark has no value for --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "00:00:00"),
        (DAY, "24:00:00"),
        (DAY - 1, "23:59:59.999999"),
        (1, "00:00:00.000001"),
        (500_000, "00:00:00.5"),
        (36_000_000_000, "10:00:00"),
        (45_010_100_000, "12:30:10.1"),
    ],
)
def test_a_time_of_day_is_the_text_that_postgres_prints(us: int, text: str):
    assert conformed([us, None], TIME, "string") == [text, None]
    assert conformed([[us, None], None, []], pa.list_(TIME), "array<string>") == [[text, None], None, []]


def test_an_oid_beyond_the_int_range_is_a_bigint():
    assert conformed([2**32 - 1, None, 0], pa.uint32(), "bigint") == [2**32 - 1, None, 0]
    assert conformed([[2**32 - 1], None], pa.list_(pa.uint32()), "array<bigint>") == [[2**32 - 1], None]


INFINITE = [
    (DATE, DATE_INFINITY, 20454, "2026-01-01"),
    (DATE, DATE_MINUS_INFINITY, -1, "1969-12-31"),
    (STAMP, TIMESTAMP_INFINITY, 1, "1970-01-01 00:00:00.000001"),
    (STAMP, TIMESTAMP_MINUS_INFINITY, 1_500_000, "1970-01-01 00:00:01.5"),
    (MOMENT, TIMESTAMP_INFINITY, 0, "1970-01-01 00:00:00+00"),
    (MOMENT, TIMESTAMP_MINUS_INFINITY, DAY, "1970-01-02 00:00:00+00"),
]


@pytest.mark.parametrize(("kind", "end", "finite", "text"), INFINITE)
def test_infinity_is_null_and_told_with_row_attnum_and_text(
    kind: pa.DataType, end: int, finite: int, text: str
):
    name = "infinity" if end > 0 else "-infinity"
    values = [finite, end, None, end]
    assert conformed(values, kind, type_of(kind)) == [finite, None, None, None]
    rows = pa.table({"a": array_of([finite] * 4, kind), "v": array_of(values, kind)})
    assert list(not_held([column("a", 1), column("v", 9)], rows)) == [(1, 9, name), (3, 9, name)]


@pytest.mark.parametrize(("kind", "end", "finite", "text"), INFINITE)
def test_an_array_with_an_infinity_in_it_is_null_and_told_whole(
    kind: pa.DataType, end: int, finite: int, text: str
):
    values = [[finite], None, [finite, end, None], [], [None], [end]]
    result = conformed(values, pa.list_(kind), type_of(pa.list_(kind)))
    assert result == [[finite], None, None, [], [None], None]
    name = "infinity" if end > 0 else "-infinity"
    printed = f'"{text}"' if " " in text else text
    rows = pa.table({"v": array_of(values, pa.list_(kind))})
    told = list(not_held([column("v", 3)], rows))
    assert told == [(2, 3, f"{{{printed},{name},NULL}}"), (5, 3, f"{{{name}}}")]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (DATE, 2145042905, "5874897-12-31"),
        (DATE, -2440588, '"4714-11-24 BC"'),
        (DATE, -719163, '"0001-12-31 BC"'),
        (DATE, -719162, "0001-01-01"),
        (DATE, 2932897, "10000-01-01"),
        (STAMP, 253402300800000000, '"10000-01-01 00:00:00"'),
        (STAMP, -62135596800000001, '"0001-12-31 23:59:59.999999 BC"'),
        (MOMENT, -63517780799900000, '"0044-03-15 12:00:00.1+00 BC"'),
    ],
)
def test_beside_an_infinity_ancient_and_far_days_are_told_as_postgres_prints_them(
    kind: pa.DataType, value: int, text: str
):
    end = DATE_INFINITY if kind == DATE else TIMESTAMP_INFINITY
    rows = pa.table({"v": array_of([[value, end]], pa.list_(kind))})
    assert [told for _, _, told in not_held([column("v", 1)], rows)] == [f"{{{text},infinity}}"]


@given(st.data())
def test_what_is_told_is_exactly_what_became_null(data: st.DataObject):
    kind = data.draw(st.sampled_from([DATE, STAMP, MOMENT]))
    carried = data.draw(st.sampled_from([kind, pa.list_(kind)]))
    values = data.draw(st.lists(st.none() | values_for(carried), max_size=8))
    rows = pa.table({"v": in_chunks(array_of(values, carried))})
    result = conformed(values, carried, type_of(carried))
    assert result is not None
    became_null = [
        row
        for row, (came, stands) in enumerate(zip(values, result, strict=True))
        if came is not None and stands is None
    ]
    assert [row for row, _, _ in not_held([column("v", 1)], rows)] == became_null


# --- numbers are no times ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number_type", [pa.int32(), pa.int64(), pa.list_(pa.int64())], ids=str)
@pytest.mark.parametrize(
    "spark_type", ["date", "timestamp", "timestamp_ntz", "array<date>", "array<timestamp>"]
)
def test_a_number_is_not_taken_for_days_or_microseconds(number_type: pa.DataType, spark_type: str):
    values = [[1]] if pa.types.is_list(number_type) else [1]
    assert conformed(values, number_type, spark_type) is None
    assert conformed([], number_type, spark_type) is None


@pytest.mark.parametrize("kind", [DATE, STAMP, MOMENT])
def test_a_day_is_not_taken_for_a_number(kind: pa.DataType):
    assert conformed([1], kind, "bigint") is None
    assert conformed([[1]], pa.list_(kind), "array<bigint>") is None


@given(st.sampled_from(CARRIED), st.sampled_from(["struct<a:int>", "map<string,int>", "void", "variant"]))
def test_types_we_never_write_are_refused(carried: pa.DataType, spark_type: str):
    assume(arrow_of(spark_type) is None)
    assert conformed([None], carried, spark_type) is None

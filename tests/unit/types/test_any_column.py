"""What holds for every type: rows do not influence each other, and no bytes at all can crash the conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.errors import ValueConversionError
from etl.pgoutput.values import Converted, convert
from etl.schema.types import arrow_type

Raw = Callable[[pa.Array], list[Any]]

NUMERIC_5_2 = (5 << 16 | 2) + 4

#: Values of every kind of column: plain, special, unrepresentable.
SAMPLES: dict[str, tuple[int, int, list[str]]] = {
    "bool": (16, -1, ["t", "f"]),
    "bytea": (17, -1, [r"\x", r"\x00", r"\x00ffab"]),
    "int4": (23, -1, ["0", "-1", "2147483647"]),
    "text": (25, -1, ["", "a", "é", "NULL"]),
    "float8": (701, -1, ["0", "-0", "1e-07", "Infinity"]),
    "numeric": (1700, NUMERIC_5_2, ["0.00", "-1.50", "999.99", "NaN", "Infinity", "1", "1000.00", "0.125"]),
    "date": (1082, -1, ["2026-01-01", "infinity", "-infinity", "0044-03-15 BC", "10000-01-01"]),
    "time": (1083, -1, ["00:00:00", "24:00:00", "12:34:56.789", "12:34:56.000001"]),
    "timestamp": (
        1114,
        -1,
        ["2026-01-01 00:00:00.5", "infinity", "-infinity", "0044-03-15 00:00:00 BC", "294276-01-01 00:00:00"],
    ),
    "timestamptz": (
        1184,
        -1,
        ["2026-01-01 00:00:00+00", "infinity", "1883-11-18 12:00:00-07:52:58", "10000-01-01 00:00:00+05:30"],
    ),
    "int4[]": (1007, -1, ["{}", "{1,NULL}", "{{1}}", "[0:0]={1}"]),
    "text[]": (1009, -1, ["{}", '{"a b",NULL}', r'{"\"\\"}', "{{a}}", '{""}']),
    "numeric[]": (1231, NUMERIC_5_2, ["{}", "{1.50,NULL}", "{NaN}", "{1,2}"]),
    "timestamp[]": (1115, -1, ["{}", '{"2026-01-01 00:00:00",infinity}', '{"294276-01-01 00:00:00"}']),
}
EVERY_TYPE = pytest.mark.parametrize(("oid", "modifier", "samples"), SAMPLES.values(), ids=SAMPLES.keys())


def column(*texts: str | None) -> pa.Array:
    return pa.array([None if t is None else t.encode() for t in texts], pa.binary())


def rows_of(converted: Converted, raw: Raw) -> list[tuple[Any, str | None]]:
    reported = dict(converted.unrepresentable)
    return [(value, reported.get(row)) for row, value in enumerate(raw(converted.array))]


@EVERY_TYPE
@settings(max_examples=40)
@given(data=st.data())
def test_a_column_is_what_its_rows_are_one_by_one(
    data: st.DataObject, oid: int, modifier: int, samples: list[str], raw: Raw
):
    texts = data.draw(st.lists(st.none() | st.sampled_from(samples)))
    alone = {text: rows_of(convert(column(text), oid, modifier), raw)[0] for text in set(texts)}
    assert rows_of(convert(column(*texts), oid, modifier), raw) == [alone[text] for text in texts]


@EVERY_TYPE
def test_string_input_is_converted_like_binary_input(oid: int, modifier: int, samples: list[str], raw: Raw):
    text = column(*samples, None)
    assert rows_of(convert(text, oid, modifier), raw) == rows_of(
        convert(text.cast(pa.string()), oid, modifier), raw
    )


@EVERY_TYPE
def test_a_slice_is_converted_like_a_column_of_its_own(oid: int, modifier: int, samples: list[str], raw: Raw):
    text = column(None, samples[-1], *samples, None, samples[0])
    expected = rows_of(convert(column(*samples, None), oid, modifier), raw)
    assert rows_of(convert(text.slice(2, len(samples) + 1), oid, modifier), raw) == expected


@EVERY_TYPE
def test_bytes_hidden_below_a_null_are_not_looked_at(oid: int, modifier: int, samples: list[str], raw: Raw):
    hidden = column(*samples, "garbage", *samples)
    offsets, data = hidden.buffers()[1:]
    valid = pa.array([True] * len(samples) + [False] + [True] * len(samples)).buffers()[1]
    text = pa.Array.from_buffers(pa.binary(), len(hidden), [valid, offsets, data])
    expected = rows_of(convert(column(*samples, None, *samples), oid, modifier), raw)
    assert rows_of(convert(text, oid, modifier), raw) == expected


@EVERY_TYPE
@settings(max_examples=40)
@given(data=st.data())
def test_no_bytes_at_all_raise_anything_but_a_conversion_error(
    data: st.DataObject, oid: int, modifier: int, samples: list[str]
):
    alphabet = st.sampled_from(
        [bytes([c]) for c in set("".join(samples).encode()) | set(b'{}",\\[]=:.-+ x9\xff\0')]
    )
    noise = st.lists(alphabet, max_size=12).map(b"".join)
    texts = data.draw(
        st.lists(st.none() | st.sampled_from(samples).map(str.encode) | noise | st.binary(max_size=20))
    )
    try:
        converted = convert(pa.array(texts, pa.binary()), oid, modifier)
    except ValueConversionError:
        return
    converted.array.validate()
    assert len(converted.array) == len(texts)
    assert converted.array.type == arrow_type(oid, modifier)

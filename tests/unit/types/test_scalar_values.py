"""Numbers, booleans, bytes and text: what a column holds for each text Postgres prints."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.errors import ValueConversionError
from etl.pgoutput.values import convert
from etl.schema.types import NumericForm, TypeOptions, arrow_type

Raw = Callable[[pa.Array], list[Any]]

BOOL, BYTEA, INT8, INT2, INT4, TEXT, OID, FLOAT4, FLOAT8, NUMERIC, UUID = (
    *(16, 17, 20, 21, 23, 25, 26),
    *(700, 701, 1700, 2950),
)


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


def column(*texts: str | bytes | None) -> pa.Array:
    return pa.array([t.encode() if isinstance(t, str) else t for t in texts], pa.binary())


EXACT = [
    ("t and f are the booleans", BOOL, -1, ["t", "f"], [True, False]),
    ("the least and greatest int2", INT2, -1, ["-32768", "32767"], [-32768, 32767]),
    ("the least and greatest int4", INT4, -1, ["-2147483648", "2147483647"], [-(2**31), 2**31 - 1]),
    ("the least and greatest int8", INT8, -1, [f"{-(2**63)}", f"{2**63 - 1}"], [-(2**63), 2**63 - 1]),
    ("an oid above the int4 range", OID, -1, ["0", "4294967295"], [0, 2**32 - 1]),
    ("bytea in hex, the empty one too", BYTEA, -1, [r"\x", r"\x00ff5c78"], [b"", b"\x00\xff\\x"]),
    (
        "uuid is text",
        UUID,
        -1,
        ["123e4567-e89b-12d3-a456-426614174000"],
        ["123e4567-e89b-12d3-a456-426614174000"],
    ),
    ("empty text is not NULL", TEXT, -1, ["", r"\N", "é😀"], ["", r"\N", "é😀"]),
    ("a numeric without precision is text, NaN too", NUMERIC, -1, ["1.50", "NaN", "9" * 131072], None),
    ("a type we do not know is text", 99999, -1, ["(1,2)", "sad"], None),
]


@pytest.mark.parametrize(
    ("oid", "modifier", "texts", "expected"), [r[1:] for r in EXACT], ids=[r[0] for r in EXACT]
)
def test_the_column_holds_exactly(
    oid: int, modifier: int, texts: list[str], expected: list[Any] | None, raw: Raw
):
    converted = convert(column(*texts, None), oid, modifier)
    assert converted.array.type == arrow_type(oid, modifier)
    assert raw(converted.array) == [*(texts if expected is None else expected), None]
    assert converted.unrepresentable == ()


FLOATS = [
    "NaN",
    "Infinity",
    "-Infinity",
    "-0",
    "0",
    "0.1",
    "1e-07",
    "1.5e+300",
    "5e-324",
    "1.7976931348623157e+308",
]


@pytest.mark.parametrize("text", FLOATS)
def test_a_float8_keeps_its_bits(text: str):
    value = convert(column(text), FLOAT8).array[0].as_py()
    assert struct.pack("d", value) == struct.pack("d", float(text))


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "-0", "0.1", "1e-45", "3.4028235e+38"])
def test_a_float4_is_read_as_a_float4_and_not_rounded_twice(text: str):
    value = convert(column(text), FLOAT4).array[0].as_py()
    assert struct.pack("f", value) == struct.pack("f", float(text))


DECIMALS = [
    ("the declared fraction", 12, 2, "-0.50", Decimal("-0.50")),
    ("no fraction", 5, 0, "-12345", Decimal(-12345)),
    ("38 digits", 38, 0, "9" * 38, Decimal("9" * 38)),
    ("minus 38 digits", 38, 0, "-" + "9" * 38, Decimal("-" + "9" * 38)),
    ("38 digits of fraction", 38, 38, "0." + "9" * 38, Decimal("0." + "9" * 38)),
    ("minus 38 digits of fraction", 38, 38, "-0." + "9" * 38, Decimal("-0." + "9" * 38)),
    (
        "38 digits around the point",
        38,
        10,
        "-" + "9" * 28 + "." + "9" * 10,
        Decimal("-" + "9" * 28 + "." + "9" * 10),
    ),
]


@pytest.mark.parametrize(
    ("precision", "scale", "text", "expected"), [r[1:] for r in DECIMALS], ids=[r[0] for r in DECIMALS]
)
def test_a_constrained_numeric_is_exact(precision: int, scale: int, text: str, expected: Decimal):
    converted = convert(column(text, None), NUMERIC, numeric(precision, scale))
    assert converted.array.to_pylist() == [expected, None]
    assert converted.unrepresentable == ()


MISFITS = [
    ("NaN", 12, 2, "NaN"),
    ("infinity", 12, 2, "Infinity"),
    ("minus infinity without a fraction", 5, 0, "-Infinity"),
    ("more digits than declared", 5, 2, "1234.00"),
    ("more fraction than declared", 5, 2, "1.234"),
    ("a number that wraps around 128 bits", 38, 0, "9" * 39),
    ("a number that wraps around when scaled up", 38, 2, "1" * 38),
    ("the longest number of Postgres", 38, 2, "9" * 131072 + "." + "9" * 16383),
]


@pytest.mark.parametrize(
    ("precision", "scale", "text"), [r[1:] for r in MISFITS], ids=[r[0] for r in MISFITS]
)
def test_a_number_its_decimal_cannot_hold_is_null_and_reported(precision: int, scale: int, text: str):
    fine = f"{1:.{scale}f}"
    converted = convert(column(fine, text, None, fine), NUMERIC, numeric(precision, scale))
    assert converted.array.to_pylist() == [Decimal(fine), None, None, Decimal(fine)]
    assert converted.unrepresentable == ((1, text),)


def test_numerics_as_text_are_never_unrepresentable():
    options = TypeOptions(numeric=NumericForm.TEXT)
    converted = convert(column("NaN", "1.00"), NUMERIC, numeric(12, 2), options)
    assert converted.array.to_pylist() == ["NaN", "1.00"]
    assert converted.unrepresentable == ()


REFUSED = [
    ("bool", BOOL, "true"),
    ("bool", BOOL, ""),
    ("int4", INT4, "2147483648"),
    ("int4", INT4, "secret"),
    ("float8", FLOAT8, "1,5"),
    ("numeric", NUMERIC, "1.5secret"),
    ("bytea", BYTEA, r"\x0"),
    ("bytea", BYTEA, r"\xsecret"),
    ("bytea", BYTEA, "abc secret"),
    ("bytea", BYTEA, ""),
]


@pytest.mark.parametrize(("name", "oid", "text"), REFUSED)
def test_text_postgres_cannot_print_is_an_error_that_names_the_type_and_not_the_value(
    name: str, oid: int, text: str
):
    with pytest.raises(ValueConversionError) as caught:
        convert(column(text), oid, numeric(12, 2) if oid == NUMERIC else -1)
    assert name in caught.value.message
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "oid", [BOOL, BYTEA, INT4, TEXT, FLOAT8, NUMERIC, 1082, 1083, 1114, 1184, 1007, 1009, 1115]
)
@pytest.mark.parametrize("texts", [(), (None, None)], ids=["no rows", "only NULL"])
def test_a_column_without_values_has_the_type_all_the_same(oid: int, texts: tuple[None, ...]):
    converted = convert(column(*texts), oid)
    assert converted.array.type == arrow_type(oid)
    assert converted.array.null_count == len(converted.array) == len(texts)


def test_valid_text_is_not_copied():
    text = column("a", None, "é")
    assert convert(text, TEXT).array.buffers()[2].address == text.buffers()[2].address
    text = text.cast(pa.string())
    assert convert(text, TEXT).array is text


def test_bytes_that_are_not_utf8_are_escaped_and_counted():
    text = column(b"caf\xe9", "café", None, b"\xff\xfe", b"a\\xe9")
    converted = convert(text, TEXT)
    assert converted.array.to_pylist() == ["caf\\xe9", "café", None, "\\xff\\xfe", "a\\xe9"]
    assert converted.escaped_rows == 2


# --- properties -----------------------------------------------------------------------------------------------


@given(st.lists(st.none() | st.binary(max_size=40)))
def test_bytes_come_back_as_they_were(values: list[bytes | None]):
    text = column(*(None if v is None else "\\x" + v.hex() for v in values))
    assert convert(text, BYTEA).array.to_pylist() == values


@given(st.data(), st.integers(1, 38))
def test_any_number_of_the_declared_shape_is_exact(data: st.DataObject, precision: int):
    scale = data.draw(st.integers(0, precision))
    limit = 10**precision - 1
    unscaled = data.draw(st.lists(st.none() | st.integers(-limit, limit)))
    texts = [None if u is None else f"{'-' if u < 0 else ''}{shift(abs(u), scale)}" for u in unscaled]
    converted = convert(column(*texts), NUMERIC, numeric(precision, scale))
    assert converted.array.to_pylist() == [None if t is None else Decimal(t) for t in texts]
    assert converted.unrepresentable == ()


def shift(unscaled: int, scale: int) -> str:
    digits = str(unscaled).rjust(scale + 1, "0")
    return f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits


@given(st.lists(st.none() | st.decimals(allow_nan=True, allow_infinity=True)), st.integers(1, 38), st.data())
def test_any_number_at_all_is_exact_or_reported(
    values: list[Decimal | None], precision: int, data: st.DataObject
):
    scale = data.draw(st.integers(0, precision))
    texts = [None if v is None else printed(v) for v in values]
    converted = convert(column(*texts), NUMERIC, numeric(precision, scale))
    reported = dict(converted.unrepresentable)
    for row, (text, value) in enumerate(zip(texts, converted.array.to_pylist(), strict=True)):
        if row in reported:
            assert reported[row] == text
            assert value is None
        else:
            assert value == (None if text is None else Decimal(text))


def printed(value: Decimal) -> str:
    if value.is_nan():
        return "NaN"
    return f"{value:f}" if value.is_finite() else f"{'-' if value < 0 else ''}Infinity"


@given(st.lists(st.none() | st.booleans()))
def test_booleans_come_back_as_they_were(values: list[bool | None]):
    assert (
        convert(column(*({True: "t", False: "f", None: None}[v] for v in values)), BOOL).array.to_pylist()
        == values
    )


@given(st.lists(st.none() | st.binary(max_size=12)))
def test_any_bytes_at_all_can_be_text(values: list[bytes | None]):
    converted = convert(column(*values), TEXT)
    converted.array.validate(full=True)
    assert converted.array.to_pylist() == [
        None if v is None else v.decode("utf-8", "backslashreplace") for v in values
    ]

"""Arrays: one dimension counted from 1 becomes a list of exact elements, everything else is reported whole."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.errors import ValueConversionError
from etl.pgoutput.values import convert
from etl.schema.types import TIMESTAMP_INFINITY, ArrayForm, TypeOptions, arrow_type

Raw = Callable[[pa.Array], list[Any]]

BOOLS, BYTEAS, INT4S, TEXTS, FLOAT8S, NUMERICS, DATES, TIMES, TIMESTAMPS, JSONBS, UUIDS, BOXES = (
    *(1000, 1001, 1007, 1009, 1022, 1231),
    *(1182, 1183, 1115, 3807, 2951, 1020),
)
NUMERIC_5_2 = (5 << 16 | 2) + 4


def column(*texts: str | bytes | None) -> pa.Array:
    return pa.array([t.encode() if isinstance(t, str) else t for t in texts], pa.binary())


EXACT = [
    ("elements", INT4S, "{1,-2,3}", [1, -2, 3]),
    ("one element", INT4S, "{1}", [1]),
    ("no element", INT4S, "{}", []),
    ("NULL among others", INT4S, "{1,NULL}", [1, None]),
    ("NULL in any case", TEXTS, "{null,Null,nUlL}", [None, None, None]),
    ("only NULL", INT4S, "{NULL}", [None]),
    ("the quoted word NULL is text", TEXTS, '{"NULL","null"}', ["NULL", "null"]),
    ("words like NULL are text", TEXTS, "{NULLS,NUL,ANULL}", ["NULLS", "NUL", "ANULL"]),
    ("the empty text", TEXTS, '{""}', [""]),
    ("the empty text between others", TEXTS, '{a,"",b}', ["a", "", "b"]),
    ("white space", TEXTS, '{" a ","b c"}', [" a ", "b c"]),
    ("the syntax's own characters", TEXTS, '{"{","}",",","{a,b}"}', ["{", "}", ",", "{a,b}"]),
    ("a quote", TEXTS, r'{"a\"b","\""}', ['a"b', '"']),
    ("a backslash", TEXTS, r'{"a\\b","\\"}', ["a\\b", "\\"]),
    ("backslashes before a quote", TEXTS, r'{"\\\"","\\\\"}', ['\\"', "\\\\"]),
    ("text beyond ASCII", TEXTS, '{é,"😀 x"}', ["é", "😀 x"]),
    ("a line break", TEXTS, '{"a\nb"}', ["a\nb"]),
    ("a bracket first", TEXTS, "{[0:1]=x}", ["[0:1]=x"]),
    ("booleans", BOOLS, "{t,f,NULL}", [True, False, None]),
    ("bytes", BYTEAS, r'{"\\x00ff","\\x",NULL}', [b"\x00\xff", b"", None]),
    ("special floats", FLOAT8S, "{Infinity,-Infinity,1.5}", [float("inf"), float("-inf"), 1.5]),
    ("numerics as text", NUMERICS, "{1.50,NaN,NULL}", ["1.50", "NaN", None]),
    ("dates", DATES, '{2026-01-01,"0001-12-31 BC"}', [20454, -719163]),
    ("midnight at the end of the day", TIMES, "{24:00:00}", [86_400_000_000]),
    ("timestamps", TIMESTAMPS, '{"1970-01-01 00:00:00.5",infinity}', [500_000, TIMESTAMP_INFINITY]),
    ("documents", JSONBS, r'{"{\"a\": [1, \"\\\"\"]}",null}', [r'{"a": [1, "\""]}', None]),
    ("uuids", UUIDS, "{123e4567-e89b-12d3-a456-426614174000}", ["123e4567-e89b-12d3-a456-426614174000"]),
]


@pytest.mark.parametrize(("oid", "text", "expected"), [r[1:] for r in EXACT], ids=[r[0] for r in EXACT])
def test_the_list_holds_exactly(oid: int, text: str, expected: list[Any], raw: Raw):
    converted = convert(column(text, None, text, "{}"), oid)
    converted.array.validate()
    assert converted.array.type == arrow_type(oid)
    assert raw(converted.array) == [expected, None, expected, []]
    assert converted.unrepresentable == ()


UNREPRESENTABLE = [
    ("two dimensions", INT4S, -1, "{{1,2},{3,4}}"),
    ("two dimensions of text", TEXTS, -1, '{{"{",b},{NULL,""}}'),
    ("three dimensions", INT4S, -1, "{{{1}}}"),
    ("a lower bound of zero", INT4S, -1, "[0:1]={1,2}"),
    ("a negative lower bound", TEXTS, -1, '[-5:-4]={"[",b}'),
    ("dimensions with bounds", INT4S, -1, "[1:1][-2:-1]={{1,2}}"),
    ("an element its decimal cannot hold", NUMERICS, NUMERIC_5_2, "{1.00,NaN,Infinity}"),
    ("an element beyond the years of the column", TIMESTAMPS, -1, '{"294276-12-31 23:59:59"}'),
]


@pytest.mark.parametrize(
    ("oid", "modifier", "text"), [r[1:] for r in UNREPRESENTABLE], ids=[r[0] for r in UNREPRESENTABLE]
)
def test_an_array_a_list_cannot_hold_is_null_and_reported_whole(oid: int, modifier: int, text: str):
    converted = convert(column("{}", text, None, "{}", text), oid, modifier)
    assert converted.array.to_pylist() == [[], None, None, [], None]
    assert converted.unrepresentable == ((1, text), (4, text))


def test_only_the_array_with_the_flaw_is_null():
    converted = convert(column("{1.00}", "{}", "{2.00,NaN}", "{}", "{3.00,NULL}"), NUMERICS, NUMERIC_5_2)
    assert converted.array.to_pylist() == [[Decimal("1.00")], [], None, [], [Decimal("3.00"), None]]
    assert converted.unrepresentable == ((2, "{2.00,NaN}"),)


@pytest.mark.parametrize(
    ("oid", "options"), [(BOXES, TypeOptions()), (INT4S, TypeOptions(arrays=ArrayForm.TEXT))]
)
def test_an_array_kept_as_text_is_the_text_whatever_its_shape(oid: int, options: TypeOptions):
    texts = ["{(1,1),(0,0);(2,2),(1,1)}", "{{1,2}}", "[0:1]={1,2}", None]
    assert convert(column(*texts), oid, -1, options).array.to_pylist() == texts


def test_elements_that_are_not_utf8_are_escaped_and_their_rows_counted():
    converted = convert(column(b'{a\xff,"\xfe b"}', None, b"{ok}"), TEXTS)
    assert converted.array.to_pylist() == [["a\\xff", "\\xfe b"], None, ["ok"]]
    assert converted.escaped_rows == 1


@pytest.mark.parametrize(
    "text",
    *[
        [
            "",
            "{",
            "}",
            "1,2",
            "{1",
            "1}",
            "{1,}",
            "{,}",
            "{1}{2}",
            "{a b",
            '{"a}',
            '{"a"b}',
            '{a"b"}',
            '{"}',
            "{x}",
            "()",
        ]
    ],
)
def test_text_that_is_no_array_is_an_error(text: str):
    with pytest.raises(ValueConversionError, match="_int4"):
        convert(column("{1}", text), INT4S)


# --- properties: what Postgres' array_out prints is read back -------------------------------------------------


def printed(elements: list[str | None]) -> str:
    """``array_out``: quotes where the manual says so, and a backslash before each quote and backslash."""
    return "{" + ",".join("NULL" if e is None else quoted(e) for e in elements) + "}"


def quoted(element: str) -> str:
    plain = element and element.upper() != "NULL" and not set(element) & set('{},"\\ \t\n\r\v\f')
    escaped = element.replace("\\", "\\\\").replace('"', '\\"')
    return element if plain else f'"{escaped}"'


#: Mostly the characters of the syntax, in every order.
WORDS = st.none() | st.text(
    st.sampled_from('{},"\\ NULnulaé[]=:') | st.characters(exclude_characters="\0", codec="utf-8")
)


@given(st.lists(st.none() | st.lists(WORDS)))
@example([["\\"], ['"']])
@example([["a"], [None], [], None, ["NULL"]])
def test_any_array_of_text_is_exact(rows: list[list[str | None] | None]):
    text = column(*(None if row is None else printed(row) for row in rows))
    converted = convert(text, TEXTS)
    converted.array.validate(full=True)
    assert converted.array.to_pylist() == rows
    assert converted.unrepresentable == ()


@given(st.lists(st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1))))
def test_any_array_of_integers_is_exact(rows: list[list[int | None] | None]):
    text = column(*(None if r is None else printed([None if e is None else str(e) for e in r]) for r in rows))
    assert convert(text, INT4S).array.to_pylist() == rows


@given(st.lists(st.none() | st.lists(st.none() | st.binary(max_size=8))))
def test_any_array_of_bytes_is_exact(rows: list[list[bytes | None] | None]):
    text = column(
        *(None if r is None else printed([None if e is None else f"\\x{e.hex()}" for e in r]) for r in rows)
    )
    assert convert(text, BYTEAS).array.to_pylist() == rows


@given(st.lists(st.lists(WORDS, min_size=1), min_size=1), st.data())
def test_a_shape_of_its_own_never_disturbs_the_rows_beside_it(
    rows: list[list[str | None]], data: st.DataObject
):
    shaped = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    texts = [
        data.draw(st.sampled_from(["{%s}", "[0:9]=%s"])) % printed(row) if odd else printed(row)
        for row, odd in zip(rows, shaped, strict=True)
    ]
    converted = convert(column(*texts), TEXTS)
    assert converted.array.to_pylist() == [
        None if odd else row for row, odd in zip(rows, shaped, strict=True)
    ]
    assert converted.unrepresentable == tuple((i, texts[i]) for i, odd in enumerate(shaped) if odd)

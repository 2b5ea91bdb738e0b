"""Columns of many tuples are found together, stay inside their message, and come out as Arrow text."""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from etl.errors import DecodeError
from etl.pgoutput.tuples import SplitTuples, escape, gather, split
from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.encoder import UNCHANGED, Binary


def split_all(tuples: list[bytes], ncols: int, behind: bytes = b"") -> SplitTuples:
    """Split tuples that stand one behind the other, each followed by the same bytes that are not its own."""
    ends = np.cumsum([len(raw) + len(behind) for raw in tuples], dtype=np.int64) - len(behind)
    starts = ends - np.array([len(raw) for raw in tuples], np.int64)
    return split(b"".join(raw + behind for raw in tuples), starts, ends, ncols)


ROWS = [
    [b"1", b"", None, b"x" * 300],
    [None, b"two", UNCHANGED, b""],
    [b"three", None, b"3", UNCHANGED],
]


def test_kinds_starts_and_lengths_of_every_column():
    found = split_all([encoder.tuple_data(row) for row in ROWS], 4)
    assert ["".join(map(chr, column)) for column in found.kind] == ["tnt", "ttn", "nut", "ttu"]
    for column in range(4):
        values = [
            found.data[start : start + length]
            for start, length in zip(found.starts(column), found.lengths(column), strict=True)
        ]
        assert values == [row[column] if isinstance(row[column], bytes) else b"" for row in ROWS]


@pytest.mark.parametrize(
    "behind", [b"", b"t", b"n" * 20, b"t\0\0\0\0" * 9], ids=["nothing", "a kind", "nulls", "values"]
)
def test_what_follows_a_tuple_does_not_matter_and_is_pointed_at(behind: bytes):
    tuples = [encoder.tuple_data(row) for row in ROWS]
    found = split_all(tuples, 4, behind)
    sizes = np.cumsum([len(raw) + len(behind) for raw in tuples])
    assert found.next.tolist() == (sizes - len(behind)).tolist()
    assert [text.values.to_pylist() for text in gather(found)] == texts()


def texts() -> list[list[str | None]]:
    return [
        [value.decode() if isinstance(value := row[column], bytes) else None for row in ROWS]
        for column in range(4)
    ]


def test_text_is_null_where_the_value_is_null_or_unchanged_and_not_where_it_is_empty():
    assert [
        text.values.to_pylist() for text in gather(split_all(list(map(encoder.tuple_data, ROWS)), 4))
    ] == texts()


def test_an_index_picks_tuples_and_leaves_gaps():
    found = split_all([encoder.tuple_data(row) for row in ROWS], 4)
    picked = gather(found, np.array([-1, 2, 0, -1]))
    assert [text.values.to_pylist() for text in picked] == [
        [None, column[2], column[0], None] for column in texts()
    ]


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_tuples_without_columns_are_tuples(rows: int):
    found = split_all([encoder.tuple_data([])] * rows, 0)
    assert len(found) == rows
    assert gather(found) == ()
    assert found.next.tolist() == [2 * (row + 1) for row in range(rows)]


def test_no_tuples_have_empty_columns():
    found = split_all([], 3)
    assert [len(text.values) for text in gather(found)] == [0, 0, 0]
    assert [text.values.to_pylist() for text in gather(found, np.array([-1, -1]))] == [[None, None]] * 3


def test_a_tuple_of_1600_columns():
    row = [b"%d" % n if n % 3 else None for n in range(1600)]
    found = gather(split_all([encoder.tuple_data(row)] * 2, 1600))
    assert [text.values.to_pylist() for text in found] == [[v and v.decode()] * 2 for v in row]


@pytest.mark.parametrize(
    ("raw", "ncols", "said"),
    [
        pytest.param(b"", 1, "ends too early", id="nothing"),
        pytest.param(b"\0", 1, "ends too early", id="half a count"),
        pytest.param(b"\0\1", 1, "ends too early", id="no column"),
        pytest.param(b"\0\2n", 2, "ends too early", id="one column of two"),
        pytest.param(b"\0\2nn", 1, "tuple of 2 columns, not 1", id="too many columns"),
        pytest.param(b"\0\0", 1, "tuple of 0 columns, not 1", id="too few columns"),
        pytest.param(b"\0\1x", 1, "column 0: unknown kind 'x'", id="an unknown kind"),
        pytest.param(b"\0\1t", 1, "column 0: value passes the end", id="no length"),
        pytest.param(b"\0\1t\0\0\0", 1, "column 0: value passes the end", id="half a length"),
        pytest.param(b"\0\1t\0\0\0\1", 1, "column 0: value passes the end", id="no value"),
        pytest.param(b"\0\1t\xff\xff\xff\xff", 1, "column 0: value passes the end", id="a length of -1"),
        pytest.param(b"\0\1t\x7f\xff\xff\xff", 1, "column 0: value passes the end", id="the greatest length"),
        pytest.param(
            b"\0\1t\x80\0\0\0", 1, "column 0: value passes the end", id="a length with the sign bit"
        ),
        pytest.param(b"\0\1b\xff\xff\xff\xff", 1, "column 0: value passes the end", id="a binary one"),
        pytest.param(b"\0\2t\0\0\0\1a", 2, "column 1: ", id="the second column is missing"),
    ],
)
@pytest.mark.parametrize("behind", [b"", b"t\0\0\0\0" * 3, b"n" * 10, b"\0" * 10], ids=["end", "t", "n", "0"])
@pytest.mark.parametrize("row", [0, 2])
def test_a_bad_tuple_is_refused_and_named(raw: bytes, ncols: int, said: str, behind: bytes, row: int):
    good = encoder.tuple_data([b"good"] * ncols)
    tuples = [good, good]
    tuples.insert(row, raw)
    with pytest.raises(DecodeError, match=f"row {row}: .*{said}"):
        split_all(tuples, ncols, behind)


def test_every_other_byte_is_no_kind():
    for kind in set(range(256)) - set(b"nutb"):
        with pytest.raises(DecodeError, match="column 1: "):
            split_all([b"\0\2n" + bytes([kind]) + b"\0\0\0\0"], 2)


def test_the_width_is_checked_before_anything_is_allocated():
    raw = struct.pack(">H", 65535)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            split_all([raw] * 1000, 65535)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_binary_values_are_found_but_are_no_text():
    found = split_all([encoder.tuple_data([Binary(b"\0\1"), b"text"])], 2)
    assert [chr(kind) for kind in found.kind[:, 0]] == ["b", "t"]
    assert [text.values.to_pylist() for text in gather(found)] == [[None], ["text"]]


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        pytest.param(b"caf\xe9", r"caf\xe9", id="Latin-1"),
        pytest.param(b"\xff\xfe", r"\xff\xfe", id="no character at all"),
        pytest.param("ü".encode()[:1], r"\xc3", id="half a character"),
        pytest.param(b"\xed\xa0\x80", r"\xed\xa0\x80", id="a surrogate"),
        pytest.param(b"\xc0\x80", r"\xc0\x80", id="an overlong NUL"),
    ],
)
def test_bytes_that_are_not_utf8_are_escaped_and_flagged(raw: bytes, shown: str):
    rows = [["später".encode(), None], [raw, b"plain"], [rb"literal \xe9", raw]]
    one, two = gather(split_all([encoder.tuple_data(row) for row in rows], 2))
    assert one.values.to_pylist() == ["später", shown, r"literal \xe9"]
    assert two.values.to_pylist() == [None, "plain", shown]
    assert one.escaped.tolist() == [1]
    assert two.escaped.tolist() == [2]
    assert one.values.type == two.values.type == pa.string()


def test_a_column_of_utf8_beside_one_that_is_not_has_no_escapes():
    one, two = gather(split_all([encoder.tuple_data([rb"\xe9", b"\xe9"])], 2))
    assert (one.values.to_pylist(), one.escaped.tolist()) == ([r"\xe9"], [])
    assert (two.values.to_pylist(), two.escaped.tolist()) == ([r"\xe9"], [0])


@pytest.mark.parametrize("values", [[], [None], ["ascii"], ["ü", None]])
def test_escaping_utf8_changes_nothing(values: list[str | None]):
    text = escape(pa.array([v and v.encode() for v in values], pa.binary()))
    assert text.values.to_pylist() == values
    assert text.escaped.tolist() == []


def test_the_arrays_are_valid_arrow():
    for text in gather(split_all([encoder.tuple_data(row) for row in ROWS], 4), np.array([2, -1, 0])):
        text.values.validate(full=True)

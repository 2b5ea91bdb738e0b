"""COPY's text format is read in whole blocks as a reader of single rows would read it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.source.copy_text import blank_headers, parse, row_ends, unescaped

Row = tuple[str | None, ...]

_ESCAPES = {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}


def printed(value: str | None) -> str:
    """As the server prints it."""
    return "\\N" if value is None else "".join(_ESCAPES.get(character, character) for character in value)


def message(line: bytes) -> bytes:
    return b"d" + (len(line) + 4).to_bytes(4, "big") + line


def messages(rows: list[Row]) -> list[bytes]:
    return [message("\t".join(map(printed, row)).encode() + b"\n") for row in rows]


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).copy()


VALUE = st.none() | st.text(
    st.sampled_from(["\\", "\b", "\f", "\n", "\r", "\t", "\v", '"', ",", "N", "n", ".", " ", "é", "𝄞"])
    | st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"),
    max_size=12,
)
ROWS = st.integers(1, 4).flatmap(lambda width: st.lists(st.tuples(*[VALUE] * width), min_size=1, max_size=30))


@given(ROWS)
@example([("\\",), ("\\N",), ("N",), (None,), ("",)])
@example([("a\\", "\\b"), ("\\\\", "\\")])
def test_rows_are_what_the_server_printed(rows: list[Row]) -> None:
    data = array(b"".join(messages(rows)))
    ends = row_ends(data)
    assert len(ends) == len(rows)
    blank_headers(data, ends)
    columns = parse(pa.py_buffer(data), len(rows[0]), pa.string(), skipped=1)
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == rows


@given(ROWS)
def test_lines_without_headers_are_read_alike(rows: list[Row]) -> None:
    lines = b"".join(one[5:] for one in messages(rows))
    columns = parse(pa.py_buffer(lines), len(rows[0]), pa.string(), skipped=0)
    assert list(zip(*(column.to_pylist() for column in columns), strict=True)) == rows


LENGTHS = st.lists(
    st.integers(0, 40) | st.sampled_from([5, 6, 10 - 5, 266 - 5, 522 - 5, 2560 - 5, 2570 - 5, 2826 - 5]),
    min_size=1,
    max_size=40,
)


@given(LENGTHS, st.data())
def test_rows_are_found_whatever_bytes_their_lengths_are_made_of(
    lengths: list[int], data: st.DataObject
) -> None:
    sent = [message(b"x" * length + b"\n") for length in lengths]
    whole = np.cumsum([len(one) for one in sent])
    cut = data.draw(st.integers(0, int(whole[-1])))
    assert row_ends(array(b"".join(sent)[:cut])).tolist() == [end for end in whole if end <= cut]


@given(LENGTHS, st.sampled_from([b"N\0\0\0\x0aa\n\nb\0\0", b"c\0\0\0\4", b"Z\0\0\0\5T", b"d\0\0\0\x06\n\n"]))
def test_rows_end_before_another_message(lengths: list[int], other: bytes) -> None:
    sent = [message(b"x" * length + b"\n") for length in lengths]
    whole = np.cumsum([len(one) for one in sent]).tolist()
    assert row_ends(array(b"".join([*sent, other, *sent])))[: len(whole)].tolist() == whole
    assert len(row_ends(array(b"".join([*sent, other, *sent])))) == len(whole)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_bytes_that_are_no_text_are_kept(kind: pa.DataType) -> None:
    escaped = pa.array([b"\xff\\t\xfe", None, b""], pa.binary()).view(kind)
    assert unescaped(escaped).view(pa.binary()).to_pylist() == [b"\xff\t\xfe", None, b""]

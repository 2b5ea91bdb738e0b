"""Inserts, updates and deletes of a relation come out together, each with the images it was sent with."""

from __future__ import annotations

import numpy as np
import pytest

from etl.errors import DecodeError
from etl.lsn import Lsn
from etl.pgoutput.frames import scan
from etl.pgoutput.rows import SUB_KEY, SUB_OLD, RawRows, decode_rows
from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.encoder import UNCHANGED, Binary

OID = 16385
AT = 0x16_0000_0000


def decode(bodies: list[bytes], ncols: int) -> RawRows:
    frames = scan(encoder.chunk([encoder.xlog(AT + n, body) for n, body in enumerate(bodies)]))
    return decode_rows(frames, np.arange(len(frames)), ncols)


def new(raw: RawRows, column: int) -> list[str | None]:
    return raw.new_text(column).values.to_pylist()


def old(raw: RawRows, column: int) -> list[str | None]:
    return raw.old_text(column).values.to_pylist()


MIXED = [
    encoder.insert(OID, [b"1", b"a"]),
    encoder.update(OID, [b"1", b"b"]),
    encoder.update(OID, [b"2", UNCHANGED], [b"1", None], old_kind=b"K"),
    encoder.delete(OID, [b"2", None]),
    encoder.insert(OID, [b"3", None]),
    encoder.update(OID, [b"3", UNCHANGED], [b"3", b"whole"]),
    encoder.delete(OID, [b"3", b"whole"], old_kind=b"O"),
]


def test_operations_and_lsns_are_in_the_order_of_the_stream():
    raw = decode(MIXED, 2)
    assert raw.ops.tobytes() == b"IUUDIUD"
    assert raw.lsn.tolist() == [AT + n for n in range(7)]
    assert len(raw) == 7


def test_new_values_are_null_for_a_delete_and_for_an_unchanged_value():
    raw = decode(MIXED, 2)
    assert new(raw, 0) == ["1", "1", "2", None, "3", "3", None]
    assert new(raw, 1) == ["a", "b", None, None, None, None, None]


def test_unchanged_values_are_flagged_apart_from_nulls():
    raw = decode(MIXED, 2)
    assert raw.unchanged(0) is None
    assert np.flatnonzero(raw.unchanged(1)).tolist() == [2, 5]


def test_old_images_are_compact_and_found_by_their_index():
    raw = decode(MIXED, 2)
    assert raw.old_index.tolist() == [-1, -1, 0, 1, -1, 2, 3]
    assert raw.old_kind.tolist() == [SUB_KEY, SUB_KEY, SUB_OLD, SUB_OLD]
    assert old(raw, 0) == ["1", "2", "3", "3"]
    assert old(raw, 1) == [None, None, "whole", "whole"]
    assert len(raw.old) == 4


def test_rows_without_old_images_have_none():
    raw = decode([encoder.insert(OID, [b"1"])] * 3, 1)
    assert raw.old is None
    assert raw.old_index.tolist() == [-1, -1, -1]
    assert raw.old_kind.tolist() == old(raw, 0) == []
    assert raw.unchanged(0) is None


def test_deletes_alone_have_no_new_values():
    raw = decode([encoder.delete(OID, [b"1"]), encoder.delete(OID, [b"2"])], 1)
    assert new(raw, 0) == [None, None]
    assert old(raw, 0) == ["1", "2"]


def test_the_rows_of_one_relation_are_read_out_of_many():
    bodies = [encoder.insert(OID + n % 2, [b"%d" % n] * (1 + n % 2)) for n in range(6)]
    frames = scan(encoder.chunk([encoder.xlog(AT, body) for body in bodies]))
    assert new(decode_rows(frames, np.array([0, 2, 4]), 1), 0) == ["0", "2", "4"]
    assert new(decode_rows(frames, np.array([1, 3, 5]), 2), 1) == ["1", "3", "5"]


def test_no_rows_are_no_error():
    raw = decode([], 2)
    assert len(raw) == 0
    assert new(raw, 1) == []


@pytest.mark.parametrize("rows", [1, 2])
def test_a_table_without_columns_has_rows(rows: int):
    raw = decode([encoder.insert(OID, []), encoder.delete(OID, [], old_kind=b"O")] * rows, 0)
    assert raw.ops.tobytes() == b"ID" * rows
    assert len(raw.new) == 2 * rows
    assert len(raw.old) == rows


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(encoder.insert(OID, [b"1"]), "tuple of 1 columns, not 2", id="narrow"),
        pytest.param(encoder.insert(OID, [b"1"] * 3), "tuple of 3 columns, not 2", id="wide"),
        pytest.param(encoder.insert(OID, [b"1", Binary(b"")]), "binary format", id="binary"),
        pytest.param(encoder.update(OID, [b"1"] * 2, [Binary(b"")] * 2), "binary format", id="binary old"),
        pytest.param(encoder.insert(OID, [b"1"] * 2) + b"\0", "1 bytes left over", id="longer insert"),
        pytest.param(encoder.delete(OID, [b"1"] * 2) + b"\0", "1 bytes left over", id="longer delete"),
        pytest.param(
            encoder.update(OID, [b"1"] * 2, [None] * 2) + b"\0", "1 bytes left over", id="longer update"
        ),
        pytest.param(
            encoder.insert(OID, [b"1"] * 2).replace(b"N", b"K", 1), "tuple type 'K'", id="insert of a key"
        ),
        pytest.param(
            encoder.delete(OID, [b"1"] * 2, old_kind=b"N"), "tuple type 'N'", id="delete of a new row"
        ),
        pytest.param(
            encoder.update(OID, [b"1"] * 2, [b"1"] * 2, old_kind=b"x"), "tuple type 'x'", id="unknown image"
        ),
        pytest.param(
            encoder.delete(OID, [b"1"] * 2).replace(b"D", b"U", 1),
            "no new tuple",
            id="update of an old row only",
        ),
        pytest.param(
            encoder.update(OID, [b"1"] * 2, [b"1"] * 2).replace(b"1N", b"1O", 1),
            "no new tuple",
            id="two old rows",
        ),
    ],
)
@pytest.mark.parametrize("behind", [[], [encoder.update(OID, [b"N"] * 2, [b"N"] * 2)]], ids=["last", "first"])
def test_a_bad_message_is_refused_and_named(body: bytes, said: str, behind: list[bytes]):
    with pytest.raises(DecodeError, match=said) as caught:
        decode([*MIXED, body, *behind], 2)
    assert caught.value.tag == chr(body[0])
    assert caught.value.lsn == Lsn(AT + len(MIXED))
    assert 0 < caught.value.offset <= len(body)


@pytest.mark.parametrize("body", MIXED[:4], ids=["insert", "update", "update with key", "delete"])
@pytest.mark.parametrize("behind", [[], MIXED], ids=["last", "first"])
def test_every_truncation_is_refused(body: bytes, behind: list[bytes]):
    for size in range(1, len(body)):
        with pytest.raises(DecodeError):
            decode([*MIXED, body[:size], *behind], 2)


def test_an_escaped_value_is_flagged_in_its_row_whatever_stands_before_it():
    raw = decode([encoder.delete(OID, [b"1"]), encoder.insert(OID, [b"\xff"])], 1)
    assert new(raw, 0) == [None, r"\xff"]
    assert raw.new_text(0).escaped.tolist() == [1]

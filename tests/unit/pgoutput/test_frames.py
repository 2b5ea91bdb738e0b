"""A chunk is classified as a whole: kinds, tags, LSNs, message bounds, relations, and who is to blame."""

from __future__ import annotations

import numpy as np
import pytest

from etl.errors import DecodeError
from etl.lsn import Lsn
from etl.pgoutput.frames import KIND_KEEPALIVE, KIND_XLOG_DATA, Chunk, scan
from tests.unit.pgoutput import encoder

NOON = encoder.EPOCH_2000 + 43_200_000_000
LSN = 0x1_2345_6789

MESSAGES = {
    "B": encoder.begin(LSN),
    "C": encoder.commit(LSN, LSN + 8),
    "O": encoder.origin(LSN, "elsewhere"),
    "R": encoder.relation(16385, "public", "t", [(True, "id", 20, -1)]),
    "Y": encoder.type_name(16390, "public", "mood"),
    "T": encoder.truncate([16385]),
    "M": encoder.message(LSN, "prefix", b"content"),
    "I": encoder.insert(16385, [b"1"]),
    "U": encoder.update(16385, [b"1"]),
    "D": encoder.delete(16385, [b"1"]),
}


def test_every_payload_becomes_one_frame_in_the_order_of_the_stream():
    payloads = [encoder.xlog(LSN + n, body) for n, body in enumerate(MESSAGES.values())]
    frames = scan(encoder.chunk(payloads))
    assert len(frames) == len(MESSAGES)
    assert frames.tag.tobytes().decode() == "".join(MESSAGES)
    assert frames.lsn.tolist() == [LSN + n for n in range(len(MESSAGES))]
    bodies = [frames.data[a:b] for a, b in zip(frames.start, frames.end, strict=True)]
    assert bodies == list(MESSAGES.values())


@pytest.mark.parametrize(("tag", "oid"), [("I", 1), ("U", 2**31), ("D", 2**32 - 1), ("R", 16385)])
def test_rows_and_relations_name_their_relation(tag: str, oid: int):
    body = MESSAGES[tag].replace(np.uint32(16385).byteswap().tobytes(), np.uint32(oid).byteswap().tobytes())
    frames = scan(encoder.chunk([encoder.xlog(LSN, body)]))
    assert frames.oid.tolist() == [oid]


@pytest.mark.parametrize("tag", "BCOYTM")
def test_messages_of_no_single_relation_have_none(tag: str):
    assert scan(encoder.chunk([encoder.xlog(LSN, MESSAGES[tag])])).oid.tolist() == [0]


def test_only_inserts_updates_and_deletes_are_rows():
    frames = scan(encoder.chunk([encoder.xlog(LSN, body) for body in MESSAGES.values()]))
    assert [tag for tag, is_row in zip(MESSAGES, frames.is_row, strict=True) if is_row] == ["I", "U", "D"]


def test_keepalives_stand_between_messages():
    frames = scan(
        encoder.chunk(
            [
                encoder.keepalive(LSN, clock=NOON),
                encoder.xlog(LSN + 8, MESSAGES["I"], wal_end=LSN + 99, clock=NOON + 1),
                encoder.keepalive(LSN + 16, clock=NOON + 2, reply_requested=True),
            ]
        )
    )
    assert frames.kind.tolist() == [KIND_KEEPALIVE, KIND_XLOG_DATA, KIND_KEEPALIVE]
    assert frames.tag.tolist() == [0, ord("I"), 0]
    assert frames.lsn.tolist() == [LSN, LSN + 8, LSN + 16]
    assert frames.wal_end.tolist() == [LSN, LSN + 99, LSN + 16]
    assert frames.clock.tolist() == [NOON, NOON + 1, NOON + 2]
    assert frames.reply_requested.tolist() == [False, False, True]


@pytest.mark.parametrize("tag", "IRB")
def test_a_keepalive_whose_bytes_look_like_a_message_is_none(tag: str):
    wal_end = int.from_bytes(tag.encode() + b"\1" * 7, "big")
    frames = scan(encoder.chunk([encoder.keepalive(wal_end)]))
    assert (frames.tag.tolist(), frames.oid.tolist(), frames.is_row.tolist()) == ([0], [0], [False])
    assert frames.lsn.tolist() == [wal_end]


def test_an_empty_chunk_has_no_frames():
    frames = scan(encoder.chunk([]))
    assert len(frames) == 0
    assert frames.wal_end.tolist() == frames.clock.tolist() == frames.reply_requested.tolist() == []


@pytest.mark.parametrize(
    ("payload", "tag", "offset", "lsn", "said"),
    [
        pytest.param(b"x", "x", 0, None, "neither XLogData nor a keepalive", id="unknown payload"),
        pytest.param(b"k", "k", 1, None, "wrong size", id="keepalive cut off"),
        pytest.param(encoder.keepalive(LSN) + b"\0", "k", 19, None, "wrong size", id="keepalive too long"),
        pytest.param(encoder.xlog(LSN, b"")[:-1], "w", 24, None, "wrong size", id="header cut off"),
        pytest.param(encoder.xlog(LSN, b""), "w", 25, None, "wrong size", id="header without a message"),
        pytest.param(
            encoder.xlog(LSN, b"S1234"), "S", 0, LSN, "unknown message", id="a message of protocol 2"
        ),
        pytest.param(encoder.xlog(LSN, b"\0" * 40), "\0", 0, LSN, "unknown message", id="a tag of zero"),
        pytest.param(encoder.xlog(LSN, b"\xff"), "\xff", 0, LSN, "unknown message", id="a tag beyond ASCII"),
        pytest.param(encoder.xlog(LSN, b"I\0\0\0"), "I", 4, LSN, "ends too early", id="no relation"),
        pytest.param(encoder.xlog(LSN, MESSAGES["B"][:-1]), "B", 20, LSN, "ends too early", id="begin"),
    ],
)
def test_the_error_names_tag_offset_and_lsn(payload: bytes, tag: str, offset: int, lsn: int, said: str):
    good = encoder.xlog(LSN - 1, MESSAGES["B"])
    for payloads in ([payload], [good, payload, good]):
        with pytest.raises(DecodeError, match=said) as caught:
            scan(encoder.chunk(payloads))
        assert (caught.value.tag, caught.value.offset) == (tag, offset)
        assert caught.value.lsn == (None if lsn is None else Lsn(lsn))


@pytest.mark.parametrize(
    ("data", "ends"),
    [
        pytest.param(b"k" * 18, [17], id="bytes behind the last end"),
        pytest.param(b"k" * 18, [19], id="end beyond the bytes"),
        pytest.param(b"", [18], id="no bytes"),
        pytest.param(b"k" * 36, [36, 36], id="an empty payload at the end"),
        pytest.param(b"k" * 36, [0, 36], id="an empty payload at the start"),
        pytest.param(b"k" * 36, [-18, 36], id="a negative end"),
        pytest.param(b"k" * 36, [40, 36], id="ends that go back"),
        pytest.param(b"k" * 18, [], id="bytes without an end"),
    ],
)
def test_ends_that_do_not_tile_the_bytes_are_refused(data: bytes, ends: list[int]):
    with pytest.raises(DecodeError):
        scan(Chunk(data, np.array(ends, np.int64)))

"""The queue between reader and apply worker: bounded by bytes, never blocking its producer for long."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.pgoutput.frames import Chunk
from etl.pipeline import handoff
from etl.pipeline.handoff import HandOff
from tests.unit.pgoutput.encoder import chunk

FOREVER = 30.0


def of(*payloads: bytes) -> Chunk:
    return chunk(payloads)


def payloads(taken: Chunk | None) -> list[bytes]:
    """The payloads of a chunk, cut at its ends."""
    if taken is None:
        return []
    ends = [int(end) for end in taken.ends]
    return [bytes(taken.data[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


def test_what_is_put_comes_out_in_order_joined_into_one_chunk():
    queue = HandOff(100)
    queue.put(of(b"a", b"bb"))
    queue.put(of(b"ccc"))

    assert queue.nbytes == 6
    assert payloads(queue.get(0)) == [b"a", b"bb", b"ccc"]
    assert queue.nbytes == 0


def test_a_single_chunk_is_not_copied():
    queue = HandOff(100)
    only = of(b"a")
    queue.put(only)

    assert queue.get(0) is only


def test_an_empty_queue_gives_nothing_in_time():
    assert HandOff(100).get(0.0) is None


def test_there_is_room_below_the_bound_and_none_at_it():
    queue = HandOff(3)
    queue.put(of(b"aa"))
    assert queue.wait_for_room(0)

    queue.put(of(b"b"))
    assert not queue.wait_for_room(0)
    queue.get(0)
    assert queue.wait_for_room(0)


def test_a_chunk_larger_than_the_bound_is_taken_all_the_same():
    queue = HandOff(3)
    queue.put(of(b"a" * 50))

    assert not queue.wait_for_room(0)
    assert len(payloads(queue.get(0))[0]) == 50


def test_joining_stops_where_a_chunk_would_become_too_large(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(handoff, "_JOIN_BYTES", 4)
    queue = HandOff(100)
    for payload in (b"aa", b"bb", b"c", b"d" * 9, b"e"):
        queue.put(of(payload))

    taken = [payloads(queue.get(0)) for _ in range(4)]
    assert taken == [[b"aa", b"bb"], [b"c"], [b"d" * 9], [b"e"]]


def test_a_consumer_that_waits_is_woken_by_a_chunk():
    queue, got = HandOff(100), []
    consumer = threading.Thread(target=lambda: got.append(queue.get(FOREVER)))
    consumer.start()
    queue.put(of(b"a"))
    consumer.join(FOREVER)

    assert [payloads(chunk) for chunk in got] == [[b"a"]]


def test_a_producer_that_waits_is_woken_by_room():
    queue, had_room = HandOff(1), []
    queue.put(of(b"a"))
    producer = threading.Thread(target=lambda: had_room.append(queue.wait_for_room(FOREVER)))
    producer.start()
    queue.get(0)
    producer.join(FOREVER)

    assert had_room == [True]


def test_closing_wakes_both_sides_and_loses_nothing_that_waits():
    full, empty = HandOff(1), HandOff(1)
    full.put(of(b"a"))
    woken: list[object] = []
    sides = [
        threading.Thread(target=lambda: woken.append(full.wait_for_room(FOREVER))),
        threading.Thread(target=lambda: woken.append(empty.get(FOREVER))),
    ]
    for side in sides:
        side.start()
    full.close()
    empty.close()
    for side in sides:
        side.join(FOREVER)

    assert sorted(woken, key=str) == [None, True]
    assert payloads(full.get(0)) == [b"a"]
    assert full.get(FOREVER) is None


@given(st.lists(st.lists(st.binary(min_size=1, max_size=5), min_size=1, max_size=4), max_size=10))
def test_no_payload_is_lost_moved_or_cut_anew(chunks: list[list[bytes]]):
    queue = HandOff(1 << 20)
    for one in chunks:
        queue.put(of(*one))
    taken: list[bytes] = []
    while queue.nbytes:
        taken += payloads(queue.get(0))

    assert taken == [payload for one in chunks for payload in one]

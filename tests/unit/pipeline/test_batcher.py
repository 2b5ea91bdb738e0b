"""When events are written: at a size, at an age, and cut where a transaction ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.events import Commit, Event, RowChanges
from etl.pipeline.batcher import Batcher
from etl.testing.builders import INT8, Insert, Stream, column, table_schema

SCHEMA = table_schema(column("id", 1, INT8))
NBYTES = Stream().rows(SCHEMA, Insert({"id": 1})).nbytes
FILL_S = 1.0


@pytest.fixture
def stream() -> Stream:
    return Stream()


def rows(stream: Stream, count: int = 1) -> RowChanges:
    return stream.rows(SCHEMA, *(Insert({"id": number}) for number in range(count)))


def batcher(max_rows: int = 100) -> Batcher:
    return Batcher(max_rows * NBYTES, FILL_S)


def test_an_empty_batcher_is_never_due_and_gives_nothing():
    empty = batcher()

    assert empty.deadline() is None
    assert not empty.is_due(1e9)
    assert empty.take(0.0) is None


def test_a_transaction_waits_for_company_until_its_first_event_is_old_enough(stream: Stream):
    collected = batcher()
    collected.add([rows(stream), stream.commit()], now=10.0)
    collected.add([rows(stream), stream.commit()], now=10.9)

    assert not collected.is_due(10.99)
    assert collected.is_due(11.0)
    batch = collected.take(11.0)
    assert batch is not None
    assert (batch.rows, len(batch.events), len(collected)) == (2, 4, 0)


def test_a_transaction_without_an_end_is_not_written_however_old(stream: Stream):
    collected = batcher()
    collected.add([rows(stream)], now=0.0)

    assert collected.deadline() is None
    assert not collected.is_due(1e9)
    assert collected.take(1e9) is None
    assert len(collected) == 1


def test_a_batch_is_cut_at_the_last_commit_and_the_rest_is_kept(stream: Stream):
    collected = batcher()
    first, second = rows(stream), stream.commit()
    open_rows = rows(stream, 2)
    collected.add([first, second, open_rows], now=0.0)
    batch = collected.take(1.0)

    assert batch is not None
    assert batch.events == (first, second)
    assert batch.commit is second
    assert collected.nbytes == open_rows.nbytes
    last = stream.commit()
    collected.add([last], now=1.5)
    rest = collected.take(2.0)
    assert rest is not None
    assert rest.events == (open_rows, last)


def test_the_age_of_the_rest_counts_from_the_cut(stream: Stream):
    collected = batcher()
    collected.add([rows(stream), stream.commit(), rows(stream)], now=0.0)
    collected.take(5.0)
    collected.add([stream.commit()], now=5.1)

    assert collected.deadline() == 5.0 + FILL_S


@pytest.mark.parametrize(
    ("took_s", "waits_s"), [(0.0, 0.0), (0.02, 0.14), (0.1, 0.7), (0.2, FILL_S), (30.0, FILL_S)]
)
def test_events_wait_seven_times_as_long_as_the_last_write_took_and_never_longer_than_they_may(
    stream: Stream, took_s: float, waits_s: float
):
    collected = batcher()
    collected.wrote(took_s)
    collected.add([rows(stream), stream.commit()], now=10.0)

    assert collected.deadline() == pytest.approx(10.0 + waits_s)
    assert collected.is_due(10.0 + waits_s + 1e-9)


def test_a_batch_waits_as_long_as_it_may_while_the_stream_is_behind(stream: Stream):
    collected = batcher()
    collected.wrote(0.02)
    collected.add([rows(stream), stream.commit()], now=0.0)

    assert collected.is_due(0.5)
    assert not collected.is_due(0.5, is_behind=True)
    assert collected.is_due(FILL_S, is_behind=True)


def test_a_large_batch_is_due_at_once(stream: Stream):
    collected = batcher(max_rows=3)
    collected.add([rows(stream, 2), stream.commit()], now=0.0)
    assert not collected.is_due(0.0)

    collected.add([rows(stream, 1), stream.commit()], now=0.0)
    assert collected.is_due(0.0)


def test_a_transaction_larger_than_the_budget_is_written_in_parts(stream: Stream):
    collected = batcher(max_rows=3)
    part = rows(stream, 5)
    collected.add([part], now=0.0)

    assert collected.is_due(0.0)
    batch = collected.take(0.0)
    assert batch is not None
    assert (batch.events, batch.commit) == ((part,), None)
    assert (len(collected), collected.nbytes) == (0, 0)


def test_transactions_of_others_make_an_empty_batch(stream: Stream):
    collected = batcher()
    collected.add([stream.commit()], now=0.0)
    batch = collected.take(1.0)

    assert batch is not None
    assert batch.is_empty
    assert (batch.rows, batch.nbytes) == (0, 0)


def test_a_relation_alone_is_something_to_write(stream: Stream):
    collected = batcher()
    collected.add([stream.relation(SCHEMA), stream.commit()], now=0.0)
    batch = collected.take(1.0)

    assert batch is not None
    assert not batch.is_empty


@given(st.lists(st.lists(st.sampled_from(["row", "commit", "relation", "take"]), max_size=6), max_size=12))
def test_every_event_is_written_once_in_order_and_batches_end_at_commits(plan: list[list[str]]):
    stream, collected = Stream(), batcher(max_rows=4)
    given_events: list[Event] = []
    taken: list[Event] = []
    for number, steps in enumerate(plan):
        events: list[Event] = []
        for step in steps:
            if step == "take":
                batch = collected.take(float(number))
                if batch is not None:
                    taken += batch.events
                    oversized = batch.nbytes >= 4 * NBYTES and not any(
                        isinstance(event, Commit) for event in batch.events
                    )
                    assert isinstance(batch.events[-1], Commit) or oversized
                continue
            event: Event = {
                "row": lambda: rows(stream),
                "commit": stream.commit,
                "relation": lambda: stream.relation(SCHEMA),
            }[step]()
            events.append(event)
        given_events += events
        collected.add(events, float(number))
    while (batch := collected.take(1e9)) is not None:
        taken += batch.events

    assert all(a is b for a, b in zip(taken, given_events, strict=False))
    assert len(given_events) - len(taken) == len(collected)
    assert not any(isinstance(event, Commit) for event in given_events[len(taken) :])

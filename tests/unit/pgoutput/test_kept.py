"""A table taken out of the stream and decoded later is told the same as one that was decoded as it came."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.events import Event, Relation, RowChanges
from etl.lsn import Lsn
from etl.pgoutput.frames import Chunk, scan
from etl.pgoutput.kept import Keeper, Kept, concat, from_bytes, to_bytes
from etl.pgoutput.messages import control
from etl.pgoutput.transactions import place
from etl.schema.catalog import SchemaCatalog
from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.kept_streams import (
    FOREIGN,
    ORDERS,
    OTHERS,
    SCHEMAS,
    Server,
    assembler,
    row_places,
    tags,
    told,
)

TABLES = (ORDERS, OTHERS)
Step = Callable[[Server], None]

_rows = st.builds(
    lambda change, oid, key: lambda server: change(server, oid, key),
    st.sampled_from([Server.insert, Server.update, Server.delete]),
    st.sampled_from([ORDERS, OTHERS, FOREIGN]),
    st.integers(0, 99),
)
_truncates = st.builds(
    lambda oids: lambda server: server.truncate(*sorted(oids)),
    st.sets(st.sampled_from([ORDERS, OTHERS, FOREIGN]), min_size=1),
)
_alters = st.builds(lambda oid: lambda server: server.alter(oid), st.sampled_from([ORDERS, OTHERS, FOREIGN]))
_steps = st.one_of(_rows, _rows, _rows, _truncates, _alters)


@st.composite
def chunked_streams(draw: st.DrawFn) -> list[Chunk]:
    """Transactions of rows, truncates and schema changes, cut into chunks anywhere."""
    server = Server()
    for steps in draw(st.lists(st.lists(_steps, max_size=6), max_size=5)):
        server.begin()
        for step in steps:
            step(server)
        server.commit()
        if draw(st.booleans()):
            server.keepalive()
    sent = server.payloads
    cuts = sorted({0, len(sent), *draw(st.lists(st.integers(0, len(sent)), max_size=6))})
    return [encoder.chunk(sent[start:stop]) for start, stop in pairwise(cuts)]


class Taker:
    """Takes what a server sent since the last time."""

    def __init__(self, server: Server) -> None:
        self.server, self.keeper, self.straight = server, Keeper(), assembler(*TABLES)

    def take(self, *tables: int) -> dict[int, Kept]:
        fed = self.straight.feed(encoder.chunk(self.server.payloads))
        self.server.payloads = []
        return self.keeper.take(fed.frames, fed.placement, tables)


@given(chunked_streams(), st.integers(0, 6), st.integers(0, 6))
def test_a_table_set_aside_anywhere_replayed_and_adopted_anywhere_is_told_the_same(
    chunks: list[Chunk], aside: int, adopted: int
):
    straight = assembler(*TABLES)
    expected = [event for chunk in chunks for event in straight.feed(chunk).events]

    catalog = SchemaCatalog(SCHEMAS)
    main, keeper, events = assembler(*TABLES, catalog=catalog), Keeper(), list[Event]()
    later = assembler(ORDERS, catalog=catalog)
    for number, chunk in enumerate(chunks):
        is_aside = aside <= number < aside + adopted
        if number == aside and is_aside:
            main.release([ORDERS])
        if number == aside + adopted and adopted:
            main.adopt(ORDERS, later)
        fed = main.feed(chunk)
        assert not fed.failures
        events += fed.events
        for kept in keeper.take(fed.frames, fed.placement, [ORDERS] if is_aside else []).values():
            replayed = later.replay(from_bytes(to_bytes(kept)))
            assert not replayed.failures
            events += replayed.events

    for oid in TABLES:
        assert told(events, oid) == told(expected, oid)


@given(chunked_streams(), st.integers(0, 6))
def test_all_that_was_kept_can_be_replayed_at_once_and_by_a_later_run_that_knows_all_versions(
    chunks: list[Chunk], aside: int
):
    catalog = SchemaCatalog(SCHEMAS)
    straight, keeper = assembler(*TABLES, catalog=catalog), Keeper()
    expected: list[Event] = []
    kept: dict[int, list[Kept]] = {oid: [] for oid in TABLES}
    for number, chunk in enumerate(chunks):
        fed = straight.feed(chunk)
        if number >= aside:
            expected += fed.events
        for oid, part in keeper.take(fed.frames, fed.placement, TABLES if number >= aside else ()).items():
            kept[oid].append(part)

    for oid in TABLES:
        replayed = assembler(oid, catalog=catalog).replay(concat(kept[oid]))
        assert not replayed.failures
        assert told(replayed.events, oid) == told(expected, oid)


@given(chunked_streams())
def test_a_slice_holds_the_frames_it_names_and_parts_make_the_whole(chunks: list[Chunk]):
    keeper, straight = Keeper(), assembler(*TABLES)
    for chunk in chunks:
        fed = straight.feed(chunk)
        for kept in keeper.take(fed.frames, fed.placement, TABLES).values():
            for cut in range(len(kept) + 1):
                parts = kept.slice(0, cut), kept.slice(cut)
                assert [len(part) for part in parts] == [cut, len(kept) - cut]
                assert to_bytes(concat(parts)) == to_bytes(kept)


@pytest.fixture
def server() -> Server:
    """Has sent a row of either table."""
    server = Server()
    server.begin()
    server.insert(ORDERS, 1)
    server.insert(OTHERS, 1)
    server.commit()
    return server


@pytest.fixture
def taker(server: Server) -> Taker:
    return Taker(server)


def test_what_is_kept_begins_with_the_relation_that_holds_in_the_place_of_its_first_frame(
    server: Server, taker: Taker
):
    assert taker.take() == {}
    server.begin()
    server.insert(OTHERS, 2)
    server.insert(ORDERS, 2)
    server.commit()
    kept = taker.take(ORDERS)[ORDERS]
    assert tags(kept) == "RI"
    assert (kept.commit_lsn.tolist(), kept.ordinal.tolist()) == ([0x3000] * 2, [2, 2])


def test_the_relation_is_put_in_front_once_and_again_when_the_table_comes_back(server: Server, taker: Taker):
    seen = []
    for tables in ([ORDERS], [ORDERS], [], [ORDERS]):
        kept = taker.take(*tables)
        seen += [tags(part) for part in kept.values()]
        server.begin()
        server.insert(ORDERS, 2)
        server.commit()
    assert seen == ["RI", "I", "RI"]


def test_a_relation_that_changed_while_the_table_was_not_kept_is_the_one_that_holds(
    server: Server, taker: Taker
):
    taker.take()
    server.begin()
    server.alter(ORDERS)
    server.insert(ORDERS, 2)
    server.commit()
    taker.take()
    server.begin()
    server.insert(ORDERS, 3)
    server.commit()
    kept = taker.take(ORDERS)[ORDERS]
    assert [column.name for column in control(scan(kept.chunk), 0).columns] == ["id", "a", "c1"]


def test_a_table_set_aside_in_the_midst_of_a_transaction_takes_its_schema_messages_along(
    server: Server, taker: Taker
):
    server.begin()
    server.alter(ORDERS)
    taker.take()
    server.insert(ORDERS, 2)
    server.commit()
    kept = taker.take(ORDERS)[ORDERS]
    assert tags(kept) == "RMRI"
    replayed = assembler(ORDERS).replay(kept)
    assert [row[5] for row in told(replayed.events, ORDERS)] == [{"id": 2, "a": "a2", "c1": "c12"}]


def test_messages_of_a_transaction_that_ended_are_not_taken_along(server: Server, taker: Taker):
    server.begin()
    server.alter(ORDERS)
    server.insert(ORDERS, 2)
    server.commit()
    taker.take()
    server.begin()
    server.insert(ORDERS, 3)
    server.commit()
    assert tags(taker.take(ORDERS)[ORDERS]) == "RI"


def test_a_truncate_is_kept_for_the_tables_it_names(server: Server, taker: Taker):
    taker.take()
    server.begin()
    server.truncate(OTHERS, FOREIGN)
    server.commit()
    assert {oid: tags(kept) for oid, kept in taker.take(*TABLES).items()} == {OTHERS: "RT"}


@pytest.mark.parametrize(
    ("prefix", "transactional", "is_kept"),
    [
        ("supabase_etl_ddl", True, True),
        ("supabase_etl_ddl", False, False),
        ("supabase_etl_ddl_of_another", True, False),
        ("", True, False),
    ],
)
def test_kept_are_our_messages_inside_transactions(prefix: str, transactional: bool, is_kept: bool):
    bodies = [
        encoder.begin(9),
        encoder.message(1, prefix, b"{}", transactional=transactional),
        encoder.commit(9, 10),
    ]
    frames = scan(encoder.chunk([encoder.xlog(1, body) for body in bodies]))
    kept = Keeper().take(frames, place(frames, None), [ORDERS])
    assert list(kept) == ([ORDERS] if is_kept else [])


def test_a_replay_tells_no_commits_and_no_positions(taker: Taker):
    kept = taker.take(ORDERS)[ORDERS]
    replayed = assembler(ORDERS).replay(kept)
    assert [type(event) for event in replayed.events] == [Relation, RowChanges]
    assert (replayed.received_lsn, replayed.idle_lsn, replayed.transactions) == (Lsn(0), None, 0)


def test_what_was_kept_below_a_tables_sync_lsn_is_in_its_copy(server: Server, taker: Taker):
    server.begin()
    server.insert(ORDERS, 2)
    server.commit()
    kept = taker.take(ORDERS)[ORDERS]
    assert row_places(kept) == [(0x2000, 1), (0x3000, 1)]
    late = assembler()
    late.add(ORDERS, Lsn(0x3000))
    assert [row[0] for row in told(late.replay(kept).events, ORDERS)] == [0x3000]


def test_a_released_table_is_not_decoded_and_an_added_one_is(server: Server):
    main = assembler(ORDERS)
    main.release([ORDERS, OTHERS])
    main.add(OTHERS, Lsn(0))
    events = main.feed(encoder.chunk(server.payloads)).events
    assert (len(told(events, ORDERS)), len(told(events, OTHERS))) == (0, 1)


def test_what_is_no_record_is_refused():
    with pytest.raises(ValueError):
        from_bytes(b"\xff\xff\xff\xff\x10\x00\x00\x00 no arrow here")

"""The backlog on a real disk: whole transactions only, none lost, none twice, whatever is cut off and sent again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from etl.errors import BacklogError, BacklogFullError, RetryPolicy
from etl.lsn import Lsn
from etl.pgoutput.kept import Keeper, Kept
from etl.schema.catalog import SchemaCatalog
from etl.store.backlog import Backlog, Backlogs
from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.kept_streams import (
    ORDERS,
    OTHERS,
    SCHEMAS,
    Server,
    assembler,
    row_places,
    tags,
    told,
)

ALL = 1 << 30
SMALL = {"segment_bytes": 3000, "spill_bytes": 1500}
FIRST = 0x2000


class Source:
    """A run of the stream: `send` gives what is kept of one table."""

    def __init__(self, commit_lsn: int = FIRST) -> None:
        self.server = Server(commit_lsn)
        self._keeper, self._feeding = Keeper(), assembler(ORDERS)

    def send(self) -> Kept | None:
        fed = self._feeding.feed(encoder.chunk(self.server.payloads))
        self.server.payloads = []
        return self._keeper.take(fed.frames, fed.placement, [ORDERS]).get(ORDERS)

    def transaction(self, *keys: int) -> Kept:
        """A whole transaction with a row a key."""
        self.server.begin()
        for key in keys:
            self.server.insert(ORDERS, key)
        self.server.commit()
        kept = self.send()
        assert kept is not None
        return kept


def fill(backlog: Backlog, transactions: Iterable[Kept]) -> None:
    """Append whole transactions, each on disk before the next."""
    for kept in transactions:
        backlog.append(kept)
        backlog.complete(Lsn(int(kept.commit_lsn[-1])))
        backlog.sync()


def drain(backlog: Backlog, max_bytes: int = ALL) -> list[tuple[int, int]]:
    """The places of all rows that can be read, released as they come."""
    places: list[tuple[int, int]] = []
    while (kept := backlog.read(max_bytes)) is not None:
        places += row_places(kept)
        backlog.release()
    return places


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.seg"))


def reopen(backlogs: Backlogs, backlog: Backlog, identity: str) -> Backlog:
    backlog.close()
    opened = backlogs.open(ORDERS, identity)
    assert opened is not None
    return opened


class Closing(Backlogs):
    """Closes in the end what was opened."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, **SMALL)
        self.opened = ExitStack()

    def open(self, oid: int, identity: str) -> Backlog | None:
        backlog = super().open(oid, identity)
        if backlog is not None:
            self.opened.callback(backlog.close)
        return backlog


@pytest.fixture
def backlogs(tmp_path: Path) -> Iterator[Backlogs]:
    backlogs = Closing(tmp_path / "backlogs")
    with backlogs.opened:
        yield backlogs


@pytest.fixture
def identity(backlogs: Backlogs) -> str:
    return backlogs.begin(ORDERS)


@pytest.fixture
def backlog(backlogs: Backlogs, identity: str) -> Backlog:
    opened = backlogs.open(ORDERS, identity)
    assert opened is not None
    return opened


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "backlogs" / str(ORDERS)


# --- identity ---------------------------------------------------------------------------------------------------------


def test_a_new_backlog_is_empty(backlog: Backlog):
    assert (backlog.is_empty, backlog.nbytes, backlog.last_commit_lsn) == (True, 0, 0)
    assert backlog.read(ALL) is None


def test_another_identity_is_refused(backlogs: Backlogs, identity: str):
    assert backlogs.open(ORDERS, "another") is None
    replaced = backlogs.begin(ORDERS)
    assert replaced != identity
    assert backlogs.open(ORDERS, identity) is None
    assert backlogs.open(ORDERS, replaced) is not None


def test_a_folder_that_is_gone_is_no_backlog(backlogs: Backlogs, identity: str, folder: Path):
    shutil.rmtree(folder)
    assert backlogs.open(ORDERS, identity) is None
    assert backlogs.oids() == set()


def test_a_new_backlog_in_place_of_an_old_one_holds_nothing_of_it(backlogs: Backlogs, backlog: Backlog):
    fill(backlog, [Source().transaction(1)])
    backlog.close()
    replaced = backlogs.open(ORDERS, backlogs.begin(ORDERS))
    assert replaced is not None
    assert replaced.is_empty


def test_backlogs_of_tables_nobody_knows_are_dropped(backlogs: Backlogs):
    for oid in (ORDERS, OTHERS, 7):
        backlogs.begin(oid)
    backlogs.drop_unknown([ORDERS, 8])
    assert backlogs.oids() == {ORDERS}
    backlogs.drop(ORDERS)
    backlogs.drop(ORDERS)
    assert backlogs.oids() == set()


def test_only_the_owner_may_read_rows_on_disk(folder: Path, identity: str):
    assert (folder.stat().st_mode & 0o777, folder.parent.stat().st_mode & 0o777) == (0o700, 0o700)


# --- order and transactions -------------------------------------------------------------------------------------------


def test_what_is_read_is_what_was_appended_in_order(backlog: Backlog):
    source = Source()
    fill(backlog, [source.transaction(1, 2), source.transaction(3)])
    assert backlog.last_commit_lsn == 0x3000
    assert drain(backlog) == [(0x2000, 1), (0x2000, 2), (0x3000, 1)]
    assert backlog.is_empty


def test_reading_again_without_a_release_gives_the_same(backlog: Backlog):
    source = Source()
    fill(backlog, [source.transaction(1), source.transaction(2)])
    assert [row_places(backlog.read(1)) for _ in range(2)] == [[(0x2000, 1)]] * 2
    backlog.release()
    assert drain(backlog) == [(0x3000, 1)]


def test_a_transaction_is_not_seen_before_it_is_complete_and_synced(backlog: Backlog):
    kept = Source().transaction(1)
    backlog.append(kept)
    backlog.sync()
    assert backlog.read(ALL) is None
    assert not backlog.is_empty
    backlog.complete(Lsn(FIRST))
    assert backlog.read(ALL) is None
    backlog.sync()
    assert drain(backlog) == [(FIRST, 1)]


def test_a_sync_leaves_the_open_transaction_in_memory(backlog: Backlog):
    source = Source()
    whole = source.transaction(1)
    backlog.append(whole)
    backlog.append(source.transaction(2).slice(0, 1))
    backlog.complete(Lsn(FIRST))
    backlog.sync()
    assert drain(backlog) == [(FIRST, 1)]
    assert not backlog.is_empty


def test_a_long_transaction_is_spilled_and_seen_as_a_whole(backlogs: Backlogs, backlog: Backlog):
    source = Source()
    source.server.begin()
    for start in range(0, 300, 10):
        for key in range(start, start + 10):
            source.server.insert(ORDERS, key)
        backlog.append(source.send())
    assert backlogs.nbytes > 0
    assert backlog.nbytes - backlogs.nbytes < 2 * SMALL["spill_bytes"]
    assert backlog.read(ALL) is None
    backlog.complete(Lsn(FIRST))
    backlog.sync()
    assert len(backlog.read(1)) < 300
    assert drain(backlog, 1) == [(FIRST, ordinal) for ordinal in range(1, 301)]
    assert backlog.is_empty


def test_a_spilled_transaction_that_did_not_end_is_gone_when_the_stream_begins_anew(
    backlogs: Backlogs, backlog: Backlog, identity: str
):
    source = Source()
    fill(backlog, [source.transaction(1)])
    before = backlogs.nbytes
    for again in (Backlog.rewind, lambda one: one.close()):
        backlog.append(source.transaction(*range(200)).slice(0, 150))
        assert backlogs.nbytes > before
        again(backlog)
    backlog = reopen(backlogs, backlog, identity)
    assert backlogs.nbytes == before
    fill(backlog, [Source().transaction(1), Source(0x3000).transaction(5, 6)])
    assert drain(backlog) == [(FIRST, 1), (0x3000, 1), (0x3000, 2)]


def test_transactions_that_are_sent_again_are_dropped(backlogs: Backlogs, backlog: Backlog, identity: str):
    source = Source()
    fill(backlog, [source.transaction(1), source.transaction(2)])
    backlog = reopen(backlogs, backlog, identity)
    assert backlog.last_commit_lsn == 0x3000
    again = Source()
    fill(backlog, [again.transaction(1), again.transaction(2), again.transaction(3)])
    assert drain(backlog) == [(0x2000, 1), (0x3000, 1), (0x4000, 1)]


# --- segments ---------------------------------------------------------------------------------------------------------


def test_a_release_deletes_the_segments_behind_it(backlogs: Backlogs, backlog: Backlog, folder: Path):
    source = Source()
    fill(backlog, [source.transaction(key) for key in range(12)])
    before, used = segments(folder), backlogs.nbytes
    assert len(before) > 2
    while segments(folder)[0] == before[0]:
        assert backlog.read(1) is not None
        backlog.release()
    assert segments(folder) == before[1:]
    assert backlogs.nbytes < used
    drain(backlog)
    assert (segments(folder), backlogs.nbytes, backlog.nbytes) == ([], 0, 0)


def test_every_segment_can_be_decoded_alone(
    backlogs: Backlogs, backlog: Backlog, identity: str, folder: Path
):
    source = Source()
    fill(backlog, [source.transaction(key) for key in range(12)])
    while len(segments(folder)) > 1:
        backlog.read(1)
        backlog.release()
    left = row_places(backlog.read(ALL))
    backlog = reopen(backlogs, backlog, identity)
    kept = backlog.read(ALL)
    assert tags(kept)[0] == "R"
    replayed = assembler(ORDERS).replay(kept)
    assert not replayed.failures
    assert [row[:2] for row in told(replayed.events, ORDERS)][-len(left) :] == left


def test_a_new_assembler_can_read_again_from_a_relation(backlog: Backlog):
    source = Source()
    fill(backlog, [source.transaction(1), source.transaction(2)])
    backlog.read(1)
    backlog.release()
    assert tags(backlog.read(ALL)) == "I"
    backlog.reread()
    assert tags(backlog.read(ALL)) == "RII"


def test_a_segment_begun_after_a_restart_begins_with_the_relation_that_was_sent_again(
    backlogs: Backlogs, backlog: Backlog, identity: str, folder: Path
):
    source = Source()
    while len(segments(folder)) < 1 or (folder / segments(folder)[0]).stat().st_size < SMALL["segment_bytes"]:
        fill(backlog, [source.transaction(1)])
    backlog = reopen(backlogs, backlog, identity)
    again = Source(int(backlog.last_commit_lsn))
    fill(backlog, [again.transaction(1), again.transaction(2)])
    assert len(segments(folder)) == 2
    while len(segments(folder)) > 1:
        assert backlog.read(1) is not None
        backlog.release()
    assert tags(backlog.read(ALL)) == "RI"


def test_a_segment_of_nothing_but_a_transaction_that_did_not_end_goes(tmp_path: Path):
    backlogs = Backlogs(tmp_path, segment_bytes=1, spill_bytes=1500)
    identity = backlogs.begin(ORDERS)
    backlog, source = backlogs.open(ORDERS, identity), Source()
    fill(backlog, [source.transaction(1)])
    for again in (backlog.rewind, backlog.rewind, backlog.close):
        backlog.append(source.transaction(*range(100)).slice(0, 90))
        assert segments(tmp_path) == ["00000001.seg", "00000002.seg"]
        again()
        source = Source(0x3000)
    backlog = backlogs.open(ORDERS, identity)
    assert backlog.last_commit_lsn == FIRST
    assert segments(tmp_path) == ["00000001.seg"]
    fill(backlog, [source.transaction(1)])
    assert segments(tmp_path) == ["00000001.seg", "00000002.seg"]
    backlog.append(source.transaction(*range(100)).slice(0, 90))
    backlog.rewind()
    assert drain(backlog) == [(FIRST, 1), (0x3000, 1)]
    backlog.close()


def test_an_emptied_backlog_goes_on(backlogs: Backlogs, backlog: Backlog, identity: str):
    source = Source()
    for key in range(3):
        fill(backlog, [source.transaction(key)])
        assert len(drain(backlog)) == 1
    fill(backlog, [source.transaction(3)])
    assert tags(backlog.read(ALL)) == "RI"
    assert drain(reopen(backlogs, backlog, identity)) == [(0x5000, 1)]


# --- damage -----------------------------------------------------------------------------------------------------------


def test_cut_at_any_byte_a_backlog_holds_what_was_synced_and_whole_transactions_only(tmp_path: Path):
    """Small records, a transaction in parts, and another that never ended."""
    sizes = {"segment_bytes": 1 << 20, "spill_bytes": 1500}
    backlogs = Backlogs(tmp_path / "whole", **sizes)
    identity = backlogs.begin(ORDERS)
    backlog, source = backlogs.open(ORDERS, identity), Source()
    synced = {0: 0}  # bytes on disk → rows that are safe
    for keys in (range(24), [1]):
        fill(backlog, [source.transaction(*keys)])
        synced[backlogs.nbytes] = max(synced.values()) + len(keys)
    backlog.append(source.transaction(*range(24)).slice(0, 20))
    backlog.close()

    content = (tmp_path / "whole" / str(ORDERS) / "00000001.seg").read_bytes()
    assert len(content) > max(synced)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    cut_file = tmp_path / "cut" / str(ORDERS) / "00000001.seg"
    for length in range(len(content) + 1):
        cut_file.write_bytes(content[:length])
        opened = Backlogs(tmp_path / "cut", **sizes).open(ORDERS, identity)
        kept = opened.read(ALL)
        rows = 0 if kept is None else len(row_places(kept))
        assert rows == max(safe for size, safe in synced.items() if size <= length)
        opened.close()


def test_a_record_whose_blocks_were_never_written_is_cut_off(
    backlogs: Backlogs, backlog: Backlog, identity: str, folder: Path
):
    fill(backlog, [Source().transaction(1)])
    with (folder / "00000001.seg").open("ab") as file:
        file.write(bytes(4096))
    assert drain(reopen(backlogs, backlog, identity)) == [(FIRST, 1)]


def test_any_changed_byte_of_a_record_that_others_follow_is_told(
    backlogs: Backlogs, backlog: Backlog, identity: str, folder: Path
):
    source, segment = Source(), folder / "00000001.seg"
    fill(backlog, [source.transaction(1)])
    first = segment.stat().st_size
    fill(backlog, [source.transaction(2)])
    backlog.close()
    content = segment.read_bytes()
    for at in range(first):
        segment.write_bytes(content[:at] + bytes([content[at] ^ 0x55]) + content[at + 1 :])
        with pytest.raises(BacklogError, match=f"damaged.*{ORDERS}.*byte 0|{ORDERS} is damaged") as raised:
            backlogs.open(ORDERS, identity)
        assert raised.value.retry is RetryPolicy.MANUAL
    segment.write_bytes(content)
    assert len(drain(backlogs.open(ORDERS, identity))) == 2


def test_damage_in_an_older_segment_is_told_when_it_is_read(backlog: Backlog, folder: Path):
    source = Source()
    fill(backlog, [source.transaction(key) for key in range(6)])
    oldest = folder / segments(folder)[0]
    oldest.write_bytes(oldest.read_bytes()[:-1])
    with pytest.raises(BacklogError, match=r"damaged: 00000001\.seg"):
        drain(backlog)


def test_a_segment_that_is_gone_from_the_midst_is_told(
    backlogs: Backlogs, backlog: Backlog, identity: str, folder: Path
):
    source = Source()
    fill(backlog, [source.transaction(key) for key in range(12)])
    backlog.close()
    (folder / segments(folder)[1]).unlink()
    with pytest.raises(BacklogError, match="is gone"):
        backlogs.open(ORDERS, identity)


@pytest.mark.parametrize("content", ['{"format": 2, "identity": "x"}', '{"identity": "x"}', "[]", "{"])
def test_another_format_and_an_unreadable_description_are_told(
    backlogs: Backlogs, identity: str, folder: Path, content: str
):
    (folder / "backlog.json").write_text(content)
    with pytest.raises(BacklogError, match=str(folder)):
        backlogs.open(ORDERS, "x")


def test_a_full_disk_is_told_with_the_folder_and_waited_for(backlog: Backlog, folder: Path):
    (folder / "00000001.seg").symlink_to("/dev/full")
    backlog.append(Source().transaction(1))
    backlog.complete(Lsn(FIRST))
    with pytest.raises(BacklogFullError, match=str(folder)) as raised:
        backlog.sync()
    assert raised.value.retry is RetryPolicy.TIMED
    assert "free space" in raised.value.hint
    assert backlog.read(ALL) is None


def test_a_folder_that_cannot_be_used_is_told(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(BacklogError, match="cannot be used"):
        Backlogs(tmp_path / "file").begin(ORDERS)


# --- everything at once -----------------------------------------------------------------------------------------------


class Pipeline(RuleBasedStateMachine):
    """Sends transactions piece by piece, crashes, reads and applies, against what a watermark would let through.

    Transaction n has `sizes[n]` rows and alters its table before its middle row when n is a multiple of three.
    """

    @initialize(
        sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12), segment_bytes=st.sampled_from([1, 3000])
    )
    def start(self, sizes: list[int], segment_bytes: int) -> None:
        self.sizes = sizes
        self.folder = Path(tempfile.mkdtemp())
        self.backlogs = Backlogs(self.folder, segment_bytes=segment_bytes, spill_bytes=1000)
        self.identity = self.backlogs.begin(ORDERS)
        self.backlog = self.backlogs.open(ORDERS, self.identity)
        self.catalog = SchemaCatalog(SCHEMAS)
        self.applied: list[tuple[int, int]] = []
        self.ended = self.durable = 0  # transactions
        self.run_from(0)
        self.replay_anew()

    def run_from(self, transaction: int) -> None:
        self.source = Source(FIRST + transaction * 0x1000)
        for _ in range(0, transaction, 3):
            columns = self.source.server.columns
            columns[ORDERS] = [*columns[ORDERS], f"c{len(columns[ORDERS])}"]
        self.transaction, self.row = transaction, 0

    def replay_anew(self) -> None:
        self.replaying = assembler(ORDERS, catalog=self.catalog)

    @precondition(lambda self: self.transaction < len(self.sizes))
    @rule(rows=st.integers(1, 30))
    def send(self, rows: int) -> None:
        server, size = self.source.server, self.sizes[self.transaction]
        if self.row == 0:
            server.begin()
        for row in range(self.row, min(self.row + rows, size)):
            if row == size // 2 and self.transaction % 3 == 0:
                server.alter(ORDERS)
            server.insert(ORDERS, row)
        self.row = min(self.row + rows, size)
        commit_lsn = server.commit_lsn
        if self.row == size:
            server.commit()
        self.backlog.append(self.source.send())
        if self.row == size:
            self.backlog.complete(Lsn(commit_lsn))
            self.transaction, self.row = self.transaction + 1, 0
            self.ended = max(self.ended, self.transaction)

    @rule()
    def sync(self) -> None:
        self.backlog.sync()
        self.durable = self.ended

    @rule(back=st.integers(0, 3))
    def break_the_stream(self, back: int) -> None:
        self.backlog.rewind()
        self.run_from(max(self.durable - back, 0))

    @rule(back=st.integers(0, 3))
    def crash(self, back: int) -> None:
        self.backlog = reopen(self.backlogs, self.backlog, self.identity)
        self.ended = self.durable
        self.run_from(max(self.durable - back, 0))
        self.replay_anew()

    @rule()
    def fail_to_write(self) -> None:
        self.backlog.read(1)
        self.backlog.reread()
        self.replay_anew()

    @rule(max_bytes=st.sampled_from([1, 4000, ALL]))
    def read_and_apply(self, max_bytes: int) -> None:
        self.apply(max_bytes)

    def apply(self, max_bytes: int) -> bool:
        kept = self.backlog.read(max_bytes)
        if kept is None:
            return False
        replayed = self.replaying.replay(kept)
        assert not replayed.failures
        watermark = self.applied[-1] if self.applied else (0, 0)
        rows = told(replayed.events, ORDERS)
        self.applied += [row[:2] for row in rows if row[:2] > watermark]
        assert all(set(row[5]) == self.columns_at(*row[:2]) for row in rows)
        self.backlog.release()
        return True

    def columns_at(self, commit_lsn: int, ordinal: int) -> set[str]:
        transaction = (commit_lsn - FIRST) // 0x1000
        altered = len(range(0, transaction, 3))
        if transaction % 3 == 0 and ordinal - 1 >= self.sizes[transaction] // 2:
            altered += 1
        return {"id", "a", *(f"c{number}" for number in range(1, altered + 1))}

    @invariant()
    def rows_are_applied_in_order_and_none_is_left_out(self) -> None:
        if hasattr(self, "sizes"):
            assert self.applied == self.rows()[: len(self.applied)]

    def rows(self) -> list[tuple[int, int]]:
        return [
            (FIRST + number * 0x1000, ordinal)
            for number, size in enumerate(self.sizes)
            for ordinal in range(1, size + 1)
        ]

    def teardown(self) -> None:
        if hasattr(self, "sizes"):
            while self.transaction < len(self.sizes):
                self.send(30)
            self.sync()
            while self.apply(ALL):
                pass
            assert self.applied == self.rows()
            assert self.backlog.is_empty
            assert self.backlogs.nbytes == 0
            self.backlog.close()
            shutil.rmtree(self.folder)


TestPipeline = Pipeline.TestCase
TestPipeline.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

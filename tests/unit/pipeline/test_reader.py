"""The reader, step by step and without its thread: reading stops when nobody takes the bytes, reporting never does."""

from __future__ import annotations

from collections import deque

import pytest

from etl.errors import SourceUnavailableError
from etl.lsn import Lsn
from etl.pgoutput.frames import Chunk
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.handoff import HandOff
from etl.pipeline.reader import Reader
from etl.source.replication import ReplicationStream, StreamLsns
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse
from tests.unit.pgoutput.encoder import chunk

REPORT_S = 10.0
BOUND = 100


class ScriptedStream(ReplicationStream):
    """A stream without a server: gives what was scripted, remembers what was reported."""

    def __init__(self) -> None:
        self.waiting: deque[Chunk | Exception] = deque()
        self.reports: list[tuple[Lsn, Lsn, bool]] = []
        self.closed = False
        self.silent_s = 0.0
        self.not_reading = 0

    @property
    def silence_s(self) -> float:
        return self.silent_s

    def read(self, *_: object) -> Chunk | None:
        if not self.waiting:
            return None
        found = self.waiting.popleft()
        if isinstance(found, Exception):
            raise found
        return found

    def send_status(self, lsns: StreamLsns, *, request_reply: bool = False) -> None:
        self.reports.append((lsns.received, lsns.flushed, request_reply))
        self._reply_requested = False

    def note_not_reading(self) -> None:
        self.not_reading += 1

    def close(self) -> None:
        self.closed = True


class Bench:
    """A reader and all it touches; `now` is its clock."""

    def __init__(self, probe_s: float | None = None) -> None:
        self.now = 0.0
        self.stream = ScriptedStream()
        self.handoff = HandOff(BOUND)
        self.acknowledger = Acknowledger(Lsn(1000), lambda _: None)
        self.reader = Reader(
            self.stream,
            self.handoff,
            self.acknowledger,
            Metrics("p"),
            Pulse(),
            clock=lambda: self.now,
            report_interval_s=REPORT_S,
            probe_interval_s=probe_s,
        )
        self.reader.step()
        self.stream.reports.clear()


@pytest.fixture
def bench() -> Bench:
    """A reader that has reported where it starts, and is quiet."""
    return Bench()


def test_it_begins_by_telling_where_it_starts():
    bench = Bench()
    bench.reader._reported = None
    bench.reader.step()

    assert bench.stream.reports == [(1000, 1000, False)]


def test_what_arrives_is_handed_on(bench: Bench):
    bench.stream.waiting.append(chunk([b"abc"]))
    bench.reader.step()

    taken = bench.handoff.get(0)
    assert taken is not None
    assert bytes(taken.data) == b"abc"
    assert bench.stream.reports == []


def test_it_does_not_read_while_the_handoff_is_full_and_keeps_reporting(bench: Bench):
    bench.handoff.put(chunk([b"x" * BOUND]))
    bench.stream.waiting.append(chunk([b"abc"]))
    bench.now = REPORT_S
    bench.reader.step()

    assert len(bench.stream.waiting) == 1
    assert bench.stream.not_reading == 1
    assert bench.stream.reports == [(1000, 1000, False)]
    bench.handoff.get(0)
    bench.reader.step()
    assert not bench.stream.waiting


def test_it_answers_the_server_at_once(bench: Bench):
    bench.stream._reply_requested = True
    bench.reader.step()
    bench.reader.step()

    assert bench.stream.reports == [(1000, 1000, False)]


def test_it_tells_a_flushed_position_that_moved_and_only_once(bench: Bench):
    bench.acknowledger.durable(Lsn(2000))
    bench.reader.step()
    bench.reader.step()

    assert bench.stream.reports == [(2000, 2000, False)]


def test_it_reports_regularly_however_quiet_it_is(bench: Bench):
    for bench.now in (REPORT_S - 1, REPORT_S, REPORT_S + 1, 2 * REPORT_S):
        bench.reader.step()

    assert len(bench.stream.reports) == 2


def test_it_asks_a_server_that_has_been_silent_for_long(bench: Bench):
    bench.now = bench.stream.silent_s = REPORT_S + 1
    bench.reader.step()

    assert bench.stream.reports == [(1000, 1000, True)]


def test_a_bounded_run_asks_a_quiet_server_where_it_is():
    bench = Bench(probe_s=0.2)
    bench.now = bench.stream.silent_s = 0.2
    bench.reader.step()

    assert bench.stream.reports == [(1000, 1000, True)]


def test_after_stop_reading_it_reads_nothing_and_still_reports(bench: Bench):
    bench.stream.waiting.append(chunk([b"abc"]))
    bench.reader.stop_reading()
    bench.acknowledger.durable(Lsn(3000))
    bench.reader.step()

    assert len(bench.stream.waiting) == 1
    assert bench.stream.reports == [(3000, 3000, False)]


def test_it_ends_with_the_last_position_and_closes_what_it_owns(bench: Bench):
    bench.acknowledger.durable(Lsn(4000))
    bench.reader.finish()
    bench.reader.start()
    bench.reader.join(30)

    assert bench.stream.reports[-1] == (4000, 4000, False)
    assert bench.stream.closed
    assert bench.reader.error is None
    assert bench.handoff.get(0) is None


@pytest.mark.parametrize(
    "error", [SourceUnavailableError("gone", hint="wait"), ZeroDivisionError()], ids=["ours", "a bug"]
)
def test_whatever_breaks_it_is_kept_for_the_apply_worker(bench: Bench, error: Exception):
    bench.stream.waiting.append(error)
    bench.reader.start()
    bench.reader.join(30)

    assert bench.reader.error is error
    assert bench.stream.closed

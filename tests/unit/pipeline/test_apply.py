"""The apply worker over real parts and encoded streams, step by step: decode, remember, write, record, acknowledge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import duckdb
import pytest

from etl.destinations.base import TableMode
from etl.destinations.copy_writer import CopyWriter
from etl.destinations.duckdb.config import DuckDBSettings
from etl.destinations.duckdb.destination import DuckDBDestination
from etl.destinations.writer import EventWriter, WriteInterruptedError
from etl.lsn import MAX_ORDINAL, Lsn, Position, SnapshotId
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pipeline.acknowledger import Acknowledger
from etl.pipeline.apply import ApplyWorker, TablesFailedError
from etl.pipeline.batcher import Batcher
from etl.pipeline.handoff import HandOff
from etl.pipeline.journal import StoreJournal
from etl.pipeline.keeping import Keeping
from etl.pipeline.reporting import Reporter
from etl.pipeline.states import TableEvent
from etl.pipeline.tables import TableBook
from etl.schema.catalog import SchemaCatalog
from etl.schema.types import TypeOptions
from etl.store.backlog import Backlogs
from etl.store.base import TableState
from etl.store.memory import MemoryStore
from etl.telemetry import failpoints
from etl.telemetry.failpoints import FailpointError
from etl.telemetry.metrics import Metrics
from etl.telemetry.pulse import Pulse
from etl.testing.builders import INT8, TEXT, column, table_schema
from tests.unit.pgoutput.encoder import begin, chunk, commit, insert, keepalive, message, relation, xlog

ORDERS, OTHERS, FOREIGN = 16384, 16385, 99
START = Lsn(0x1000)
SCHEMAS = [
    table_schema(column("id", 1, INT8), column("a", 2), oid=oid, name=name)
    for oid, name in ((ORDERS, "orders"), (OTHERS, "others"))
]


def transaction(at: int, *bodies: bytes) -> list[bytes]:
    """A whole transaction that commits at `at` and ends 8 later."""
    inner = [xlog(at - 1, body) for body in bodies]
    return [xlog(at - 1, begin(at)), *inner, xlog(at, commit(at, at + 8))]


def describe(oid: int, name: str, *columns: str) -> bytes:
    """RELATION: bigint key first, then texts."""
    texts = [(0, text, TEXT, -1) for text in columns]
    return relation(oid, "public", name, [(1, "id", INT8, -1), *texts])


def schema_message(at: int, oid: int, name: str, *columns: str) -> bytes:
    """What the trigger logs after an ALTER TABLE, unsigned."""
    described = [
        {
            "attname": text,
            "attnum": number,
            "atttypid": INT8 if number == 1 else TEXT,
            "atttypmod": -1,
            "attnotnull": number == 1,
            "default_expression": None,
        }
        for number, text in enumerate(("id", *columns), 1)
    ]
    payload = {
        "command_tag": "ALTER TABLE",
        "oid": oid,
        "nspname": "public",
        "relname": name,
        "columns": described,
        "identity": {
            "relreplident": "d",
            "primary_key_attnums": [1],
            "replica_identity_index_attnums": [],
        },
    }
    return message(at, "supabase_etl_ddl", json.dumps(payload).encode())


R_ORDERS, R_OTHERS = describe(ORDERS, "orders", "a"), describe(OTHERS, "others", "a")


class Run:
    """One start of the pipeline over a store and a file; `now` is its clock."""

    def __init__(self, store: MemoryStore, path: Path) -> None:
        self.store, self.path, self.now = store, path, 0.0
        self.destination = DuckDBDestination(DuckDBSettings(path, threads=1))
        self.destination.open(1, store.acquire())
        self.journal = StoreJournal(store)
        self.stopping = False
        self.writer = EventWriter(self.destination, self.journal, is_stopping=lambda: self.stopping)
        metrics, pulse = Metrics("p"), Pulse()
        self.tables = TableBook(store, metrics, pulse)
        self.tables.load({})
        if not self.tables.oids():
            self._copy_nothing()
        self.keeping = Keeping(Backlogs(path.parent / "backlog"), 1 << 20)
        for oid in self.tables.in_state(TableState.ERRORED):
            self.keeping.resume(oid, self.tables.record(oid).backlog or "")
        self.acknowledger = Acknowledger(store.progress() or START, store.save_progress)
        self.handoff = HandOff(1 << 20)
        self.worker = ApplyWorker(
            handoff=self.handoff,
            assembler=Assembler(
                self.tables.live(),
                SchemaCatalog(store.schemas()),
                DdlMessages({}, allow_unsigned=True),
                lambda *_: "nobody explains it here",
                TypeOptions(),
            ),
            batcher=Batcher(1 << 20, 1.0),
            writer=self.writer,
            store=store,
            tables=self.tables,
            keeping=self.keeping,
            acknowledger=self.acknowledger,
            reporter=Reporter(metrics, pulse, str),
            metrics=metrics,
            pulse=pulse,
            clock=lambda: self.now,
        )

    def _copy_nothing(self) -> None:
        copies = CopyWriter(self.destination, self.journal, lambda _: TableMode.MIRROR)
        for schema in SCHEMAS:
            self.tables.add(schema.oid, schema.qualified_name)
            self.tables.move(schema.oid, TableEvent.COPY_STARTED)
            self.store.save_schema(schema.schema)
            copies.create(schema)
            copies.finish(schema, Position(Lsn(START - 1), MAX_ORDINAL), 0)
            self.tables.move(schema.oid, TableEvent.COPY_FINISHED, sync_lsn=START)
            self.tables.move(schema.oid, TableEvent.AWAITED)
            self.tables.move(schema.oid, TableEvent.CAUGHT_BY_APPLY)
            self.tables.goes_live(schema.oid, START)
        self.tables.passed(START)

    def set_aside(self, failed: TablesFailedError) -> None:
        """What the lifecycle does about it, without the retry."""
        for oid, error in failed.errors.items():
            self.tables.fail(oid, error, backlog=self.keeping.begin(oid))

    def feed(self, *payloads: Sequence[bytes]) -> None:
        """Let these bytes arrive, and one step happen."""
        self.handoff.put(chunk([payload for part in payloads for payload in part]))
        assert self.worker.step()

    def age(self) -> None:
        """Let the batch become old enough, and write it."""
        self.now += 2.0
        self.handoff.put(chunk([keepalive(int(START))]))
        self.worker.step()

    def end(self) -> None:
        self.keeping.close()
        self.destination.close()

    def rows(self, table: str = "orders") -> list[tuple[object, ...]]:
        """What is at the destination; ends the run."""
        self.end()
        with duckdb.connect(str(self.path)) as connection:
            return sorted(connection.execute(f"SELECT * FROM public.{table}").fetchall())


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def run(store: MemoryStore, tmp_path: Path) -> Iterator[Run]:
    run = Run(store, tmp_path / "w.duckdb")
    yield run
    run.end()
    failpoints.configure("")


def test_a_whole_transaction_is_written_when_it_is_old_enough_then_recorded_then_acknowledged(
    run: Run, store: MemoryStore
):
    run.feed(transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"])))
    assert run.acknowledger.flushed == START

    run.age()
    assert run.acknowledger.flushed == store.progress() == run.worker.position == 0x2008
    assert run.rows() == [(1, "x")]


def test_a_transaction_without_an_end_is_neither_written_nor_acknowledged(run: Run):
    whole = transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"]))
    run.feed(whole[:-1])
    run.age()
    assert run.acknowledger.flushed == START

    run.feed(whole[-1:])
    run.age()
    assert run.acknowledger.flushed == 0x2008
    assert run.rows() == [(1, "x")]


def test_nothing_that_arrives_is_no_work(run: Run):
    run.handoff.close()

    assert not run.worker.step()
    assert run.acknowledger.flushed == START


def test_transactions_of_others_are_recorded_only_when_they_free_enough_or_at_the_end(
    run: Run, store: MemoryStore
):
    foreign = relation(FOREIGN, "etl", "replication_progress", [(1, "id", INT8, -1)])
    run.feed(transaction(0x2000, foreign, insert(FOREIGN, [b"1"])), [keepalive(0x2010)])
    run.age()
    assert store.progress() is None
    assert run.worker.position >= 0x2008

    run.worker.settle()
    assert store.progress() == 0x2008


def test_the_servers_position_is_not_taken_while_a_transaction_is_open(run: Run):
    run.feed(transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"]))[:-1], [keepalive(0x9000)])
    run.worker.settle()

    assert run.acknowledger.flushed == START


def test_the_servers_position_is_not_taken_while_rows_wait_to_be_written(run: Run):
    run.feed(transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"])), [keepalive(0x90000)])
    assert run.acknowledger.flushed == START

    run.worker.settle()
    assert run.acknowledger.flushed == 0x90000


def test_a_schema_version_is_stored_before_anything_depends_on_it(run: Run, store: MemoryStore):
    run.feed(transaction(0x2000, schema_message(0x1FF0, ORDERS, "orders", "b", "c"))[:-1])

    (_, version) = store.schemas(ORDERS)
    assert version.snapshot_id == SnapshotId(Lsn(0x2000), Lsn(0x1FF0))
    assert [c.name for c in version.columns] == ["id", "b", "c"]
    assert run.acknowledger.flushed == START


def test_a_schema_change_is_applied_between_the_rows_it_stands_between(run: Run, store: MemoryStore):
    run.feed(
        transaction(
            0x2000,
            R_ORDERS,
            insert(ORDERS, [b"1", b"x"]),
            schema_message(0x1FF0, ORDERS, "orders", "b", "c"),
            describe(ORDERS, "orders", "b", "c"),
            insert(ORDERS, [b"2", b"y", b"z"]),
        )
    )
    run.age()

    assert store.destination_records()[ORDERS].status == "applied"
    assert run.rows() == [(1, "x", None), (2, "y", "z")]


@pytest.mark.parametrize(
    ("place", "durable"),
    [
        ("stream.before_write", False),
        ("dest.before_commit", False),
        ("dest.after_commit", True),
        ("stream.after_write", True),
    ],
)
def test_what_fails_between_two_steps_is_not_acknowledged_and_repeated_without_duplicates(
    run: Run, store: MemoryStore, place: str, durable: bool
):
    stream = transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"]))
    run.feed(stream)
    failpoints.configure(f"{place}=error")
    with pytest.raises(FailpointError):
        run.age()
    failpoints.configure("")
    assert store.progress() is None
    assert run.acknowledger.flushed == START
    assert run.rows() == ([(1, "x")] if durable else [])

    again = Run(store, run.path)
    again.feed(stream)
    again.age()
    assert store.progress() == 0x2008
    assert again.rows() == [(1, "x")]


def test_a_stop_leaves_the_schema_changes_of_a_batch_to_the_next_start(run: Run, store: MemoryStore):
    stream = transaction(
        0x2000,
        R_ORDERS,
        insert(ORDERS, [b"1", b"x"]),
        schema_message(0x1FF0, ORDERS, "orders", "b", "c"),
        describe(ORDERS, "orders", "b", "c"),
        insert(ORDERS, [b"2", b"y", b"z"]),
    )
    run.feed(stream)
    run.stopping = True
    with pytest.raises(WriteInterruptedError):
        run.age()
    assert store.progress() is None
    assert run.rows() == [(1, "x")]

    again = Run(store, run.path)
    again.feed(stream)
    again.age()
    assert store.progress() == 0x2008
    assert again.rows() == [(1, "x", None), (2, "y", "z")]


def test_a_table_that_the_destination_cannot_serve_ends_the_run_and_nothing_of_the_batch_is_acknowledged(
    run: Run, store: MemoryStore
):
    """DuckDB takes two names that differ only in case for one."""
    stream = [
        transaction(
            0x2000,
            R_OTHERS,
            insert(OTHERS, [b"1", b"x"]),
            schema_message(0x1FF0, ORDERS, "orders", "a", "A"),
            describe(ORDERS, "orders", "a", "A"),
            insert(ORDERS, [b"1", b"x", b"y"]),
        ),
        transaction(0x3000, insert(OTHERS, [b"2", b"y"]), insert(ORDERS, [b"2", b"x", b"y"])),
    ]
    run.feed(*stream)
    with pytest.raises(TablesFailedError) as failed:
        run.age()
    assert set(failed.value.errors) == {ORDERS}
    assert run.acknowledger.flushed == START

    run.set_aside(failed.value)
    run.end()
    again = Run(store, run.path)
    again.feed(*stream)
    again.age()
    assert again.acknowledger.flushed == 0x3008
    assert len(again.keeping.tables[ORDERS].read(1 << 20) or ()) > 0
    assert again.rows("others") == [(1, "x"), (2, "y")]


def test_a_table_that_cannot_be_decoded_ends_the_run_and_names_no_value(run: Run):
    with pytest.raises(TablesFailedError) as failed:
        run.feed(
            transaction(0x2000, R_OTHERS, insert(OTHERS, [b"1", b"x"])),
            transaction(0x3000, R_ORDERS, insert(ORDERS, [b"not a number", b"x"])),
            transaction(0x4000, insert(OTHERS, [b"2", b"y"])),
        )

    assert set(failed.value.errors) == {ORDERS}
    assert "not a number" not in str(failed.value.errors[ORDERS])
    assert run.acknowledger.flushed == START


def test_what_is_kept_for_a_table_is_durable_before_it_is_acknowledged(run: Run):
    identity = run.keeping.begin(ORDERS)
    run.worker.release(ORDERS)
    run.feed(transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"])))
    run.age()

    assert run.acknowledger.flushed == 0x2008
    backlog = Backlogs(run.path.parent / "backlog").open(ORDERS, identity)
    assert backlog is not None
    assert backlog.last_commit_lsn == 0x2000
    assert run.rows() == []


def test_what_was_collected_of_a_released_table_is_not_written(run: Run):
    run.feed(
        transaction(0x2000, R_ORDERS, insert(ORDERS, [b"1", b"x"]), R_OTHERS, insert(OTHERS, [b"1", b"x"]))
    )
    run.worker.release(ORDERS)
    run.age()

    assert run.rows() == []
    with duckdb.connect(str(run.path)) as connection:
        assert connection.execute("SELECT * FROM public.others").fetchall() == [(1, "x")]

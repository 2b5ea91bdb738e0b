"""Ranges read under one snapshot hold every row of the table at that snapshot once, whatever happens meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from etl.errors import SnapshotOutdatedError, SourceError, SourceUnavailableError
from etl.schema.table import ColumnSchema
from etl.source import copy_wire
from etl.source.connection import Connection
from etl.source.copy import TextBatch, snapshot_connection
from etl.source.copy_plan import CopyRange, Leaf, plan_ranges
from etl.source.copy_range import read_leaves, read_range
from etl.source.publication import PublishedTable, published_tables
from etl.testing.postgres import Database, PostgresServer

Row = tuple[str | bytes | None, ...]

_COLUMNS = """
SELECT attname, attnum, atttypid::bigint, atttypmod FROM pg_attribute
 WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""


@dataclass
class Copy:
    """A snapshot of a database, and what a worker reads under it. `present` is somebody else's connection."""

    database: Database
    present: psycopg.Connection[tuple[Any, ...]]
    stack: ExitStack
    parameters: dict[str, str] = field(default_factory=dict)
    worker: Connection = None  # type: ignore[assignment]

    def begin(self, **parameters: str) -> None:
        """Take the snapshot."""
        self.parameters = {
            **{key: str(value) for key, value in conninfo_to_dict(self.database.dsn).items()},
            **parameters,
        }
        exporter = self.stack.enter_context(self.database.connect(client_encoding="UTF8"))
        exporter.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        row = exporter.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        self.worker = self.stack.enter_context(snapshot_connection(self.parameters, row[0], "copy"))

    def table(self, name: str = "t", **options: Any) -> PublishedTable:
        row = self.worker.execute(
            "SELECT c.oid::bigint, nspname, relname, relkind = 'p'"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relname = %s",
            (name,),
        ).fetchone()
        assert row is not None
        return replace(PublishedTable(*row, None, None, 0), **options)

    def columns(self, table: PublishedTable) -> tuple[ColumnSchema, ...]:
        rows = self.worker.execute(_COLUMNS, (table.oid,)).fetchall()
        return tuple(
            ColumnSchema(*row) for row in rows if table.column_names is None or row[0] in table.column_names
        )

    def leaves(self, table: PublishedTable) -> tuple[Leaf, ...]:
        return read_leaves(self.worker, self.parameters, table)

    def plan(self, table: PublishedTable) -> tuple[CopyRange, ...]:
        """Ranges of a block or so."""
        return plan_ranges(self.leaves(table), 8192)

    def batches(
        self,
        table: PublishedTable,
        part: CopyRange,
        columns: Sequence[ColumnSchema] | None = None,
        block_bytes: int = 1 << 12,
    ) -> Iterator[TextBatch]:
        columns = self.columns(table) if columns is None else columns
        return read_range(self.worker, self.parameters, table, part, columns, block_bytes=block_bytes)

    def read(self, table: PublishedTable, parts: Sequence[CopyRange] | None = None) -> list[Row]:
        rows: list[Row] = []
        for part in self.plan(table) if parts is None else parts:
            for batch in self.batches(table, part):
                found = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
                assert len(found) == batch.rows > 0
                rows += found
        return rows


@pytest.fixture
def copy(database: Database) -> Iterator[Copy]:
    with ExitStack() as stack:
        present = stack.enter_context(database.connect())
        # a lock of the copy's that lasts fails a test instead of stopping it
        present.execute("SET lock_timeout = '20s'")
        yield Copy(database, present, stack)


@pytest.fixture(params=["socket", "driver"])
def transport(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read the same bytes: an encrypted connection takes the second."""
    if request.param == "driver":
        monkeypatch.setattr(copy_wire, "_is_plain", lambda _: False)
    return str(request.param)


def texts(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> list[Row]:
    """What the snapshot shows; the lock on it goes at once."""
    with connection.transaction(force_rollback=True):
        return connection.execute(query).fetchall()


WIDE = "CREATE TABLE t (id int PRIMARY KEY, v text)"
FILL = "INSERT INTO t SELECT i, repeat(chr(97 + i % 26), i % 700) FROM generate_series(1, 500) i"


# --- every row once ---------------------------------------------------------------------------------------------


@given(
    cuts=st.sets(st.integers(1, 40), max_size=8),
    dead=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 200)), max_size=3),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_row_is_in_one_range_wherever_the_blocks_are_cut(
    copy: Copy, cuts: set[int], dead: list[tuple[int, int]]
) -> None:
    copy.present.execute("DROP TABLE IF EXISTS t")
    copy.present.execute(WIDE)
    copy.present.execute(FILL)
    for first, count in dead:
        copy.present.execute("DELETE FROM t WHERE id BETWEEN %s AND %s", (first, first + count))
        copy.present.execute("UPDATE t SET v = v || 'u' WHERE id %% 7 = %s", (count % 7,))
    with ExitStack() as copy.stack:
        copy.begin()
        copy.present.execute("UPDATE t SET v = 'later'")
        copy.present.execute("DELETE FROM t WHERE id % 2 = 0")
        copy.present.execute("INSERT INTO t SELECT i, 'new' FROM generate_series(1000, 2000) i")
        copy.present.execute("VACUUM t")
        table = copy.table()
        bounds = [0, *sorted(cuts), None]
        parts = [
            CopyRange(number, table.oid, "public", "t", from_block=first, to_block=end)
            for number, (first, end) in enumerate(pairwise(bounds))
        ]
        expected = texts(copy.worker, "SELECT id::text, v FROM t")
        assert Counter(copy.read(table, parts)) == Counter(expected)


def test_a_plan_covers_blocks_that_came_after_it(copy: Copy) -> None:
    copy.present.execute(WIDE)
    with copy.database.connect() as writer, writer.transaction():
        writer.execute(FILL)
    copy.begin()
    table = copy.table()
    leaf = copy.leaves(table)[0]
    assert leaf.blocks
    assert leaf.nbytes >= leaf.blocks * 8192
    parts = plan_ranges([replace(leaf, blocks=3, nbytes=3 * 8192)], 8192)
    assert len(parts) == 3
    assert len(copy.read(table, parts)) == 500


def test_values_come_as_the_server_prints_them(copy: Copy, transport: str) -> None:
    copy.present.execute('CREATE TABLE "Odd ""t"" %s" (id int, "a ""b"" %% é" text, "C\'" text)')
    odd = [
        "",
        None,
        "\\N",
        "\\",
        "\\\\",
        "a\tb\nc\rd\be\ff\vg",
        '"',
        "é𝄞",
        "\\n",
        "x" * 100_000,
        "d\x01\n\\.",
    ]
    for number, value in enumerate(odd):
        copy.present.execute(
            'INSERT INTO "Odd ""t"" %%s" VALUES (%s, %s, %s)', (number, value, odd[number - 1])
        )
    copy.begin()
    table = copy.table('Odd "t" %s')
    assert copy.read(table) == [(str(number), value, odd[number - 1]) for number, value in enumerate(odd)]


def test_rows_wider_than_a_block_of_ours_are_whole(copy: Copy, transport: str) -> None:
    copy.present.execute("CREATE TABLE t (id int, v text)")
    copy.present.execute("ALTER TABLE t ALTER v SET STORAGE EXTERNAL")
    copy.present.execute(
        "INSERT INTO t SELECT i, repeat(md5(i::text), i * 30000) FROM generate_series(0, 6) i"
    )
    copy.begin()
    table = copy.table()
    assert copy.leaves(table)[0].nbytes > 6_000_000
    assert copy.read(table) == texts(copy.worker, "SELECT id::text, v FROM t")


def test_rows_without_columns_are_counted(copy: Copy, transport: str) -> None:
    copy.present.execute("CREATE TABLE t ()")
    copy.present.execute("INSERT INTO t SELECT FROM generate_series(1, 3)")
    copy.begin()
    table = copy.table()
    batches = [batch for part in copy.plan(table) for batch in copy.batches(table, part)]
    assert [(batch.columns, batch.rows) for batch in batches] == [((), 3)]


def test_an_empty_table_gives_no_batch(copy: Copy, transport: str) -> None:
    copy.present.execute(WIDE)
    copy.begin()
    table = copy.table()
    assert [list(copy.batches(table, part)) for part in copy.plan(table)] == [[]]


def test_generated_columns_and_those_off_the_list_are_not_read(copy: Copy) -> None:
    copy.present.execute(
        "CREATE TABLE t (a int, gone int, g int GENERATED ALWAYS AS (a * 2) STORED, b int, c int)"
    )
    copy.present.execute("ALTER TABLE t DROP gone")
    copy.present.execute("INSERT INTO t (a, b, c) VALUES (1, 2, 3)")
    copy.begin()
    assert copy.read(copy.table()) == [("1", "2", "3")]
    assert copy.read(copy.table(column_names=("a", "c"))) == [("1", "3")]


def test_the_row_filter_holds_within_every_range(copy: Copy) -> None:
    copy.present.execute(WIDE)
    copy.present.execute(FILL)
    copy.present.execute("CREATE PUBLICATION p FOR TABLE t WHERE (id < 100 OR id > 490)")
    copy.begin()
    table = published_tables(copy.present, copy.parameters, "p")[0]
    assert len(copy.plan(table)) > 3
    expected = texts(copy.worker, "SELECT id::text, v FROM t WHERE id < 100 OR id > 490")
    assert Counter(copy.read(table)) == Counter(expected)


def test_what_inherits_from_a_plain_table_is_none_of_it(copy: Copy) -> None:
    copy.present.execute("CREATE TABLE t (id int)")
    copy.present.execute("CREATE TABLE child () INHERITS (t)")
    copy.present.execute("INSERT INTO t VALUES (1)")
    copy.present.execute("INSERT INTO child VALUES (2)")
    copy.begin()
    assert copy.read(copy.table()) == [("1",)]


def test_bytes_of_a_database_without_an_encoding_come_as_they_are(postgres: PostgresServer) -> None:
    with (
        postgres.database(encoding="SQL_ASCII", template="template0", lc_collate="C", lc_ctype="C") as plain,
        ExitStack() as stack,
    ):
        copy = Copy(plain, stack.enter_context(plain.connect()), stack)
        copy.present.execute('CREATE TABLE t (id int, "é" text)'.encode())
        copy.present.execute("INSERT INTO t VALUES (1, E'\\xff\\x09\\xfe'), (2, NULL), (3, '')")
        copy.begin()
        table = copy.table()
        assert copy.read(table) == [(b"1", b"\xff\t\xfe"), (b"2", None), (b"3", b"")]
        assert copy.columns(table)[1].name == "é"


# --- partitions -------------------------------------------------------------------------------------------------

PARTITIONED = """
CREATE TABLE t (id int, v text, n int) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100);
CREATE TABLE high (gone int, n int, gone2 int, v text, id int NOT NULL) PARTITION BY LIST (n);
ALTER TABLE high DROP gone, DROP gone2;
CREATE TABLE even PARTITION OF high FOR VALUES IN (0);
CREATE TABLE odd (v text, dropped int, id int NOT NULL, n int);
ALTER TABLE odd DROP dropped;
ALTER TABLE high ATTACH PARTITION odd FOR VALUES IN (1);
ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (100) TO (1000);
CREATE TABLE empty PARTITION OF t FOR VALUES FROM (1000) TO (2000);
INSERT INTO t SELECT i, 'v' || i, i % 2 FROM generate_series(0, 999) i
"""


def partitioned(copy: Copy) -> None:
    for statement in PARTITIONED.split(";"):
        copy.present.execute(statement.encode())
    copy.begin()


def test_a_partitioned_table_is_read_by_its_leaves_at_every_level(copy: Copy, transport: str) -> None:
    partitioned(copy)
    table = copy.table()
    assert {leaf.name for leaf in copy.leaves(table)} == {"low", "even", "odd", "empty"}
    expected = texts(copy.worker, "SELECT id::text, v, n::text FROM t")
    assert Counter(copy.read(table)) == Counter(expected)


def test_columns_of_partitions_are_followed_when_they_are_renamed(copy: Copy) -> None:
    partitioned(copy)
    table = copy.table()
    columns, expected = copy.columns(table), texts(copy.worker, "SELECT id::text, v, n::text FROM t")
    copy.present.execute("ALTER TABLE t RENAME v TO held")
    copy.present.execute("ALTER TABLE t RENAME id TO v")
    copy.present.execute("CREATE TABLE later PARTITION OF t FOR VALUES FROM (2000) TO (3000)")
    assert copy.columns(table) == columns
    assert Counter(copy.read(table)) == Counter(expected)


def test_a_detached_partition_is_read_as_what_it_was(copy: Copy) -> None:
    partitioned(copy)
    table = copy.table()
    expected = texts(copy.worker, "SELECT id::text, v, n::text FROM t")
    copy.present.execute("ALTER TABLE high DETACH PARTITION odd")
    assert Counter(copy.read(table)) == Counter(expected)


def test_a_dropped_partition_needs_a_new_snapshot(copy: Copy) -> None:
    partitioned(copy)
    table = copy.table()
    parts = copy.plan(table)
    copy.present.execute("DROP TABLE low")
    with pytest.raises(SnapshotOutdatedError):
        copy.read(table, parts)


def test_foreign_partitions_are_not_cut(copy: Copy) -> None:
    for statement in (
        "CREATE FOREIGN DATA WRAPPER w",
        "CREATE SERVER s FOREIGN DATA WRAPPER w",
        "CREATE TABLE t (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE near PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE FOREIGN TABLE far PARTITION OF t FOR VALUES FROM (10) TO (20) SERVER s",
    ):
        copy.present.execute(statement.encode())
    copy.begin()
    table = copy.table()
    assert {leaf.name: leaf.blocks for leaf in copy.leaves(table)} == {"near": 0, "far": None}
    assert [(part.from_block, part.to_block) for part in copy.plan(table)] == [(None, None)] * 2


def test_partitions_our_role_may_not_read_are_read_through_the_table(copy: Copy) -> None:
    role = f"reader_{copy.database.name}"
    copy.present.execute(f"CREATE ROLE {role} LOGIN")
    try:
        for statement in PARTITIONED.split(";"):
            copy.present.execute(statement.encode())
        copy.present.execute(f"GRANT SELECT ON t TO {role}")
        with ExitStack() as copy.stack:
            copy.begin(options=f"-c role={role}")
            table = copy.table()
            expected = texts(copy.worker, "SELECT id::text, v, n::text FROM t")
            parts = copy.plan(table)
            assert [(part.name, part.is_only) for part in parts] == [("t", False)]
            assert Counter(copy.read(table, parts)) == Counter(expected)
            copy.present.execute("TRUNCATE low")
            with pytest.raises(SnapshotOutdatedError):
                copy.read(table, parts)
    finally:
        copy.present.execute(f"DROP OWNED BY {role}")
        copy.present.execute(f"DROP ROLE {role}")


# --- what happens between the snapshot and a range -----------------------------------------------------------------

BASE = """
CREATE DOMAIN price AS numeric(8,2);
CREATE DOMAIN other_price AS numeric(8,2);
CREATE TABLE t (id int PRIMARY KEY, v varchar(20), w text DEFAULT 'd', p price);
INSERT INTO t SELECT i, 'v' || i, 'w', i FROM generate_series(1, 300) i
"""


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t RENAME v TO renamed",
        "ALTER TABLE t RENAME v TO x; ALTER TABLE t RENAME w TO v; ALTER TABLE t RENAME x TO w",
        "ALTER TABLE t ADD added int DEFAULT 7",
        "ALTER TABLE t ALTER v SET DEFAULT 'x'",
        "ALTER TABLE t ALTER w DROP DEFAULT",
        "ALTER TABLE t ALTER v SET NOT NULL",
        "INSERT INTO t VALUES (1000); DELETE FROM t WHERE id < 100",
        "CREATE INDEX ON t (v)",
        "ANALYZE t",
    ],
)
def test_what_changes_no_value_of_the_snapshot_is_harmless(copy: Copy, statement: str) -> None:
    copy.present.execute(BASE.encode())
    copy.begin()
    table = copy.table()
    columns, parts = copy.columns(table), copy.plan(table)
    assert len(parts) > 1
    expected = copy.read(table, parts)
    assert len(expected) == 300
    first = copy.read(table, parts[:1])
    copy.present.execute(statement.encode())
    assert copy.columns(table) == columns
    assert first + copy.read(table, parts[1:]) == expected


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP v",
        "ALTER TABLE t DROP v; ALTER TABLE t ADD v varchar(20)",
        "ALTER TABLE t ALTER v TYPE varchar(30)",
        "ALTER TABLE t ALTER v TYPE text",
        "ALTER TABLE t ALTER id TYPE bigint",
        "ALTER TABLE t ALTER p TYPE numeric(8,2)",
        "ALTER TABLE t ALTER p TYPE other_price",
        "ALTER TABLE t ADD added float DEFAULT random()",
        "TRUNCATE t",
        "VACUUM FULL t",
        "ALTER TABLE t RENAME TO u",
        "ALTER TABLE t RENAME TO u; CREATE TABLE t (id int, v varchar(20), w text, p price)",
        "CREATE TABLE u AS TABLE t; ALTER TABLE t RENAME TO old; ALTER TABLE u RENAME TO t",
        "CREATE SCHEMA s; ALTER TABLE t SET SCHEMA s",
        "ALTER SCHEMA public RENAME TO private",
        "DROP TABLE t",
    ],
)
def test_what_the_snapshot_does_not_show_needs_a_new_one(copy: Copy, statement: str) -> None:
    copy.present.execute(BASE.encode())
    copy.present.execute("CREATE TABLE another (id int)")
    copy.begin()
    table, another = copy.table(), copy.table("another")
    parts, others = copy.plan(table), copy.plan(another)
    copy.read(table, parts[:1])
    for one in statement.split("; "):
        copy.present.execute(one.encode())
    with pytest.raises(SnapshotOutdatedError, match="altered between the snapshot and its copy"):
        copy.read(table, parts[1:])
    if "SCHEMA public" not in statement:
        assert copy.read(another, others) == []


def test_a_change_before_the_plan_is_seen_too(copy: Copy) -> None:
    copy.present.execute(BASE.encode())
    copy.begin()
    table = copy.table()
    copy.present.execute("TRUNCATE t")
    with pytest.raises(SnapshotOutdatedError):
        copy.read(table, copy.plan(table))


def test_columns_that_are_not_read_may_go(copy: Copy) -> None:
    copy.present.execute(BASE.encode())
    copy.begin()
    table = copy.table(column_names=("id", "p"))
    copy.present.execute("ALTER TABLE t DROP v")
    assert len(copy.read(table)) == 300


def test_a_row_filter_is_not_read_by_names_that_moved(copy: Copy) -> None:
    copy.present.execute(BASE.encode())
    copy.present.execute("CREATE PUBLICATION p FOR TABLE t WHERE (id < 100)")
    copy.begin()
    table = published_tables(copy.present, copy.parameters, "p")[0]
    copy.present.execute("ALTER TABLE t RENAME w TO renamed")
    with pytest.raises(SnapshotOutdatedError):
        copy.read(table)


def test_a_table_that_somebody_keeps_locked_is_put_off(copy: Copy) -> None:
    copy.present.execute(BASE.encode())
    copy.present.execute("CREATE TABLE another (id int)")
    copy.begin()
    table, another = copy.table(), copy.table("another")
    parts, others = copy.plan(table), copy.plan(another)
    copy.worker.execute("SET lock_timeout = '50ms'")
    with copy.present.transaction():
        copy.present.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        with pytest.raises(SnapshotOutdatedError, match="is being altered"):
            copy.read(table, parts)
        with pytest.raises(SnapshotOutdatedError, match="is being altered"):
            copy.leaves(table)
        assert copy.read(another, others) == []
    assert len(copy.read(table, parts)) == 300


def test_the_lock_goes_with_the_range(copy: Copy, transport: str) -> None:
    copy.present.execute(WIDE)
    copy.present.execute(FILL)
    copy.begin()
    table = copy.table()
    part = CopyRange(0, table.oid, "public", "t")
    copy.present.execute("SET lock_timeout = '50ms'")
    with closing(copy.batches(table, part)) as batches:
        next(batches)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            copy.present.execute("ALTER TABLE t ADD added int")
    copy.present.execute("ALTER TABLE t ADD added int")


# --- leaving early, and errors -------------------------------------------------------------------------------------


def test_a_range_left_early_is_cancelled_and_the_next_is_read(copy: Copy, transport: str) -> None:
    copy.present.execute("CREATE TABLE t (id int, v text)")
    copy.present.execute("INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 60000) i")
    copy.begin()
    table = copy.table()
    part = CopyRange(0, table.oid, "public", "t")
    for block_bytes in (1, 1 << 16, 1 << 20):
        with closing(copy.batches(table, part, block_bytes=block_bytes)) as batches:
            assert 0 < next(batches).rows < 60000
        last = CopyRange(0, table.oid, "public", "t", from_block=1)
        assert 0 < len(copy.read(table, [last])) < 60000


def test_an_error_of_the_server_is_told_without_values_and_the_transaction_goes_on(
    copy: Copy, transport: str
) -> None:
    copy.present.execute(WIDE)
    copy.present.execute(FILL)
    copy.begin()
    table = copy.table()
    broken = replace(table, row_filter="1 / (id - 400) < 5")
    with pytest.raises(SourceError, match="division by zero") as caught:
        copy.read(broken)
    assert caught.value.kind == "source"
    assert len(copy.read(table)) == 500


def test_a_connection_that_breaks_is_an_outage(copy: Copy, transport: str) -> None:
    copy.present.execute("CREATE TABLE t (id int, v text)")
    copy.present.execute("INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 60000) i")
    copy.begin()
    table = copy.table()
    batches = copy.batches(table, CopyRange(0, table.oid, "public", "t"))
    next(batches)
    copy.present.execute("SELECT pg_terminate_backend(%s, 10000)", (copy.worker.info.backend_pid,))
    with pytest.raises(SourceUnavailableError):
        list(batches)

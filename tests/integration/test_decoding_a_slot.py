"""What the server wrote into a slot, decoded by us and replayed, is what the server's own SELECT shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
import pytest

from etl.pgoutput.frames import Frames, scan
from etl.pgoutput.messages import (
    Begin,
    Commit,
    LogicalMessage,
    Origin,
    RelationMessage,
    TruncateMessage,
    TypeMessage,
    control,
)
from etl.pgoutput.rows import SUB_OLD, RawRows, TextColumns, decode_rows
from etl.schema.table import ReplicaIdentity
from etl.testing.postgres import Database, PostgresServer
from tests.unit.pgoutput import encoder

Connection = psycopg.Connection[tuple[Any, ...]]
Row = tuple[str | None, ...]

PEEK = """
SELECT lsn - '0/0'::pg_lsn, data FROM pg_logical_slot_peek_binary_changes(
    's', NULL, NULL, 'proto_version', '1', 'publication_names', 'p', 'messages', 'true')
"""
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::int8"


@pytest.fixture
def source(database: Database) -> Iterator[Connection]:
    with database.connect() as connection:
        yield connection


def start(source: Connection, *statements: str) -> None:
    for statement in (*statements, "CREATE PUBLICATION p FOR ALL TABLES"):
        source.execute(statement)
    source.execute("SELECT pg_create_logical_replication_slot('s', 'pgoutput')")


def received(source: Connection) -> Frames:
    """Everything in the slot, as one chunk of the stream."""
    rows = source.execute(PEEK).fetchall()
    return scan(encoder.chunk([encoder.xlog(int(lsn), bytes(data)) for lsn, data in rows]))


@dataclass
class Replica:
    """The tables of the source as the stream tells of them: rows are texts, kept as many times as they occur."""

    relations: dict[int, RelationMessage] = field(default_factory=dict)
    tables: dict[str, list[Row]] = field(default_factory=dict)
    messages: list[object] = field(default_factory=list)

    def replay(self, frames: Frames) -> Replica:
        """Apply the frames in order: a run of rows of one relation at a time, whatever stands between."""
        for run in _runs(frames):
            if frames.is_row[run[0]]:
                relation = self.relations[int(frames.oid[run[0]])]
                raw = decode_rows(frames, run, len(relation.columns))
                self._change(self.tables.setdefault(relation.name, []), relation, raw)
            else:
                self._control(control(frames, int(run[0])))
        return self

    def _control(self, message: object) -> None:
        self.messages.append(message)
        match message:
            case RelationMessage():
                self.relations[message.oid] = message
            case TruncateMessage():
                for oid in message.oids:
                    self.tables[self.relations[oid].name] = []

    def _change(self, table: list[Row], relation: RelationMessage, raw: RawRows) -> None:
        new, old = _rows(raw.new), _rows(raw.old) if raw.old else []
        for row in range(len(raw)):
            image = int(raw.old_index[row])
            known = old[image] if image >= 0 else new[row]
            whole = image >= 0 and raw.old_kind[image] == SUB_OLD
            before = None if raw.ops[row] == ord("I") else self._find(table, relation, known, whole=whole)
            if before is not None:
                table.remove(before)
            if raw.ops[row] != ord("D"):
                unsent = (
                    raw.new.unsent[:, row] if raw.new.unsent is not None else np.zeros(len(new[row]), bool)
                )
                sources = zip(new[row], before or new[row], unsent, strict=True)
                table.append(tuple(kept if missing else value for value, kept, missing in sources))

    @staticmethod
    def _find(table: list[Row], relation: RelationMessage, known: Row, *, whole: bool) -> Row:
        keys = [at for at, column in enumerate(relation.columns) if whole or column.key]
        return next(row for row in table if all(row[at] == known[at] for at in keys))


def _runs(frames: Frames) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Neighbouring rows of one relation together, everything else alone."""
    joins = frames.is_row[1:] & frames.is_row[:-1] & (frames.oid[1:] == frames.oid[:-1])
    yield from (run for run in np.split(np.arange(len(frames)), np.flatnonzero(~joins) + 1) if len(run))


def _rows(columns: TextColumns) -> list[Row]:
    texts = [text.values.to_pylist() for text in columns.texts]
    return [tuple(column[row] for column in texts) for row in range(len(columns))]


def selected(source: Connection, table: str) -> list[Row]:
    """The table's rows as the types' output functions print them, which a cast to text is not always."""
    names = [column.name for column in source.execute(f"SELECT * FROM {table} LIMIT 0").description or ()]
    texts = ", ".join(f"CASE WHEN {name} IS NOT NULL THEN format('%s', {name}) END" for name in names)
    return source.execute(f"SELECT {texts} FROM {table}").fetchall()


def assert_same(replica: Replica, source: Connection, table: str) -> None:
    by_text = {"key": lambda row: tuple(map(str, row))}
    assert sorted(replica.tables[table], **by_text) == sorted(selected(source, table), **by_text)


TYPED = """
CREATE TABLE typed (
    id bigint PRIMARY KEY, i int, t text, n numeric(20, 4), at timestamptz, j jsonb,
    b bytea, f float8, u uuid, a int[], d date, flag boolean, v interval)
"""
FILL_TYPED = """
INSERT INTO typed
SELECT g, nullif(g % 7, 0), repeat(chr(945 + (g % 20)::int), (g % 9)::int), g / 3.0,
    '2026-01-01'::timestamptz + g * interval '1 minute 1.000001 second', jsonb_build_object('k', g, 'n', null),
    decode(md5(g::text), 'hex'), g / 7.0, md5(g::text)::uuid, ARRAY[g, NULL], '2026-01-01'::date + g::int,
    g % 2 = 0, g * interval '1 hour'
FROM generate_series(1::bigint, 2000) g
"""


def test_rows_of_many_types_after_inserts_updates_and_deletes(source: Connection):
    start(source, TYPED)
    source.execute(FILL_TYPED)
    source.execute("UPDATE typed SET t = NULL, i = i + 1 WHERE id % 3 = 0")
    source.execute("UPDATE typed SET id = -id WHERE id % 5 = 0")
    source.execute("DELETE FROM typed WHERE id % 4 = 0")
    replica = Replica().replay(received(source))
    assert_same(replica, source, "typed")
    assert len(replica.tables["typed"]) == 1500


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_unchanged_toast_is_never_lost(source: Connection, identity: str):
    start(
        source,
        "CREATE TABLE toasted (id int PRIMARY KEY, big text, small text)",
        "ALTER TABLE toasted ALTER big SET STORAGE EXTERNAL",
        f"ALTER TABLE toasted REPLICA IDENTITY {identity}",
    )
    source.execute("INSERT INTO toasted SELECT g, repeat(g::text, 9000), 'a' FROM generate_series(1, 20) g")
    source.execute("UPDATE toasted SET small = 'b' WHERE id > 5")
    source.execute("UPDATE toasted SET big = NULL WHERE id > 15")
    source.execute("UPDATE toasted SET id = id + 100 WHERE id > 10")
    assert_same(Replica().replay(received(source)), source, "toasted")


def test_duplicate_rows_without_a_key_under_full_identity(source: Connection):
    start(source, "CREATE TABLE keyless (a int, b text)", "ALTER TABLE keyless REPLICA IDENTITY FULL")
    source.execute("INSERT INTO keyless SELECT g % 3, NULL FROM generate_series(1, 30) g")
    source.execute("UPDATE keyless SET b = 'x' WHERE ctid IN (SELECT ctid FROM keyless WHERE a = 1 LIMIT 4)")
    source.execute("DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a = 2 LIMIT 7)")
    replica = Replica().replay(received(source))
    assert_same(replica, source, "keyless")
    assert len(replica.tables["keyless"]) == 23


def test_tables_and_control_messages_interleave(source: Connection):
    start(
        source,
        "CREATE TYPE mood AS ENUM ('fine')",
        "CREATE TABLE one (id int PRIMARY KEY, m mood)",
        "CREATE TABLE two (id int PRIMARY KEY)",
        "CREATE TABLE none ()",
        "SELECT pg_replication_origin_create('elsewhere')",
    )
    with source.transaction():
        source.execute("INSERT INTO one VALUES (1, 'fine')")
        source.execute("INSERT INTO two VALUES (1)")
        source.execute("SELECT pg_logical_emit_message(true, 'note', 'inside')")
        source.execute("INSERT INTO one VALUES (2, NULL)")
        source.execute("INSERT INTO none DEFAULT VALUES")
    source.execute("SELECT pg_logical_emit_message(false, 'note', 'outside')")
    source.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
    source.execute("INSERT INTO two VALUES (2)")
    source.execute("SELECT pg_replication_origin_session_reset()")
    source.execute("TRUNCATE one, two RESTART IDENTITY CASCADE")
    source.execute("ALTER TABLE one ADD COLUMN note text DEFAULT 'new'")
    source.execute("INSERT INTO one VALUES (3, 'fine')")
    replica = Replica().replay(received(source))
    assert_same(replica, source, "one")
    assert replica.tables["two"] == []
    assert replica.tables["none"] == [()]
    said = {type(message) for message in replica.messages}
    assert said >= {Begin, Commit, RelationMessage, TypeMessage, TruncateMessage, LogicalMessage, Origin}
    notes = [note for note in replica.messages if isinstance(note, LogicalMessage)]
    assert [(note.transactional, note.prefix, note.content) for note in notes] == [
        (True, "note", b"inside"),
        (False, "note", b"outside"),
    ]
    (truncate,) = (message for message in replica.messages if isinstance(message, TruncateMessage))
    assert (truncate.cascade, truncate.restart_identity, len(truncate.oids)) == (True, True, 2)


def test_a_commit_tells_its_lsns_and_its_time(source: Connection):
    start(source, "CREATE TABLE t (id int PRIMARY KEY)")
    ((before,),) = source.execute(CLOCK).fetchall()
    source.execute("INSERT INTO t VALUES (1)")
    ((after,),) = source.execute(CLOCK).fetchall()
    replica = Replica().replay(received(source))
    begin, commit = replica.messages[0], replica.messages[-1]
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert begin.final_lsn == commit.commit_lsn < commit.end_lsn
    assert before <= begin.timestamp == commit.timestamp <= after


def test_a_relation_shows_the_catalog(source: Connection):
    start(
        source,
        'CREATE TABLE "Weird ""name""" (a int, b numeric(10, 2) NOT NULL, c varchar(7), UNIQUE (b))',
        'ALTER TABLE "Weird ""name""" REPLICA IDENTITY USING INDEX "Weird ""name""_b_key"',
    )
    source.execute('INSERT INTO "Weird ""name""" VALUES (1, 2, NULL)')
    (relation,) = Replica().replay(received(source)).relations.values()
    catalog = source.execute(
        """SELECT attname, atttypid::int8, atttypmod FROM pg_attribute
        WHERE attrelid = %s AND attnum > 0 ORDER BY attnum""",
        (relation.oid,),
    ).fetchall()
    assert (relation.schema, relation.name) == ("public", 'Weird "name"')
    assert relation.replica_identity is ReplicaIdentity.INDEX
    assert [(c.name, c.type_oid, c.typmod) for c in relation.columns] == catalog
    assert [c.key for c in relation.columns] == [False, True, False]


@pytest.mark.parametrize(
    ("encoding", "asked", "literal", "shown"),
    [
        pytest.param("UTF8", "UTF8", "U&'caf\\00e9'", "café", id="UTF8"),
        pytest.param("LATIN1", "UTF8", "E'caf\\351'", "café", id="LATIN1 is converted"),
        pytest.param("SQL_ASCII", "UTF8", "E'caf\\303\\251'", "café", id="SQL_ASCII that is UTF-8"),
        pytest.param(
            "SQL_ASCII", "SQL_ASCII", "E'caf\\351'", r"caf\xe9", id="SQL_ASCII that is not, as it is"
        ),
    ],
)
def test_text_arrives_as_utf8_whatever_the_database_keeps(
    postgres: PostgresServer, encoding: str, asked: str, literal: str, shown: str
):
    with other_encoding(postgres, encoding) as database, database.connect(client_encoding=asked) as source:
        start(source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        source.execute(f"INSERT INTO t VALUES (1, {literal})")
        assert Replica().replay(received(source)).tables["t"] == [("1", shown)]


def test_asked_for_utf8_an_sql_ascii_database_stops_at_bytes_that_are_not(postgres: PostgresServer):
    """Why the stream of such a database is to be asked for in SQL_ASCII: the slot would never get past this row."""
    with (
        other_encoding(postgres, "SQL_ASCII") as database,
        database.connect(client_encoding="UTF8") as source,
    ):
        start(source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
        source.execute(r"INSERT INTO t VALUES (1, E'caf\351')")
        with pytest.raises(psycopg.errors.CharacterNotInRepertoire):
            received(source)


def other_encoding(postgres: PostgresServer, encoding: str) -> AbstractContextManager[Database]:
    return postgres.database(encoding=encoding, template="template0", lc_collate="C", lc_ctype="C")

"""What comes out of a slot, decoded just far enough to talk about it (Postgres manual, "Logical Replication Message
Formats", protocol version 1). Independent of `etl.pgoutput`, so that the two can disagree."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Self

import psycopg
from psycopg.conninfo import make_conninfo

from etl.schema.message import parse_schema_message
from etl.schema.signature import Signature, split_signed, verify
from etl.source.install import load_signing_keys
from etl.testing.postgres import Database

PREFIX = "supabase_etl_ddl"

#: A root with a branch and leaves on two levels.
TREE = (
    "CREATE TABLE root (id int, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE branch PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
    "CREATE TABLE leaf PARTITION OF branch FOR VALUES FROM (0) TO (5)",
    "CREATE TABLE twig PARTITION OF root FOR VALUES FROM (10) TO (20)",
)

_CLEAR = """
DO $$
DECLARE
    left_over text;
BEGIN
    FOR left_over IN
        SELECT format('DROP EVENT TRIGGER %I', evtname) FROM pg_event_trigger WHERE evtname NOT LIKE 'supabase_etl_%'
        UNION ALL SELECT format('DROP PUBLICATION %I', pubname) FROM pg_publication
        UNION ALL SELECT format('DROP EXTENSION %I CASCADE', extname) FROM pg_extension WHERE extname <> 'plpgsql'
        UNION ALL SELECT format('DROP SCHEMA %I CASCADE', nspname) FROM pg_namespace
                   WHERE nspname NOT LIKE 'pg\\_%' AND nspname NOT IN ('information_schema', 'etl')
    LOOP
        EXECUTE left_over;
    END LOOP;
    CREATE SCHEMA public;
    GRANT USAGE ON SCHEMA public TO PUBLIC;
END
$$
"""


@dataclass(frozen=True)
class Begin:
    xid: int


@dataclass(frozen=True)
class Commit:
    pass


@dataclass(frozen=True)
class Relation:
    oid: int
    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    oid: int
    kind: str


@dataclass(frozen=True)
class Message:
    transactional: bool
    prefix: str
    content: bytes

    @property
    def signed(self) -> tuple[bytes, Signature | None]:
        return split_signed(self.content)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload of a message with a signature, without it."""
        payload, signature = self.signed
        assert signature is not None, "unsigned"
        return json.loads(payload)


Event = Begin | Commit | Relation | Row | Message


class Source:
    """A database with the triggers installed, a publication and a slot made before any change."""

    def __init__(self, database: Database, publication: str = "p") -> None:
        self.database = database
        self.publication = publication
        self.slot = f"slot_{database.name}"
        self.connection = database.connect(client_encoding="UTF8")
        self.notices: list[str] = []
        self.connection.add_notice_handler(lambda notice: self.notices.append(str(notice.message_primary)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def clear(self) -> None:
        """Leave nothing but schema etl, an empty publication, and a slot that starts here."""
        self.run("SET supabase_etl.skip_ddl_log = 'true'", "SET client_min_messages = error", _CLEAR)
        self.run(f"CREATE PUBLICATION {self.publication}", "RESET ALL")
        if self.value(f"SELECT count(*) FROM pg_replication_slots WHERE slot_name = '{self.slot}'"):
            self.run(f"SELECT pg_replication_slot_advance('{self.slot}', pg_current_wal_insert_lsn())")
        else:
            self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    def run(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def value(self, query: str) -> Any:
        row = self.connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    def oid(self, name: str) -> int:
        return self.value(f"SELECT '{name}'::regclass::oid")

    def events(self) -> list[Event]:
        """All events since the last call; messages of other prefixes included."""
        rows = self.connection.execute(
            "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s, 'messages', 'true')",
            (self.slot, self.publication),
        ).fetchall()
        return [decode(bytes(data)) for (data,) in rows]

    def messages(self) -> list[dict[str, Any]]:
        """The payloads since the last call, every one transactional, with a good signature, and read by the reader."""
        keys = load_signing_keys(self.connection)
        found = [event for event in self.events() if isinstance(event, Message) and event.prefix == PREFIX]
        for message in found:
            payload, signature = message.signed
            assert message.transactional
            assert signature is not None
            assert verify(payload, signature, keys)
            parsed = parse_schema_message(payload)
            assert parsed.oid == message.payload["oid"]
            assert parsed.is_drop == (message.payload.get("columns") == [])
        return [message.payload for message in found]

    def message(self) -> dict[str, Any]:
        """The one payload since the last call."""
        (payload,) = self.messages()
        return payload

    def tables(self) -> list[str]:
        """Which tables the messages since the last call are about, in order."""
        return [f"{payload['nspname']}.{payload['relname']}" for payload in self.messages()]

    def shape(self) -> str:
        """The events since the last call, one letter each, as the protocol names them."""
        return "".join(
            _LETTER[type(event)] if not isinstance(event, Row) else event.kind for event in self.events()
        )


class LiveStream:
    """The slot as a walsender sends it, in-progress transactions included (protocol version 2), while it happens."""

    def __init__(self, source: Source) -> None:
        self._connection = psycopg.connect(
            make_conninfo(
                source.database.dsn, replication="database", options="-c logical_decoding_work_mem=64kB"
            ),
            autocommit=True,
        )
        self._wire = self._connection.pgconn
        self._wire.exec_(
            f"START_REPLICATION SLOT {source.slot} LOGICAL 0/0 (proto_version '2', streaming 'on', messages 'true',"
            f" publication_names '{source.publication}')".encode()
        )

    def until(self, tag: bytes) -> list[bytes]:
        """The messages up to the first one with this tag, that one included. Waits for it."""
        seen: list[bytes] = []
        while not (seen and seen[-1][:1] == tag):
            size, data = self._wire.get_copy_data(0)
            assert size > 0, self._wire.error_message
            if bytes(data[:1]) == b"w":
                seen.append(bytes(data[25:]))
        return seen

    def close(self) -> None:
        self._connection.close()


_LETTER = {Begin: "B", Commit: "C", Relation: "R", Message: "M"}


def decode(data: bytes) -> Event:
    match chr(data[0]):
        case "B":
            return Begin(struct.unpack_from("!I", data, 17)[0])
        case "C":
            return Commit()
        case "M":
            prefix, _, rest = data[10:].partition(b"\0")
            return Message(bool(data[1] & 1), prefix.decode(), rest[4:])
        case "R":
            return _relation(data)
        case "I" | "U" | "D" as kind:
            return Row(struct.unpack_from("!I", data, 1)[0], kind)
    raise AssertionError(f"unexpected message {data[:20]!r}")


def _relation(data: bytes) -> Relation:
    (oid,) = struct.unpack_from("!I", data, 1)
    schema, _, rest = data[5:].partition(b"\0")
    name, _, rest = rest.partition(b"\0")
    (count,) = struct.unpack_from("!H", rest, 1)
    rest, columns = rest[3:], []
    for _ in range(count):
        column, _, rest = rest[1:].partition(b"\0")
        columns.append(column.decode("utf-8", "surrogateescape"))
        rest = rest[8:]
    return Relation(oid, f"{schema.decode()}.{name.decode()}", tuple(columns))


def column(payload: dict[str, Any], name: str) -> dict[str, Any]:
    """The column of a payload by name."""
    (found,) = (entry for entry in payload["columns"] if entry["attname"] == name)
    return found


def names(payload: dict[str, Any]) -> list[str]:
    return [entry["attname"] for entry in payload["columns"]]

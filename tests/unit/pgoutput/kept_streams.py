"""A server in small: sends transactions as Postgres does, RELATION where it would come, schema messages from the trigger."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from etl.events import Event, RowChanges, Truncate
from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pgoutput.kept import Kept, placed
from etl.schema.catalog import SchemaCatalog
from etl.schema.types import TypeOptions
from etl.testing.builders import INT8, TEXT, column, table_schema
from tests.unit.pgoutput import encoder

ORDERS, OTHERS, FOREIGN = 16384, 16385, 99
NAMES = {ORDERS: "orders", OTHERS: "others", FOREIGN: "foreign"}
SCHEMAS = [
    table_schema(column("id", 1, INT8), column("a", 2), oid=oid, name=NAMES[oid]).schema
    for oid in (ORDERS, OTHERS)
]


def assembler(*oids: int, catalog: SchemaCatalog | None = None) -> Assembler:
    return Assembler(
        dict.fromkeys(oids, Lsn(0)),
        SchemaCatalog(SCHEMAS) if catalog is None else catalog,
        DdlMessages({}, allow_unsigned=True),
        lambda *_: "nobody explains it here",
        TypeOptions(),
    )


def describe(oid: int, columns: Sequence[str]) -> bytes:
    texts = [(0, name, TEXT, -1) for name in columns]
    return encoder.relation(oid, "public", NAMES[oid], [(1, "id", INT8, -1), *texts])


def schema_message(at: int, oid: int, columns: Sequence[str]) -> bytes:
    """What the trigger logs after an ALTER TABLE, unsigned."""
    described = [
        {
            "attname": name,
            "attnum": number,
            "atttypid": INT8 if number == 1 else TEXT,
            "atttypmod": -1,
            "attnotnull": number == 1,
            "default_expression": None,
        }
        for number, name in enumerate(("id", *columns), 1)
    ]
    payload = {
        "command_tag": "ALTER TABLE",
        "oid": oid,
        "nspname": "public",
        "relname": NAMES[oid],
        "columns": described,
        "identity": {
            "relreplident": "d",
            "primary_key_attnums": [1],
            "replica_identity_index_attnums": [],
        },
    }
    return encoder.message(at, "supabase_etl_ddl", json.dumps(payload).encode())


@dataclass
class Server:
    """One run of the stream; `payloads` is what was sent so far."""

    commit_lsn: int = 0x2000
    payloads: list[bytes] = field(default_factory=list)
    columns: dict[int, list[str]] = field(default_factory=lambda: {oid: ["a"] for oid in NAMES})
    _announced: dict[int, bytes] = field(default_factory=dict)
    _sent: int = 0

    def begin(self) -> None:
        self._send(encoder.begin(self.commit_lsn, xid=self.commit_lsn))

    def commit(self) -> None:
        self._send(encoder.commit(self.commit_lsn, self.commit_lsn + 8))
        self.commit_lsn += 0x1000

    def insert(self, oid: int, key: int) -> None:
        self._announce(oid)
        self._send(encoder.insert(oid, self._row(oid, key)))

    def update(self, oid: int, key: int) -> None:
        self._announce(oid)
        self._send(encoder.update(oid, self._row(oid, key)))

    def delete(self, oid: int, key: int) -> None:
        self._announce(oid)
        self._send(encoder.delete(oid, [b"%d" % key, *(None for _ in self.columns[oid])]))

    def truncate(self, *oids: int) -> None:
        for oid in oids:
            self._announce(oid)
        self._send(encoder.truncate(oids))

    def alter(self, oid: int) -> None:
        """Add a column; RELATION comes with the next row."""
        self.columns[oid] = [*self.columns[oid], f"c{len(self.columns[oid])}"]
        self._send(schema_message(self.commit_lsn - 0x800 + self._sent, oid, self.columns[oid]))

    def keepalive(self) -> None:
        self.payloads.append(encoder.keepalive(self.commit_lsn - 0x1000))

    def _row(self, oid: int, key: int) -> list[bytes]:
        return [b"%d" % key, *(b"%s%d" % (name.encode(), key) for name in self.columns[oid])]

    def _announce(self, oid: int) -> None:
        described = describe(oid, self.columns[oid])
        if self._announced.get(oid) != described:
            self._announced[oid] = described
            self._send(described)

    def _send(self, body: bytes) -> None:
        self._sent += 1
        self.payloads.append(encoder.xlog(self.commit_lsn - 0x800 + self._sent % 0x700, body))


def told(events: Iterable[Event], oid: int) -> list[tuple[object, ...]]:
    """What the events say about one table, row by row: how rows are cut into runs says nothing."""
    said: list[tuple[object, ...]] = []
    for event in events:
        if isinstance(event, RowChanges) and event.schema.schema.oid == oid:
            old = event.old.to_pylist() if event.old is not None else []
            said += [
                (lsn, ordinal, chr(op), time, event.schema.version_hash, new, old[at] if at >= 0 else None)
                for lsn, ordinal, op, time, new, at in zip(
                    event.commit_lsn.tolist(),
                    event.ordinal.tolist(),
                    event.ops.tolist(),
                    event.commit_timestamp.tolist(),
                    event.new.to_pylist(),
                    event.old_index.tolist(),
                    strict=True,
                )
            ]
        if isinstance(event, Truncate):
            said += [
                (int(event.position.commit_lsn), event.position.ordinal, "T", event.timestamp, s.version_hash)
                for s in event.schemas
                if s.schema.oid == oid
            ]
    return said


def tags(kept: Kept) -> str:
    return placed(kept)[0].tag.tobytes().decode()


def row_places(kept: Kept) -> list[tuple[int, int]]:
    """Commit LSN and ordinal of every row."""
    rows = np.flatnonzero(placed(kept)[1].is_row)
    return list(zip(kept.commit_lsn[rows].tolist(), kept.ordinal[rows].tolist(), strict=True))

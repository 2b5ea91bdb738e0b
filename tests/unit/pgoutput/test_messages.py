"""Control messages are parsed whole or refused; no count in them is believed before it fits what remains."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from etl.errors import DecodeError
from etl.lsn import Lsn
from etl.pgoutput.frames import Frames, scan
from etl.pgoutput.messages import (
    Begin,
    Begins,
    Commit,
    Commits,
    LogicalMessage,
    Origin,
    RelationColumn,
    RelationMessage,
    TruncateMessage,
    TypeMessage,
    begins,
    commits,
    control,
    parse_control,
)
from etl.schema.table import ReplicaIdentity
from tests.unit.pgoutput import encoder

AT = Lsn.parse("16/B374D848")
NOON = 946_728_000_000_000  # 2000-01-01 12:00 UTC

EXAMPLES = [
    pytest.param(encoder.begin(AT, NOON, 4711), Begin(AT, NOON, 4711), id="begin"),
    pytest.param(
        encoder.begin(2**64 - 1, 0, 2**32 - 1), Begin(Lsn(2**64 - 1), 0, 2**32 - 1), id="before 2000"
    ),
    pytest.param(encoder.begin(AT, 2**63 - 1), Begin(AT, 2**63 - 1, 1), id="the last moment of int64"),
    pytest.param(encoder.commit(AT, AT + 48, NOON), Commit(0, AT, Lsn(AT + 48), NOON), id="commit"),
    pytest.param(encoder.origin(AT, "node b"), Origin(AT, "node b"), id="origin"),
    pytest.param(
        encoder.relation(16385, "public", "Größe", [(True, "id", 20, -1), (False, "n", 1700, 655366)]),
        RelationMessage(
            16385,
            "public",
            "Größe",
            ReplicaIdentity.DEFAULT,
            (RelationColumn(True, "id", 20, -1), RelationColumn(False, "n", 1700, 655366)),
        ),
        id="relation",
    ),
    pytest.param(
        encoder.relation(1, "", "empty", [], identity=b"f"),
        RelationMessage(1, "pg_catalog", "empty", ReplicaIdentity.FULL, ()),
        id="relation without columns, in pg_catalog",
    ),
    pytest.param(
        encoder.relation(1, "s", b"caf\xe9", [(False, "ok", 25, -1)], identity=b"i"),
        RelationMessage(
            1, "s", r"caf\xe9", ReplicaIdentity.INDEX, (RelationColumn(False, "ok", 25, -1),), escaped=True
        ),
        id="relation whose name is not UTF-8",
    ),
    pytest.param(
        encoder.relation(1, "s", "t", [(2, "c", 25, -1)]),
        RelationMessage(1, "s", "t", ReplicaIdentity.DEFAULT, (RelationColumn(False, "c", 25, -1),)),
        id="a column flag we do not know is no key",
    ),
    pytest.param(encoder.type_name(16390, "app", "mood"), TypeMessage(16390, "app", "mood"), id="type"),
    pytest.param(encoder.truncate([]), TruncateMessage((), False, False), id="truncate nothing"),
    pytest.param(
        encoder.truncate([7, 2**32 - 1], cascade=True),
        TruncateMessage((7, 2**32 - 1), True, False),
        id="cascade",
    ),
    pytest.param(
        encoder.truncate([7], restart_identity=True),
        TruncateMessage((7,), False, True),
        id="restart identity",
    ),
    pytest.param(
        encoder.message(AT, "supabase_etl_ddl", b"\x00\xff{}"),
        LogicalMessage(True, AT, "supabase_etl_ddl", b"\x00\xff{}"),
        id="transactional message",
    ),
    pytest.param(
        encoder.message(AT, "", b"", transactional=False),
        LogicalMessage(False, AT, "", b""),
        id="message without prefix and content",
    ),
]


def parse(body: bytes) -> object:
    """Parse a message that stands inside other bytes, none of which may be touched."""
    around = b"\xff" * 7
    return parse_control(around + body + around, len(around), len(around) + len(body), body[0], AT)


@pytest.mark.parametrize(("body", "expected"), EXAMPLES)
def test_a_message_is_parsed(body: bytes, expected: object):
    assert parse(body) == expected


@pytest.mark.parametrize(("body", "expected"), EXAMPLES)
def test_every_truncation_is_refused(body: bytes, expected: object):
    for size in range(1, len(body)):
        with pytest.raises(DecodeError) as caught:
            parse(body[:size])
        assert caught.value.tag == chr(body[0])
        assert caught.value.lsn == AT
        assert 0 < caught.value.offset <= size


@pytest.mark.parametrize(("body", "expected"), EXAMPLES)
def test_bytes_left_over_are_refused(body: bytes, expected: object):
    with pytest.raises(DecodeError, match="1 bytes left over"):
        parse(body + b"\0")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(b"I\0\0\0\1N\0\0", "not a control message", id="a row"),
        pytest.param(b"?", "not a control message", id="an unknown tag"),
        pytest.param(encoder.relation(1, "s", "t", [], identity=b"x"), "replica identity", id="identity"),
        pytest.param(b"O" + b"\0" * 8 + b"no end", "origin name does not end", id="string without NUL"),
        pytest.param(
            struct.pack(">cQqI", b"B", 1, 2**63 - encoder.EPOCH_2000, 1),
            "timestamp out of range",
            id="timestamp after all time",
        ),
    ],
)
def test_what_the_protocol_does_not_allow_is_refused(body: bytes, said: str):
    with pytest.raises(DecodeError, match=said):
        parse(body)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(struct.pack(">cIB", b"T", 2**32 - 1, 0), id="relations of a truncate"),
        pytest.param(b"R\0\0\0\1s\0t\0d\xff\xff" + b"\0" * 20, id="columns of a relation"),
        pytest.param(b"M\1" + b"\0" * 9 + b"\xff\xff\xff\xff", id="content of a message"),
    ],
)
def test_a_count_that_cannot_fit_allocates_nothing(body: bytes):
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="not fit"):
            parse(body)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def frames_of(*bodies: bytes) -> Frames:
    return scan(encoder.chunk([encoder.xlog(AT, body) for body in bodies]))


def test_many_begins_and_commits_at_once_equal_one_at_a_time():
    bodies = [
        body
        for n in range(5)
        for body in (
            encoder.begin(2**64 - 1 - n, NOON + n, 2**32 - 1 - n),
            encoder.commit(2**64 - 1 - n, n, NOON - n, n),
        )
    ]
    frames = frames_of(*bodies)
    begun, committed = begins(frames, np.arange(0, 10, 2)), commits(frames, np.arange(1, 10, 2))
    for n in range(5):
        begin, commit = control(frames, 2 * n), control(frames, 2 * n + 1)
        assert begin == Begin(Lsn(int(begun.final_lsn[n])), int(begun.timestamp[n]), int(begun.xid[n]))
        assert commit == Commit(
            n, Lsn(int(committed.commit_lsn[n])), Lsn(int(committed.end_lsn[n])), int(committed.timestamp[n])
        )


@pytest.mark.parametrize("read", [begins, commits])
def test_of_no_frames_there_are_no_begins_and_commits(read: Callable[..., Begins | Commits]):
    assert len(read(frames_of(), np.empty(0, np.int64)).timestamp) == 0


@pytest.mark.parametrize(
    ("read", "body"),
    [
        pytest.param(begins, encoder.commit(1, 2), id="a commit is no begin"),
        pytest.param(commits, encoder.begin(1), id="a begin is no commit"),
        pytest.param(begins, encoder.begin(1) + b"\0", id="a begin that is too long"),
        pytest.param(commits, encoder.commit(1, 2) + b"\0", id="a commit that is too long"),
        pytest.param(
            begins, struct.pack(">cQqI", b"B", 1, 2**63 - encoder.EPOCH_2000, 1), id="a begin after all time"
        ),
    ],
)
def test_many_at_once_are_refused_as_one_is(read: Callable[..., Begins | Commits], body: bytes):
    good = encoder.begin(1) if read is begins else encoder.commit(1, 2)
    with pytest.raises(DecodeError) as caught:
        read(frames_of(good, body), np.arange(2))
    assert caught.value.tag == chr(body[0])
    assert caught.value.lsn == AT

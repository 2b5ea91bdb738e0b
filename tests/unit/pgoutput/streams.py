"""Hypothesis strategies: streams of messages, each with what it says, and streams that are damaged."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.encoder import UNCHANGED, Value
from tests.unit.pgoutput.reference import UNCHANGED as UNCHANGED_TEXT
from tests.unit.pgoutput.reference import Meaning

#: The relations of a stream and how many columns they have.
WIDTHS = {1: 2, 16385: 0, 16386: 1, 16387: 3, 16388: 8, 2**32 - 1: 40}

lsns = st.integers(0, 2**64 - 1)
oids = st.integers(0, 2**32 - 1)
times = st.integers(-(2**62), 2**62)
names = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
raw_values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.just(UNCHANGED),
    st.text(max_size=20).map(str.encode),
    st.binary(max_size=20),
    st.sampled_from([b"", b"t\0\0\0\0", b"n" * 40]),
)

#: An encoded message and what it says, as `reference.meaning` would put it.
Said = tuple[bytes, Meaning]


def text_of(value: Value) -> str | None:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return None if value is None else UNCHANGED_TEXT


@st.composite
def rows(draw: st.DrawFn, width: int, *, unchanged: bool = True) -> list[Value]:
    """A row; a wide one repeats a few values, which is all that drawing it is worth."""
    pool = draw(st.lists(raw_values, min_size=min(width, 1), max_size=min(width, 8)))
    row = (pool * (width // len(pool) + 1))[:width] if width else []
    return [None if value is UNCHANGED and not unchanged else value for value in row]


@st.composite
def changes(draw: st.DrawFn) -> Said:
    oid, tag = draw(st.sampled_from(sorted(WIDTHS))), draw(st.sampled_from("IUD"))
    width = WIDTHS[oid]
    new = draw(rows(width))
    old = draw(rows(width, unchanged=False))
    kind = draw(st.sampled_from([b"K", b"O"]))
    new_text, old_text = [text_of(value) for value in new], [text_of(value) for value in old]
    if tag == "I":
        return encoder.insert(oid, new), ("I", oid, new_text, None, None)
    if tag == "D":
        return encoder.delete(oid, old, old_kind=kind), ("D", oid, None, kind, old_text)
    if draw(st.booleans()):
        return encoder.update(oid, new), ("U", oid, new_text, None, None)
    return encoder.update(oid, new, old, old_kind=kind), ("U", oid, new_text, kind, old_text)


@st.composite
def begins(draw: st.DrawFn) -> Said:
    lsn, time, xid = draw(lsns), draw(times), draw(oids)
    return encoder.begin(lsn, time, xid), ("B", lsn, time, xid)


@st.composite
def commits(draw: st.DrawFn) -> Said:
    lsn, end, time = draw(lsns), draw(lsns), draw(times)
    return encoder.commit(lsn, end, time), ("C", 0, lsn, end, time)


@st.composite
def relations(draw: st.DrawFn) -> Said:
    oid, schema, name = draw(oids), draw(names), draw(names)
    identity = draw(st.sampled_from([b"d", b"f", b"i", b"n"]))
    column = st.tuples(st.booleans(), names, oids, st.integers(-(2**31), 2**31 - 1))
    columns = draw(st.lists(column, max_size=6))
    said = ("R", oid, schema or "pg_catalog", name, identity, columns)
    return encoder.relation(oid, schema, name, columns, identity), said


@st.composite
def truncates(draw: st.DrawFn) -> Said:
    cascade, restart, tables = draw(st.booleans()), draw(st.booleans()), draw(st.lists(oids, max_size=5))
    body = encoder.truncate(tables, cascade=cascade, restart_identity=restart)
    return body, ("T", cascade, restart, tables)


@st.composite
def logical_messages(draw: st.DrawFn) -> Said:
    transactional, lsn = draw(st.booleans()), draw(lsns)
    prefix, content = draw(names), draw(st.binary(max_size=40))
    body = encoder.message(lsn, prefix, content, transactional=transactional)
    return body, ("M", transactional, lsn, prefix, content)


@st.composite
def others(draw: st.DrawFn) -> Said:
    number, name, schema = draw(oids), draw(names), draw(names)
    if draw(st.booleans()):
        return encoder.origin(number, name), ("O", number, name)
    return encoder.type_name(number, schema, name), ("Y", number, schema or "pg_catalog", name)


controls = st.one_of(begins(), commits(), relations(), truncates(), logical_messages(), others())


@st.composite
def payloads(draw: st.DrawFn) -> Said:
    """A CopyData payload: a row most of the time."""
    lsn, wal_end, clock = draw(lsns), draw(lsns), draw(times)
    kind = draw(st.sampled_from("rrrrcck"))
    if kind == "k":
        asked = draw(st.booleans())
        return encoder.keepalive(lsn, clock=clock, reply_requested=asked), ("k", lsn, clock, asked)
    body, said = draw(changes() if kind == "r" else controls)
    return encoder.xlog(lsn, body, wal_end=wal_end, clock=clock), (lsn, wal_end, clock, *said)


streams = st.lists(payloads(), max_size=20)


@st.composite
def damaged_streams(draw: st.DrawFn) -> list[bytes]:
    """A stream in which one payload was cut, stretched, or had a byte changed: mostly, but not always, for the worse."""
    stream = [payload for payload, _ in draw(st.lists(payloads(), min_size=1, max_size=8))]
    victim = draw(st.integers(0, len(stream) - 1))
    stream[victim] = draw(_damaged(stream[victim]))
    return stream


def _damaged(payload: bytes) -> st.SearchStrategy[bytes]:
    places: Any = st.integers(0, len(payload) - 1)
    junk = st.one_of(
        st.binary(max_size=3), st.sampled_from([b"t", b"n", b"u", b"b", b"N", b"K", b"\xff" * 4])
    )
    return st.one_of(
        st.builds(lambda at: payload[: at + 1], places),
        st.builds(lambda at, new: payload[:at] + new + payload[at:], places, junk),
        st.builds(lambda at, new: payload[:at] + new + payload[at + len(new) :], places, junk),
    )

"""Whole streams, drawn at random: what was written is read, and what is damaged is refused and nothing else.

The judge is the reference decoder, which shares no code with the one under test.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl.errors import DecodeError
from etl.pgoutput.frames import Chunk
from tests.unit.pgoutput import encoder
from tests.unit.pgoutput.encoder import Value
from tests.unit.pgoutput.reference import MalformedError, decoded, meaning
from tests.unit.pgoutput.streams import WIDTHS, Said, damaged_streams, payloads, rows, streams


def check_like_the_reference(stream: list[bytes]) -> None:
    """Either both read the same, or both refuse."""
    try:
        expected = [meaning(payload, WIDTHS) for payload in stream]
    except MalformedError:
        with pytest.raises(DecodeError):
            decoded(encoder.chunk(stream), WIDTHS)
    else:
        assert decoded(encoder.chunk(stream), WIDTHS) == expected


@given(streams)
def test_what_was_written_is_read(stream: list[Said]):
    written, said = [payload for payload, _ in stream], [said for _, said in stream]
    assert decoded(encoder.chunk(written), WIDTHS) == said


@given(streams)
def test_the_reference_reads_it_too(stream: list[Said]):
    assert [meaning(payload, WIDTHS) for payload, _ in stream] == [said for _, said in stream]


@given(streams, st.integers(0, 20))
def test_where_a_stream_is_cut_into_chunks_does_not_matter(stream: list[Said], cut: int):
    written, said = [payload for payload, _ in stream], [said for _, said in stream]
    chunks = [encoder.chunk(written[:cut]), encoder.chunk(written[cut:])]
    assert [one for chunk in chunks for one in decoded(chunk, WIDTHS)] == said


@settings(max_examples=5)
@given(rows(1600), rows(1600, unchanged=False))
def test_the_widest_table_postgres_allows(new: list[Value], old: list[Value]):
    written = [encoder.xlog(1, encoder.insert(7, new)), encoder.xlog(2, encoder.update(7, new, old))]
    said = [meaning(payload, {7: 1600}) for payload in written]
    assert decoded(encoder.chunk(written), {7: 1600}) == said


@given(damaged_streams())
def test_a_damaged_stream_is_refused_unless_it_still_makes_sense(stream: list[bytes]):
    check_like_the_reference(stream)


@given(payloads())
def test_every_truncation_of_a_payload_is_refused(payload: Said):
    written = payload[0]
    for size in range(1, len(written)):
        with pytest.raises(DecodeError):
            decoded(encoder.chunk([written[:size]]), WIDTHS)


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=5))
def test_arbitrary_payloads(stream: list[bytes]):
    check_like_the_reference(stream)


@given(st.sampled_from("BCDIMORTUYSEAcbrPK\0"), st.binary(max_size=60))
def test_arbitrary_messages(tag: str, body: bytes):
    check_like_the_reference([encoder.xlog(1, tag.encode() + body)])


@given(st.sampled_from("IUD"), st.sampled_from(sorted(WIDTHS)), st.binary(max_size=40))
def test_arbitrary_rows(tag: str, oid: int, body: bytes):
    check_like_the_reference([encoder.xlog(1, tag.encode() + oid.to_bytes(4, "big") + body)])


@given(st.binary(max_size=200), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6))
def test_arbitrary_chunks(data: bytes, ends: list[int]):
    try:
        decoded(Chunk(data, np.array(ends, np.int64)), WIDTHS)
    except DecodeError:
        return
    assert [0, *ends] == sorted({0, *ends})
    assert max(ends, default=0) == len(data)

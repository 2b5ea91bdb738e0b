r"""One-dimensional arrays: from Postgres array text to the elements' text and the list offsets.

The text is ``{a,"b c",NULL}`` (manual, "Array Input and Output Syntax"): an element is quoted when it is empty, reads
NULL, or holds a brace, delimiter, quote, backslash or white space; inside quotes a backslash precedes ``"`` and ``\\``.
All rows are taken apart at once, by the positions of these characters in the bytes of the whole column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from etl.pgoutput.value_text import Bytes, Int32s, Mask, Rows, rows_of, spans

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _BRACKET = b'{},"\\['
_NULL_UPPER = np.frombuffer(b"NULL", np.uint8)
_UPPER = 0xDF

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Elements:
    """`text`: the elements of all rows, unquoted, typed as the input; row i has ``offsets[i]`` to ``offsets[i + 1]``."""

    text: pa.Array
    offsets: Int32s


def not_one_dimensional(text: pa.Array) -> Mask | None:
    """The rows a list cannot hold exactly: several dimensions (``{{``) or a lower bound other than 1 (``[0:1]={``)."""
    rows = rows_of(text)
    present = rows.without_nulls()
    if (present.lengths < 2).any():
        raise ValueError("not an array")
    first, second = rows.data[present.starts], rows.data[present.starts + 1]
    shaped = (first == _BRACKET) | ((first == _OPEN) & (second == _OPEN))
    if not shaped.any():
        return None
    return np.asarray(rows.of_all(shaped), np.bool_)


def elements_of(text: pa.Array) -> Elements:
    """Take apart rows that are all NULL or one-dimensional. Raises `ValueError` on text that is no array."""
    rows = rows_of(text)
    present, data = rows.without_nulls(), rows.data
    escaping = _escaping(data)
    marks, quotes = _structure(data, escaping)
    kinds = data[marks]
    _check_braces(kinds, data, present)

    # An element reaches from one mark to the next, unless the mark closes a row.
    begins = kinds[:-1] != _CLOSE
    starts, ends = marks[:-1][begins] + 1, marks[1:][begins]
    firsts = np.flatnonzero(kinds[:-1][begins] == _OPEN)
    counts = np.diff(np.append(firsts, len(starts)))
    exists = starts != ends
    counts[~exists[firsts]] -= 1
    if counts.sum() != exists.sum() or counts.min(initial=0) < 0:
        raise ValueError("an element without text")
    null = _reads_null(data, starts, ends)
    if quotes:
        quoted = data[starts] == _QUOTE
        starts, ends = starts + quoted, ends - quoted
        if 2 * quoted.sum() != quotes or (data[ends[quoted]] != _QUOTE).any():
            raise ValueError("text beside a quoted element")
    if len(escaping):
        data = np.delete(data, escaping)
        starts, ends = (bounds - np.searchsorted(escaping, bounds) for bounds in (starts, ends))
    chosen = np.flatnonzero(exists)
    child = spans(data, starts, ends, chosen, null[chosen] if null.any() else None, text.type)
    offsets = np.append(0, np.cumsum(rows.of_all(counts))).astype(np.int32)
    return Elements(child, offsets)


def _escaping(data: Bytes) -> Positions:
    """Positions of the backslashes that escape the next byte: every second one of a run is text itself."""
    backslashes = np.flatnonzero(data == _BACKSLASH)
    ordinal = np.arange(len(backslashes))
    begins_run = np.diff(backslashes, prepend=-2) != 1
    run_start = np.maximum.accumulate(np.where(begins_run, ordinal, 0))
    escaping: Positions = backslashes[(ordinal - run_start) % 2 == 0]
    return escaping


def _structure(data: Bytes, escaping: Positions) -> tuple[Positions, int]:
    """Positions of the braces and commas outside quotes, and the number of quotes that open or close an element."""
    candidates = (data == _COMMA) | (data == _OPEN) | (data == _CLOSE) | (data == _QUOTE)
    if len(escaping):
        candidates[np.minimum(escaping + 1, len(data) - 1)] = False
    marks = np.flatnonzero(candidates)
    is_quote = data[marks] == _QUOTE
    quotes = int(np.count_nonzero(is_quote))
    if quotes:
        inside = np.cumsum(is_quote, dtype=np.int32) & 1
        marks = marks[~(is_quote | (inside == 1))]
    return marks, quotes


def _check_braces(kinds: Bytes, data: Bytes, present: Rows) -> None:
    edges = (data[present.starts] == _OPEN) & (data[present.ends - 1] == _CLOSE)
    opens, closes = np.count_nonzero(kinds == _OPEN), np.count_nonzero(kinds == _CLOSE)
    if not (edges.all() and opens == closes == present.count):
        raise ValueError("not a one-dimensional array")


def _reads_null(data: Bytes, starts: Positions, ends: Positions) -> Mask:
    null: Mask = ends - starts == len(_NULL_UPPER)
    candidates = np.flatnonzero(null)
    letters = data[starts[candidates][:, None] + np.arange(len(_NULL_UPPER))] & _UPPER
    null[candidates] = (letters == _NULL_UPPER).all(axis=1)
    return null

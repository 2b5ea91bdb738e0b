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

from etl.pgoutput.value_text import Bytes, Int32s, Mask, Rows, rows_of, variable_width

_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _BRACKET = b'{},"\\['
_NULL_UPPER = np.frombuffer(b"NULL", np.uint8)
_UPPER = 0xDF

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Elements:
    """`text`: the elements of all rows, unquoted, typed as the input; row i has ``offsets[i]`` to ``offsets[i + 1]``."""

    text: pa.Array
    offsets: Int32s
    valid: Mask | None


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
    if rows.valid is None:
        return shaped
    mask = np.zeros(len(text), np.bool_)
    mask[rows.valid] = shaped
    return mask


def elements_of(text: pa.Array) -> Elements:
    """Take apart rows that are all NULL or one-dimensional. Raises `ValueError` on text that is no array."""
    rows = rows_of(text)
    data = rows.data
    dropped, quotes = _quoting(data)
    marks = _structure(data, quotes)
    kinds = data[marks]
    present = rows.without_nulls()
    _check_braces(marks, kinds, present)

    # An element reaches from one mark to the next, unless the mark closes a row.
    begins = np.flatnonzero(kinds != _CLOSE)
    starts, ends = marks[begins] + 1, marks[begins + 1]
    quoted = data[starts] == _QUOTE
    empty = starts == ends
    if (empty & ((kinds[begins] != _OPEN) | (kinds[begins + 1] != _CLOSE))).any():
        raise ValueError("an element without text")
    if (data[ends[quoted] - 1] != _QUOTE).any():
        raise ValueError("text after a closing quote")

    row_of_element = np.cumsum(kinds[begins] == _OPEN) - 1
    exists = ~empty
    counts = np.zeros(len(text), np.int64)
    counts[slice(None) if rows.valid is None else rows.valid] = np.bincount(
        row_of_element[exists], minlength=len(present.starts)
    )
    keep = np.ones(len(data), np.bool_)
    keep[marks] = False
    keep[quotes] = False
    keep[dropped] = False
    null = _reads_null(data, starts, ends, quoted)
    keep[starts[null][:, None] + np.arange(4)] = False
    kept_before = np.append(0, np.cumsum(keep, dtype=np.int32))
    child_offsets = np.append(kept_before[starts[exists]], kept_before[-1])
    not_null = ~null[exists]
    child_valid = None if not_null.all() else not_null
    child = variable_width(data[keep], child_offsets, child_valid, text.type)
    return Elements(child, np.append(0, np.cumsum(counts)).astype(np.int32), rows.valid)


def _quoting(data: Bytes) -> tuple[Positions, Positions]:
    """Positions of the escaping backslashes, and of the quotes that open or close an element."""
    backslashes = np.flatnonzero(data == _BACKSLASH)
    quotes = np.flatnonzero(data == _QUOTE)
    if len(backslashes) == 0:
        return backslashes, quotes
    # In a run of backslashes every second one is text, escaped by the one before it.
    ordinal = np.arange(len(backslashes))
    begins_run = np.append(True, np.diff(backslashes) != 1)
    run_start = np.maximum.accumulate(np.where(begins_run, ordinal, 0))
    escaping = backslashes[(ordinal - run_start) % 2 == 0]
    return escaping, np.setdiff1d(quotes, escaping + 1, assume_unique=True)


def _structure(data: Bytes, quotes: Positions) -> Positions:
    """Positions of the braces and commas outside quotes."""
    marks = np.flatnonzero((data == _COMMA) | (data == _OPEN) | (data == _CLOSE))
    if len(quotes) == 0:
        return marks
    toggles = np.zeros(len(data), np.uint8)
    toggles[quotes] = 1
    inside = np.bitwise_xor.accumulate(toggles)
    return marks[inside[marks] == 0]


def _check_braces(marks: Positions, kinds: Bytes, present: Rows) -> None:
    opens, closes = marks[kinds == _OPEN], marks[kinds == _CLOSE]
    if not (np.array_equal(opens, present.starts) and np.array_equal(closes, present.ends - 1)):
        raise ValueError("not a one-dimensional array")


def _reads_null(data: Bytes, starts: Positions, ends: Positions, quoted: Mask) -> Mask:
    null: Mask = (ends - starts == 4) & ~quoted
    candidates = np.flatnonzero(null)
    letters = data[starts[candidates][:, None] + np.arange(4)] & _UPPER
    null[candidates] = (letters == _NULL_UPPER).all(axis=1)
    return null

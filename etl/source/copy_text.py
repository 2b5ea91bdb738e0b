r"""COPY's text format in whole blocks: where its rows are, and their columns as Arrow sees them.

Text and not CSV: the server prints it faster, and it escapes every tab and line break within a value (manual, "COPY",
"Text Format"), so that a tab always ends a value, a line feed always a row, and NULL alone is ``\N``.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

#: Tag and length of a message (manual, "Message Formats").
HEADER_BYTES: Final = 5
COPY_DATA: Final = ord("d")
_LINE_FEED: Final = ord("\n")
_BACKSLASH: Final = ord("\\")
#: Three blanks and a tab, over the length of a message: the header becomes a column before the others.
_BLANK_LENGTH: Final = 0x20202009
_MEANING: Final = np.arange(256, dtype=np.uint8)
_MEANING[list(b"bfnrtv")] = list(b"\b\f\n\r\t\v")


def row_ends(data: Bytes) -> Int64s:
    """The ends of the CopyData messages at the start of `data`, up to the first that is cut off or of another kind.

    The server sends a row a message. A message ends in a line feed, and no other byte of its row is one, but the four
    bytes of its length may be; those stand at most five bytes after the end of the message before, or of another of
    them, and the end of a message at least six after both.
    """
    feeds = np.flatnonzero(data == _LINE_FEED)
    ends = feeds[np.diff(feeds, prepend=-1) > HEADER_BYTES] + 1
    if not len(ends):
        return ends
    starts = np.concatenate(([0], ends[:-1]))
    whole = (data[starts] == COPY_DATA) & (starts + 1 + _lengths(data)[starts + 1] == ends)
    return ends if whole.all() else ends[: int(whole.argmin())]


def blank_headers(data: Bytes, ends: Int64s) -> None:
    """Turn CopyData messages that end at `ends` into lines, each with one more column before the others, in place."""
    _lengths(data)[np.concatenate(([0], ends[:-1])) + 1] = _BLANK_LENGTH


def _lengths(data: Bytes) -> npt.NDArray[np.uint32]:
    """The four bytes from any place on as one number."""
    return np.ndarray((len(data) - 3,), ">u4", data, 0, (1,))


def parse(lines: pa.Buffer, ncols: int, column_type: pa.DataType, *, skipped: int) -> tuple[pa.Array, ...]:
    """The last `ncols` columns of lines in text format that have `skipped` more before them; `ncols` is not 0."""
    names = [str(place) for place in range(skipped + ncols)]
    table = pyarrow.csv.read_csv(
        pa.BufferReader(lines),
        read_options=pyarrow.csv.ReadOptions(
            column_names=names, use_threads=False, block_size=max(len(lines) + 1, 1 << 16)
        ),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter="\t", quote_char=False, double_quote=False, ignore_empty_lines=False
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            include_columns=names[skipped:],
            column_types=dict.fromkeys(names, column_type),
            # the server has converted to UTF-8 and so knows it is
            check_utf8=False,
            null_values=["\\N"],
            strings_can_be_null=True,
        ),
    )
    return tuple(unescaped(_one_array(column)) for column in table.columns)


def unescaped(text: pa.Array) -> pa.Array:
    """Values as they are, of values in text format: a backslash and the next character stand for one character."""
    offsets, data = _contents(text)
    backslashes = np.flatnonzero(data == _BACKSLASH)
    if not len(backslashes):
        return text
    # an escaped backslash opens no escape: of a run of them every other one does, and no run is left half open by a value
    opens_run = np.diff(backslashes, prepend=-2) != 1
    place = np.arange(len(backslashes))
    in_run = place - np.maximum.accumulate(np.where(opens_run, place, 0))
    escapes = backslashes[in_run % 2 == 0]
    data = data.copy()
    data[escapes + 1] = _MEANING[data[escapes + 1]]
    kept = np.delete(data, escapes)
    ends = offsets - np.searchsorted(escapes, offsets).astype(np.int32)
    buffers = [text.buffers()[0], pa.py_buffer(ends), pa.py_buffer(kept)]
    return pa.Array.from_buffers(text.type, len(text), buffers)


def _contents(text: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Offsets and bytes of an array that begins where its buffers do."""
    _, offsets, data = text.buffers()
    if offsets is None or data is None:
        return np.zeros(1, np.int32), np.empty(0, np.uint8)
    found = np.frombuffer(offsets, np.int32)[: len(text) + 1]
    return found, np.frombuffer(data, np.uint8)[: int(found[-1])]


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

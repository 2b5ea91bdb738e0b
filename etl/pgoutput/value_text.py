"""Columns of text as numpy sees them: the bytes of all rows side by side, and where each row starts.

Every helper takes an Arrow string or binary array of n values; offsets are bytes, masks have n entries.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Rows:
    """The bytes of n rows without gaps: row i is ``data[offsets[i]:offsets[i + 1]]``, empty where NULL.

    `valid` is None when no row is NULL. `data` is read-only and may be shared with Arrow.
    """

    data: Bytes
    offsets: Int32s
    valid: Mask | None

    @property
    def starts(self) -> Int32s:
        """First byte of each row."""
        return self.offsets[:-1]

    @property
    def count(self) -> int:
        """The number of rows, n."""
        return len(self.offsets) - 1

    @property
    def ends(self) -> Int32s:
        """One past the last byte of each row."""
        return self.offsets[1:]

    @property
    def lengths(self) -> Int32s:
        """Bytes of each row."""
        return np.diff(self.offsets)

    @property
    def has_letters(self) -> bool:
        """True when any row holds a letter: in a column of numbers or times, a special value.

        Asked before Arrow parses a column: it reports every value it cannot read, at a microsecond each.
        """
        return bool(self.data.max(initial=0) >= ord("A"))

    def without_nulls(self) -> Rows:
        """The rows that are not NULL, over the same bytes."""
        if self.valid is None:
            return self
        return Rows(self.data, np.append(self.starts[self.valid], self.offsets[-1]), None)

    def of_all(self, present: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        """Spread one value per row that is not NULL over all rows, 0 where NULL."""
        if self.valid is None:
            return present
        values = np.zeros(self.count, present.dtype)
        values[self.valid] = present
        return values


def rows_of(text: pa.Array) -> Rows:
    """See `text` as `Rows`; copies only when NULL rows hide bytes between the others."""
    valid = validity(text)
    if valid is not None:
        offsets = _offsets(text)
        if np.diff(offsets)[~valid].any():
            text = text.fill_null(b"" if pa.types.is_binary(text.type) else "")
    offsets = _offsets(text)
    data_buffer = text.buffers()[2]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.empty(0, np.uint8)
    first = int(offsets[0])
    return Rows(data[first : int(offsets[-1])], offsets - np.int32(first) if first else offsets, valid)


def _offsets(text: pa.Array) -> Int32s:
    offsets = text.buffers()[1]
    if offsets is None or len(text) == 0:
        return np.zeros(1, np.int32)
    return np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1]


def validity(array: pa.Array) -> Mask | None:
    """True where a value is; None when nothing is NULL."""
    if array.null_count == 0:
        return None
    mask: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def validity_buffer(valid: Mask | None) -> pa.Buffer | None:
    """The Arrow bitmap of a mask."""
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def fixed_width(values: npt.NDArray[np.generic], valid: Mask | None, target: pa.DataType) -> pa.Array:
    """An Arrow array of a fixed-width type over the raw `values`."""
    return pa.Array.from_buffers(
        target, len(values), [validity_buffer(valid), pa.py_buffer(np.ascontiguousarray(values))]
    )


def variable_width(
    data: Bytes, offsets: npt.NDArray[np.signedinteger], valid: Mask | None, target: pa.DataType
) -> pa.Array:
    """An Arrow string or binary array over raw bytes and n + 1 offsets."""
    buffers = [
        validity_buffer(valid),
        pa.py_buffer(np.ascontiguousarray(offsets, np.int32)),
        pa.py_buffer(data),
    ]
    return pa.Array.from_buffers(target, len(offsets) - 1, buffers)


def spans(
    data: Bytes,
    starts: npt.NDArray[np.signedinteger],
    ends: npt.NDArray[np.signedinteger],
    rows: npt.NDArray[np.int64],
    null: Mask | None,
    target: pa.DataType,
) -> pa.Array:
    """Copy the chosen `rows` of the ascending, disjoint spans ``data[starts[i]:ends[i]]`` into a new array.

    `null` says which of the chosen rows are NULL instead.
    """
    # Spans and the gaps between them are the rows of one array without gaps, of which Arrow takes every other one.
    bounds = np.empty(2 * len(starts) + 1, np.int32)
    bounds[0:-1:2] = starts
    bounds[1::2] = ends
    bounds[-1] = len(data)
    both = variable_width(data, bounds, None, target)
    return both.take(pa.array(rows * 2, mask=null))


def as_string(text: pa.Array) -> pa.Array:
    """The same bytes typed as string, unchecked: only for parsers that refuse anything but ASCII."""
    return text.view(pa.string()) if pa.types.is_binary(text.type) else text


def select(text: pa.Array, keep: pa.Array) -> pa.Array:
    """`text` where `keep` is true, NULL elsewhere."""
    return pc.if_else(keep, text, pa.scalar(None, text.type))


def rows_where(mask: pa.Array) -> npt.NDArray[np.int64]:
    """Ascending row numbers where an Arrow mask is true."""
    rows: npt.NDArray[np.int64] = np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))  # noqa: FBT003
    return rows


def utf8(text: pa.Array) -> tuple[pa.Array, Mask | None]:
    r"""The text as a string array, and the mask of rows whose invalid bytes were replaced by ``\xNN``.

    Nothing is copied when all of it is UTF-8.
    """
    if not pa.types.is_binary(text.type):
        return text, None
    try:
        return text.cast(pa.string()), None
    except pa.ArrowInvalid:
        return _escape_invalid(text)


def _escape_invalid(text: pa.Array) -> tuple[pa.Array, Mask]:
    rows = rows_of(text)
    above_ascii = np.concatenate(([0], np.cumsum(rows.data >= 0x80)))
    suspects = np.flatnonzero(above_ascii[rows.ends] != above_ascii[rows.starts])
    escaped = np.zeros(len(text), np.bool_)
    values = text.to_pylist()
    for row in suspects:
        raw = values[row]
        values[row] = raw.decode("utf-8", "backslashreplace").encode()
        escaped[row] = values[row] != raw
    return pa.array(values, pa.binary()).cast(pa.string()), escaped

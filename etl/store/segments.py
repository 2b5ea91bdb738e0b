"""Files of records on local disk: one record behind the other, each checked, only the last of which can be torn.

A record is a header and a payload. The header: u32 length of the payload, u32 CRC-32 of the payload, u8 flags, u32 CRC-32
of the header so far; little-endian. A record is on disk before the next is written, so a crash tears the last at most:
then the file ends inside it, its payload does not match, or its header was never written and reads as zeros. Anything
else is damage, and damage is told, never cut away: the header has a checksum of its own so that a wrong length is not
taken for a torn end.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import IO, Final

from etl.errors import BacklogDamagedError, BacklogError, BacklogFullError
from etl.telemetry.pulse import Awaited, waiting

_HEAD: Final = struct.Struct("<IIB")
_CHECK: Final = struct.Struct("<I")
_HEADER_SIZE: Final = _HEAD.size + _CHECK.size
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@dataclass(frozen=True, slots=True)
class Record:
    """A whole record; `end` is the offset behind it in its file."""

    flags: int
    payload: bytes
    end: int


class SegmentFile:
    """A file that records are added to. Raises `OSError`; what a failed write left is cut off again."""

    def __init__(self, path: Path) -> None:
        self._file = FileIO(path, "ab")
        self.size = os.fstat(self._file.fileno()).st_size

    def add(self, flags: int, payload: bytes) -> None:
        """Write a record; it is on disk when this returns."""
        head = _HEAD.pack(len(payload), zlib.crc32(payload), flags)
        data = memoryview(head + _CHECK.pack(zlib.crc32(head)) + payload)
        written = 0
        try:
            while written < len(data):
                written += self._file.write(data[written:]) or 0
            os.fsync(self._file.fileno())
        except OSError:
            with suppress(OSError):
                self._file.truncate(self.size)
            raise
        self.size += len(data)

    def cut(self, size: int) -> None:
        """Drop everything from this offset on; durable with the next record, before which it may come back as it was."""
        self._file.truncate(size)
        self.size = size

    def close(self) -> None:
        """Close the file; adding to it is over."""
        self._file.close()


def read_records(path: Path, start: int, stop: int, *, torn: bool = False) -> Iterator[Record]:
    """The records between two offsets. With `torn` the last may be torn: then it is left out.

    Raises `BacklogError` for a damaged record, `OSError` for a file that cannot be read.
    """
    at = start
    with path.open("rb") as file:
        file.seek(start)
        while at < stop:
            record, is_torn = _read(file, at, stop)
            if record is None:
                if torn and is_torn:
                    return
                raise BacklogDamagedError(
                    f"the backlog in {path.parent} is damaged: {path.name}, byte {at}",
                    hint="the table is copied anew; see whether the disk is sound",
                )
            yield record
            at = record.end


def _read(file: IO[bytes], at: int, stop: int) -> tuple[Record | None, bool]:
    """The record at `at`, or None and whether a crash explains it."""
    header = file.read(_HEADER_SIZE)
    if len(header) < _HEADER_SIZE:
        return None, True
    length, checksum, flags = _HEAD.unpack_from(header)
    if _CHECK.unpack_from(header, _HEAD.size) != (zlib.crc32(header[: _HEAD.size]),):
        return None, not any(header)
    end = at + _HEADER_SIZE + length
    payload = file.read(length)
    if len(payload) < length or zlib.crc32(payload) != checksum:
        return None, end >= stop
    return Record(flags, payload, end), False


def sync_folder(folder: Path) -> None:
    """Make the names in this folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a small file as a whole: after a crash it is there with all of `content`, or as it was before."""
    new = path.with_name(f"{path.name}.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_folder(path.parent)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Raise `BacklogError` for an `OSError`, and `BacklogFullError` where the disk is full."""
    try:
        with waiting(Awaited.DISK):
            yield
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise BacklogFullError(
                f"no space left to keep changes in {folder}",
                hint="free space on that disk: nothing kept was lost, and the pipeline goes on by itself",
            ) from error
        raise BacklogError(
            f"the backlog in {folder} cannot be used: {error.strerror}",
            hint="see that the folder is there and that etl may read and write it",
        ) from error

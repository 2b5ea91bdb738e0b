"""Changes of one table that cannot be applied now, on local disk, so that the replication slot can move on.

Theory of operation. A table whose copy runs, that failed or that is paused gets no changes at the destination. What the
stream brings for it meanwhile (`etl.pgoutput.kept`) is appended here, and only when it is on disk may the server be told
that it is no longer needed. Later it is read in order, decoded, applied and released.

Durable are whole transactions only. A record ends where a transaction ends, unless it is marked as a part: then the
transaction goes on in the next record. Frames are held in memory until their transaction has ended (`complete`) and are
written by `sync`; should they outgrow the budget before, they are spilled as parts. Parts that no end followed are
invisible to `read`, and dropped by `rewind` and at opening: the slot has not moved beyond a transaction that did not end,
so the stream brings it again, whole. For the same reason transactions come by again that are stored here already; they
end at or below `last_commit_lsn` and are dropped. A spill keeps the last frame in memory, so that the record which ends
the transaction is never empty.

Records stand in segments of about 64 MiB. A segment holds whole transactions, however long, and begins with the RELATION
that holds for its first row: whatever segments before it are gone, it can be decoded. So what was read and is durable at
the destination is deleted segment by segment. How far inside a segment is known in memory only; after a crash it is read
again from its start, and the destination's watermark drops what it has.

A backlog has an identity, made by `begin` and stored by the caller where the table's state is. A folder that was lost,
emptied or put in the place of another does not have it: then changes are missing, and the table has to be copied anew.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from etl.errors import BacklogDamagedError, BacklogError
from etl.lsn import Lsn
from etl.pgoutput.kept import Kept, concat, from_bytes, to_bytes
from etl.store.segments import (
    Record,
    SegmentFile,
    disk_errors,
    read_records,
    sync_folder,
    write_durably,
)

#: The newest format of segments and records that this code reads, and the one it writes.
FORMAT: Final = 1

SEGMENT_BYTES: Final = 64 << 20
SPILL_BYTES: Final = 16 << 20

_ABOUT = "backlog.json"
_SUFFIX = ".seg"
_PART = 1  # the last transaction of the record goes on in the next one


class Backlogs:
    """The backlogs of one pipeline, one folder a table, named after its oid.

    Methods raise `BacklogError` where the disk fails, `BacklogFullError` where it is full.
    """

    def __init__(
        self, folder: Path, *, segment_bytes: int = SEGMENT_BYTES, spill_bytes: int = SPILL_BYTES
    ) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._spill_bytes = spill_bytes

    def begin(self, oid: int) -> str:
        """Make an empty backlog in place of any older one; returns its identity."""
        self.drop(oid)
        folder, identity = self._path(oid), uuid.uuid4().hex
        with disk_errors(folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
            write_durably(folder / _ABOUT, orjson.dumps({"format": FORMAT, "identity": identity}))
            sync_folder(self._folder)
        return identity

    def open(self, oid: int, identity: str) -> Backlog | None:
        """The table's backlog, or None when it is not there or another one is: then changes are missing.

        Raises `BacklogError` when it is damaged or of a newer format. One at a time may be open.
        """
        folder = self._path(oid)
        with disk_errors(folder):
            if not (folder / _ABOUT).is_file():
                return None
            about = _read_about(folder)
            if about.get("identity") != identity:
                return None
            if about.get("format") != FORMAT:
                raise BacklogError(
                    f"the backlog in {folder} has format {about.get('format')}, this etl reads {FORMAT}",
                    hint="run the version of etl that wrote it, or copy the table anew",
                )
            return Backlog(folder, segment_bytes=self._segment_bytes, spill_bytes=self._spill_bytes)

    def drop(self, oid: int) -> None:
        """Delete the table's backlog; no error when it has none."""
        folder = self._path(oid)
        with disk_errors(folder):
            if folder.exists():
                # first, so that what is half deleted is not taken for a backlog
                (folder / _ABOUT).unlink(missing_ok=True)
                shutil.rmtree(folder)

    def drop_unknown(self, oids: Collection[int]) -> None:
        """Delete the backlogs of all other tables."""
        for oid in self.oids() - set(oids):
            self.drop(oid)

    def oids(self) -> set[int]:
        """The tables that have a folder here."""
        with disk_errors(self._folder):
            if not self._folder.is_dir():
                return set()
            return {int(path.name) for path in self._folder.iterdir() if path.name.isdecimal()}

    @property
    def nbytes(self) -> int:
        """Bytes on disk. May be asked from another thread than those that use the backlogs."""
        total = 0
        with disk_errors(self._folder):
            for path in self._folder.glob(f"*/*{_SUFFIX}"):
                with suppress(FileNotFoundError):
                    total += path.stat().st_size
        return total

    def _path(self, oid: int) -> Path:
        return self._folder / str(oid)


class Backlog:
    """The backlog of one table, used by one thread. After an error close it and open it again.

    Open or `rewind` it for each run of the stream: what is appended then begins with a RELATION, or follows on one in
    the same run. Methods raise `BacklogError`, and `BacklogFullError` where the disk is full.
    """

    def __init__(self, folder: Path, *, segment_bytes: int, spill_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._spill_bytes = spill_bytes
        self._held: list[Kept] = []
        self._complete = 0
        self._last_commit_lsn = 0
        self._has_parts = False
        self._relation: bytes | None = None  # the last one that was stored, or dropped as stored already
        self._file: SegmentFile | None = None
        self._sizes = self._find_segments()
        self._last = max(self._sizes, default=0)
        self._visible = 0  # where the last whole transaction of the last segment ends
        self._recover()
        self._released = self._read = (min(self._sizes, default=0), 0)

    @property
    def last_commit_lsn(self) -> Lsn:
        """The commit LSN of the last whole transaction that was stored since opening or is on disk; 0 for none."""
        return Lsn(self._last_commit_lsn)

    @property
    def is_empty(self) -> bool:
        """True when everything appended was read and released."""
        return not self._sizes and not self._held

    @property
    def nbytes(self) -> int:
        """Bytes on disk and in memory."""
        return sum(self._sizes.values()) + self._held_bytes

    def append(self, kept: Kept) -> None:
        """Take what the stream brought next. What is stored already is dropped."""
        stored = int(np.searchsorted(kept.commit_lsn, np.uint64(self._last_commit_lsn), "right"))
        if stored:
            self._relation = kept.slice(0, stored).relation or self._relation
        if stored < len(kept):
            self._held.append(kept.slice(stored))
        if self._held_bytes >= self._spill_bytes:
            self._spill()

    def complete(self, upto_commit_lsn: Lsn) -> None:
        """The transactions that commit at or below this have been appended as a whole."""
        self._complete = max(self._complete, upto_commit_lsn)

    def sync(self) -> None:
        """Everything appended of complete transactions is on disk when this returns."""
        if not self._held or self._held[0].commit_lsn[0] > self._complete:
            return
        held = concat(self._held)
        ended = int(np.searchsorted(held.commit_lsn, np.uint64(self._complete), "right"))
        self._store(held.slice(0, ended))
        self._held = [held.slice(ended)] if ended < len(held) else []

    def rewind(self) -> None:
        """The stream broke and begins anew: forget the transactions that did not end."""
        self.sync()
        self._held = []
        with disk_errors(self._folder):
            self._drop_parts()

    def read(self, max_bytes: int) -> Kept | None:
        """The oldest stored frames that were not released, or None: about `max_bytes` in memory, at least one record.

        Ends inside a transaction where it is stored in parts. Until `release` it gives the same again.
        """
        parts: list[Kept] = []
        size, self._read = 0, self._released
        with disk_errors(self._folder):
            for number, record in self._stored():
                self._read = (number, record.end)
                parts.append(self._decode(record))
                size += parts[-1].nbytes
                if size >= max_bytes:
                    break
        return concat(parts) if parts else None

    @property
    def has_parts(self) -> bool:
        """True while the transaction that has not ended is too long to be held in memory."""
        return self._has_parts

    def read_open(self) -> Kept | None:
        """What is held of transactions that are not stored, or None; once `read` gives nothing it is all there is."""
        return concat(self._held) if self._held else None

    def release(self) -> None:
        """What `read` gave last is durable at the destination: delete the segments that lie behind it."""
        self._released = self._read
        with disk_errors(self._folder):
            for number in list(self._sizes):
                if (number, self._sizes[number]) <= self._released:
                    self._delete(number)

    def reread(self) -> None:
        """Read again from the start of the oldest segment: a new assembler needs its RELATION and whole transactions."""
        self._released = self._read = (min(self._sizes, default=0), 0)

    def close(self) -> None:
        """Close the files. What was not stored is gone; the stream brings it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    # --- writing --------------------------------------------------------------------------------------------------

    @property
    def _held_bytes(self) -> int:
        return sum(kept.nbytes for kept in self._held)

    def _spill(self) -> None:
        """Bring the memory held below the budget: store whole transactions, and of the last one what is there."""
        # the transactions before the last have ended, else it could not have begun
        self.complete(Lsn(int(self._held[-1].commit_lsn[-1]) - 1))
        self.sync()
        if self._held_bytes < self._spill_bytes:
            return
        held = concat(self._held)
        if len(held) > 1:
            self._store(held.slice(0, -1), part=True)
            self._held = [held.slice(-1)]

    def _store(self, kept: Kept, *, part: bool = False) -> None:
        with disk_errors(self._folder):
            file = self._segment()
            if not file.size:
                kept = kept.led_by(self._relation)
            file.add(_PART * part, to_bytes(kept))
        self._sizes[self._last] = file.size
        self._has_parts = part
        self._relation = kept.relation or self._relation
        if not part:
            self._visible = file.size
            self._last_commit_lsn = int(kept.commit_lsn[-1])

    def _segment(self) -> SegmentFile:
        """The file to write to: a new one where the last is long enough and no transaction goes on in it."""
        size = self._sizes.get(self._last)
        if size is None or (size >= self._segment_bytes and not self._has_parts):
            self.close()
            self._last += 1
            self._sizes[self._last] = self._visible = 0
        return self._writer()

    def _writer(self) -> SegmentFile:
        if self._file is None:
            self._file = SegmentFile(self._path(self._last))
            if not self._file.size:
                sync_folder(self._folder)
        return self._file

    def _drop_parts(self) -> None:
        """Cut the last segment where its last whole transaction ends; a segment without one goes."""
        self._has_parts = False
        if self._last not in self._sizes:
            return
        if self._visible == 0:
            self._delete(self._last)
            self._last -= 1
            self._visible = self._sizes.get(self._last, 0)
        elif self._visible < self._sizes[self._last]:
            self._writer().cut(self._visible)
            self._sizes[self._last] = self._visible

    def _delete(self, number: int) -> None:
        if number == self._last:
            self.close()
        self._path(number).unlink(missing_ok=True)
        del self._sizes[number]

    # --- reading --------------------------------------------------------------------------------------------------

    def _stored(self) -> Iterator[tuple[int, Record]]:
        """The records of whole transactions that were not released, each with the number of its segment."""
        first, offset = self._released
        for number, size in self._sizes.items():
            start = offset if number == first else 0
            stop = self._visible if number == self._last else size
            for record in read_records(self._path(number), start, stop):
                yield number, record

    def _decode(self, record: Record) -> Kept:
        try:
            return from_bytes(record.payload)
        except ValueError as error:
            raise BacklogDamagedError(
                f"a record of the backlog in {self._folder} cannot be read",
                hint="the table is copied anew; see whether the disk is sound",
            ) from error

    def _recover(self) -> None:
        """Learn what the last whole transaction is; cut off what a crash left unfinished."""
        newest, torn = None, True
        while self._sizes and newest is None:
            for record in read_records(self._path(self._last), 0, self._sizes[self._last], torn=torn):
                newest = newest if record.flags & _PART else record
            self._visible = newest.end if newest is not None else 0
            self._drop_parts()
            torn = False
        if newest is not None:
            self._last_commit_lsn = int(self._decode(newest).commit_lsn[-1])

    def _find_segments(self) -> dict[int, int]:
        """Size by number, ascending. Raises `BacklogError` when one in the midst is gone."""
        numbers = sorted(int(path.stem) for path in self._folder.glob(f"*{_SUFFIX}"))
        sizes = {number: self._path(number).stat().st_size for number in numbers}
        if sizes and len(sizes) != max(sizes) - min(sizes) + 1:
            raise BacklogDamagedError(
                f"a segment of the backlog in {self._folder} is gone",
                hint="the table is copied anew; see whether the disk is sound",
            )
        return sizes

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}{_SUFFIX}"


def _read_about(folder: Path) -> dict[str, object]:
    try:
        about = orjson.loads((folder / _ABOUT).read_bytes())
    except orjson.JSONDecodeError:
        about = None
    if not isinstance(about, dict):
        raise BacklogDamagedError(
            f"{folder / _ABOUT} cannot be read",
            hint="the table is copied anew; see whether the disk is sound",
        )
    return about

"""A share of a table's copy brought to the destination: read by the daemon, or by workers of the destination."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from etl.destinations.base import DistributedCopy, FinishedRange
from etl.destinations.copy_writer import CopyWriter
from etl.errors import DestinationError, SnapshotOutdatedError, SourceUnavailableError
from etl.pipeline.context import PipelineContext
from etl.pipeline.copied_rows import CopiedRange
from etl.pipeline.copy_reader import SnapshotReader
from etl.pipeline.copy_schedule import ReadShare, Snapshot
from etl.pipeline.range_reader import SnapshotRanges
from etl.source.copy_plan import CopyRange
from etl.source.copy_range import read_range

_log = structlog.get_logger()
#: A share whose connection broke is read again this often before its table waits for a new snapshot.
_READS = 3
#: More of a range is not held in memory.
_HELD_BYTES = 256 << 20


class ShareCopier(ABC):
    """Copies shares for one thread."""

    def __init__(self, context: PipelineContext, writer: CopyWriter) -> None:
        self._context = context
        self._writer = writer

    def copy(self, share: ReadShare, is_over: Callable[[], bool]) -> Sequence[FinishedRange] | None:
        """The ranges, which are at the destination now; None when it `is_over` meanwhile.

        Raises `SourceError`, also when the connection breaks again and again, `DestinationError` and
        `ValueConversionError`.
        """
        for attempt in range(1, _READS + 1):
            if is_over():
                return None
            try:
                return self._copy(share, is_over)
            except SnapshotOutdatedError:
                raise
            except SourceUnavailableError:
                if attempt == _READS:
                    raise
                _log.warning(
                    "copy_range_read_again",
                    table=share.copy.table.qualified_name,
                    ranges=[part.number for part in share.parts],
                )
        raise AssertionError("unreachable")

    @abstractmethod
    def _copy(self, share: ReadShare, is_over: Callable[[], bool]) -> Sequence[FinishedRange] | None:
        """One attempt; nothing is written by one that raises `SourceUnavailableError`."""


class ByDaemon(ShareCopier):
    """Each range goes through this thread's connection. It is written only when it was read whole, or is very large."""

    def __init__(self, context: PipelineContext, writer: CopyWriter, reader: SnapshotReader) -> None:
        super().__init__(context, writer)
        self._reader = reader

    def _copy(self, share: ReadShare, is_over: Callable[[], bool]) -> Sequence[FinishedRange] | None:
        finished = []
        for part in share.parts:
            copied = CopiedRange(share.schema, self._context.type_options)
            try:
                if not self._read(share, part, copied, is_over):
                    return None
            except SourceUnavailableError as error:
                self._reader.close()
                if copied.is_begun:
                    raise SnapshotOutdatedError(
                        f"the connection broke in range {part.number} after a part of it was written",
                        hint="the table is copied anew",
                        table=share.copy.table.qualified_name,
                    ) from error
                raise
            self._write(share, copied)
            finished.append(FinishedRange(part.number, copied.rows, copied.nbytes))
        return finished

    def _read(
        self, share: ReadShare, part: CopyRange, copied: CopiedRange, is_over: Callable[[], bool]
    ) -> bool:
        """Read the range; False when it is over meanwhile."""
        table, columns = share.copy.table, share.schema.columns
        blocks = read_range(self._reader.connection(), self._context.parameters, table, part, columns)
        with ExitStack() as closing:
            closing.callback(blocks.close)
            for block in blocks:
                copied.add(block)
                if is_over():
                    return False
                if copied.held_bytes >= _HELD_BYTES:
                    self._write(share, copied)
        return not is_over()

    def _write(self, share: ReadShare, copied: CopiedRange) -> None:
        for batch in copied.batches():
            self._writer.copy_rows(share.schema, batch)


class ByExecutors(ShareCopier):
    """The destination's workers read all ranges of a share side by side, and write them as one."""

    def __init__(self, context: PipelineContext, writer: CopyWriter, snapshot: Snapshot) -> None:
        super().__init__(context, writer)
        self._snapshot = snapshot

    def _copy(self, share: ReadShare, is_over: Callable[[], bool]) -> Sequence[FinishedRange] | None:
        context = self._context
        read = SnapshotRanges(
            context.parameters,
            f"table_sync:{context.pipeline_id}",
            self._snapshot.name,
            share.copy.table,
            share.schema,
            {part.number: part for part in share.parts},
            context.type_options,
        )
        numbers = range(share.parts[0].number, share.parts[-1].number + 1)
        parallel = context.config.table_sync.connections_per_table
        try:
            return self._writer.copy_ranges(share.schema, DistributedCopy(read, numbers, parallel))
        except DestinationError:
            # that is how work that is interrupted ends
            if is_over():
                return None
            raise

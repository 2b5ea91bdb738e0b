"""The stream as seen by those who let tables join and leave it."""

from __future__ import annotations

from typing import Protocol

from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler


class StreamRestart(Exception):  # noqa: N818 -- not an error: the stream begins again at the durable position
    """Tables were taken out of the stream, and what is not durable must come once more."""


class LiveStream(Protocol):
    """The apply worker, as far as tables join and leave it."""

    @property
    def received(self) -> Lsn:
        """How far the stream was decoded."""

    def adopt(self, oid: int, assembler: Assembler) -> None:
        """Apply the table's changes from the next chunk on, as `assembler` would."""

    def release(self, oid: int) -> None:
        """Forget the table, and what was collected of it and not written."""

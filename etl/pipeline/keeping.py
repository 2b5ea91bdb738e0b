"""The tables whose changes are kept in a backlog instead of being applied: they are copied, paused, or have failed."""

from __future__ import annotations

from collections.abc import Mapping

from etl.lsn import Lsn
from etl.pgoutput.frames import Frames
from etl.pgoutput.kept import Keeper
from etl.pgoutput.transactions import Placement
from etl.store.backlog import Backlog, Backlogs
from etl.telemetry.failpoints import failpoint


class Keeping:
    """Used by the pipeline's main thread only. Lives longer than a run of the stream."""

    def __init__(self, backlogs: Backlogs, max_bytes: int) -> None:
        """`max_bytes`: how much one table may have on disk."""
        self._backlogs = backlogs
        self._max_bytes = max_bytes
        self._open: dict[int, Backlog] = {}
        self._keeper = Keeper()
        self._unsynced = False

    def __contains__(self, oid: int) -> bool:
        return oid in self._open

    @property
    def tables(self) -> Mapping[int, Backlog]:
        """Oid → backlog."""
        return self._open

    @property
    def is_unsynced(self) -> bool:
        """True when something was kept that is not durable yet."""
        return self._unsynced

    def begin(self, oid: int) -> str:
        """Keep the table's changes from the next chunk on; returns the identity of the new, empty backlog."""
        self.end(oid)
        identity = self._backlogs.begin(oid)
        self.resume(oid, identity)
        return identity

    def resume(self, oid: int, identity: str) -> bool:
        """Go on with the backlog of an earlier run; False when it is not there, so that changes are missing."""
        backlog = self._backlogs.open(oid, identity)
        if backlog is None:
            return False
        self._open[oid] = backlog
        return True

    def end(self, oid: int) -> None:
        """Keep no more, and delete what was kept."""
        backlog = self._open.pop(oid, None)
        if backlog is not None:
            backlog.close()
        self._backlogs.drop(oid)

    def take(self, frames: Frames, placement: Placement) -> int:
        """Keep what a chunk has for these tables; to be called for every chunk of a run. Returns the bytes kept."""
        kept = self._keeper.take(frames, placement, self._open.keys())
        for oid, changes in kept.items():
            self._open[oid].append(changes)
            self._unsynced = True
        return sum(changes.nbytes for changes in kept.values())

    def sync(self, commit_lsn: Lsn) -> None:
        """Everything kept of transactions that commit at or below `commit_lsn` is durable on return."""
        if self._unsynced:
            failpoint("backlog.before_sync")
            for backlog in self._open.values():
                backlog.complete(commit_lsn)
                backlog.sync()
            failpoint("backlog.after_sync")
            self._unsynced = False

    def new_run(self) -> None:
        """The stream starts again, and sends again what is not durable."""
        self._keeper = Keeper()
        self._unsynced = False
        for backlog in self._open.values():
            backlog.rewind()

    def overflowing(self) -> list[int]:
        """The tables that have more on disk than they may."""
        return [oid for oid, backlog in self._open.items() if backlog.nbytes > self._max_bytes]

    def close(self) -> None:
        """Close the files; they stay."""
        for backlog in self._open.values():
            backlog.close()
        self._open.clear()

"""Dropping schema versions that nothing can ask for any more, at most once an hour."""

from __future__ import annotations

from collections.abc import Callable, Collection

import structlog

from etl.lsn import Lsn, SnapshotId
from etl.store.base import StateStore

_log = structlog.get_logger()
INTERVAL_S = 3600.0


class Pruner:
    """Used by the pipeline's main thread only. The first pruning is due at once.

    `oids` are the tables that stream: a backlog may need older versions.
    """

    def __init__(
        self, store: StateStore, oids: Callable[[], Collection[int]], clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._oids = oids
        self._clock = clock
        self._due = clock()

    def run_if_due(self, flushed: Lsn) -> None:
        """Prune below the durable position: a replay starts there and never earlier."""
        if self._clock() < self._due:
            return
        self._due = self._clock() + INTERVAL_S
        below = SnapshotId(flushed, Lsn(0))
        pruned = sum(self._store.prune_schemas(oid, below) for oid in self._oids())
        if pruned:
            _log.info("schema_versions_pruned", versions=pruned, lsn=str(flushed))

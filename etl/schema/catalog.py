"""The schema versions of all tables in memory, each valid from its `SnapshotId` until the next."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter

from etl.lsn import SnapshotId
from etl.schema.table import TableSchema

_by_snapshot = attrgetter("snapshot_id")


class SchemaCatalog:
    """Schema versions per table oid, ascending by snapshot id.

    The lookup rule is the store's: the greatest version at or below the asked id. It is inclusive, because a DDL
    message shares its LSN with the row after it.
    """

    def __init__(self, schemas: Iterable[TableSchema] = ()) -> None:
        self._versions: dict[int, list[TableSchema]] = {}
        for schema in schemas:
            self.add(schema)

    def add(self, schema: TableSchema) -> None:
        """Remember a version; the same (oid, snapshot id) again replaces it."""
        versions = self._versions.setdefault(schema.oid, [])
        place = bisect_left(versions, schema.snapshot_id, key=_by_snapshot)
        if place < len(versions) and versions[place].snapshot_id == schema.snapshot_id:
            versions[place] = schema
        else:
            insort(versions, schema, key=_by_snapshot)

    def at(self, oid: int, snapshot_id: SnapshotId) -> TableSchema | None:
        """The greatest version <= `snapshot_id`, or None when the table has none that early."""
        versions = self._versions.get(oid, [])
        place = bisect_right(versions, snapshot_id, key=_by_snapshot)
        return versions[place - 1] if place else None

    def latest(self, oid: int) -> TableSchema | None:
        """The greatest version, or None when the table is unknown."""
        versions = self._versions.get(oid)
        return versions[-1] if versions else None

    def versions(self, oid: int) -> tuple[TableSchema, ...]:
        """All versions of a table, ascending; empty when it is unknown."""
        return tuple(self._versions.get(oid, ()))

    def forget(self, oid: int) -> None:
        """Drop every version of a table; no error when it is unknown."""
        self._versions.pop(oid, None)

    def prune(self, oid: int, below: SnapshotId) -> int:
        """Drop versions that no replay from `below` can need; returns how many.

        The newest version <= `below` and everything after it stay (see `StateStore.prune_schemas`; the endpoints in
        destination metadata are known to the store alone).
        """
        versions = self._versions.get(oid, [])
        needless = max(bisect_right(versions, below, key=_by_snapshot) - 1, 0)
        del versions[:needless]
        return needless

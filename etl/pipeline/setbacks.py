"""What a table is told that cannot simply go on."""

from __future__ import annotations

from etl.errors import (
    BacklogLostError,
    BacklogOverflowError,
    DestinationTableLostError,
    TableSourceError,
)


def gone(name: str) -> DestinationTableLostError:
    """The destination has lost what was copied there."""
    return DestinationTableLostError(
        "the destination does not have the table any more, though it was copied there",
        hint="was it deleted, or replaced by another? Restore it, or `etl tables resync` it",
        table=name,
    )


def swapped(name: str, replaced: int, oid: int) -> TableSourceError:
    """Another table has the name now."""
    return TableSourceError(
        f"table {name} with oid {replaced} was replaced by another table with oid {oid}",
        hint="its destination table keeps the rows of the old one; `etl destroy` the pipeline and replicate anew",
        table=name,
    )


def backlog_lost(name: str, reason: str) -> BacklogLostError:
    """Changes that were kept are gone."""
    return BacklogLostError(
        reason,
        hint="the table is copied anew; keep backlog.path on a disk that outlives the process",
        table=name,
    )


def backlog_overflow(name: str) -> BacklogOverflowError:
    """More is to be kept than may be."""
    return BacklogOverflowError(
        "more changes wait for the table than backlog.max_bytes allows",
        hint="they were given up, and the table is copied anew; raise backlog.max_bytes to keep more",
        table=name,
    )

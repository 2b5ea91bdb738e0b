"""What destinations see: ordered events, rows as columns."""

from etl.events.types import (
    OP_DELETE,
    OP_INSERT,
    OP_UPDATE,
    Commit,
    Event,
    Relation,
    RowChanges,
    Truncate,
    Unrepresentable,
)

__all__ = [
    "OP_DELETE",
    "OP_INSERT",
    "OP_UPDATE",
    "Commit",
    "Event",
    "Relation",
    "RowChanges",
    "Truncate",
    "Unrepresentable",
]

"""What the assembler makes of one chunk of the stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from etl.errors import EtlError
from etl.events import Event
from etl.lsn import Lsn, Position
from etl.pgoutput.ddl_messages import DdlNotice
from etl.pgoutput.frames import Frames
from etl.pgoutput.transactions import Placement
from etl.schema.table import TableSchema


@dataclass(frozen=True, slots=True)
class TableFailure:
    """A table that cannot go on from `position`."""

    oid: int
    error: EtlError
    position: Position


@dataclass(slots=True)
class Assembled:
    """What one chunk became. `idle_lsn`: the last position the server named while no transaction was open.

    `frames` and `placement` are the chunk as it was read, for who keeps some of it aside (`etl.pgoutput.kept`).
    """

    frames: Frames
    placement: Placement
    events: list[Event] = field(default_factory=list)
    new_schemas: list[TableSchema] = field(default_factory=list)
    failures: list[TableFailure] = field(default_factory=list)
    notices: list[DdlNotice] = field(default_factory=list)
    received_lsn: Lsn = field(default_factory=Lsn)
    idle_lsn: Lsn | None = None
    transactions: int = 0

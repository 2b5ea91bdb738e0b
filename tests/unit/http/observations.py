"""Observations as tests need them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from etl.config.reports import PHASES, PipelineStatus, SlotStatus, TableStatus
from etl.lsn import Lsn, SnapshotId
from etl.pipeline.observation import Lag, Observation
from etl.telemetry.pulse import Fault, Loop, LoopState, Positions, Pulse, PulseState, RunPhase

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
SLOT = SlotStatus(
    "supabase_etl_apply_1",
    exists=True,
    active=True,
    wal_status="reserved",
    retained_bytes=5 << 20,
    lag_bytes=80,
)
RUNNING = (LoopState(Loop.MAIN, 0.1), LoopState(Loop.APPLY, 0.1), LoopState(Loop.READER, 0.05))
FAULT = Fault("source_unavailable", "no connection to db:5432", "is it running?", NOW, attempts=3)


def pulse(**changes: Any) -> PulseState:
    """A pulse that streams well, but for the changes."""
    fresh = Pulse(lambda: NOW - timedelta(hours=2)).state()
    positions = Positions(Lsn(0x2000), Lsn(0x1F00), Lsn(0x1E00))
    return replace(
        fresh, **{"phase": RunPhase.STREAMING, "loops": RUNNING, "positions": positions, **changes}
    )


def table(name: str, state: str | None = "ready", oid: int = 16384, **changes: Any) -> TableStatus:
    """A table in this state."""
    fields = {"mode": "mirror", "snapshot_id": SnapshotId.COPY, "schema_status": "applied", **changes}
    return TableStatus(oid, name, state, PHASES[state], **fields)


def seen(*tables: TableStatus, slot: SlotStatus = SLOT, **changes: Any) -> Observation:
    """What is seen of a pipeline with these tables."""
    report = PipelineStatus(1, "shop", slot, Lsn(0x1E00), 3, "pid 9 at host", tables)
    fields = {"pulse": pulse(), "report": report, "read_at": NOW, "lag": Lag(256, 512, 0.2, 1.5), **changes}
    return Observation(7, **fields)

"""What those who watch a running pipeline see at a moment; immutable, and without row values, literals or secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from etl.config.reports import PipelineStatus, TableStatus
from etl.lsn import SnapshotId
from etl.pipeline.schema_history import DescribedChange
from etl.telemetry.pulse import PulseState, SchemaOutcome

#: Rates are told for so many steps of about `RATE_STEP_S` seconds.
RATE_STEPS = 60
RATE_STEP_S = 1.0


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind the source's WAL the stages are, in bytes and seconds."""

    received_bytes: int = 0
    durable_bytes: int = 0
    received_s: float = 0.0
    durable_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """One version of a table's schema and what is new in it; `columns` are name and type.

    `status`: ``pending``, then what the state store records (``creating``, ``applying``, ``applied``), at last ``passed``.
    `outcome` is what the destination made of it, where this process has seen that.
    """

    snapshot_id: SnapshotId
    columns: tuple[str, ...]
    changes: tuple[DescribedChange, ...]
    status: str
    outcome: SchemaOutcome | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """A moment. `report` is what the slot and the state store said at `read_at`, None before the first time.

    `trouble`: why they could not be read lately. `lag` is None before the end of the WAL is known. `rates` are row changes
    per second, by table oid and of all together, oldest first; a table without any is left out. `history`: the schema
    versions of each table, oldest first. `number` grows when something is another than before.
    """

    number: int
    pulse: PulseState
    report: PipelineStatus | None = None
    read_at: datetime | None = None
    trouble: str = ""
    lag: Lag | None = None
    rates: Mapping[int, tuple[float, ...]] | None = None
    total_rates: tuple[float, ...] = ()
    history: Mapping[int, tuple[SchemaStep, ...]] | None = None

    @property
    def tables(self) -> tuple[TableStatus, ...]:
        """The tables by name, none before they are known."""
        return () if self.report is None else self.report.tables

    def rates_of(self, oid: int) -> tuple[float, ...]:
        """The rates of a table; empty for a quiet one."""
        return (self.rates or {}).get(oid, ())

    def history_of(self, oid: int) -> tuple[SchemaStep, ...]:
        """The schema versions of a table."""
        return (self.history or {}).get(oid, ())

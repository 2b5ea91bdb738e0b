"""Bring one destination table from the schema it has to the one it should have: Applying → Applied, written once.

1. Describe the table and plan from what is really there; nothing is recorded yet, so a refusal changes nothing.
2. Record APPLYING with both endpoints of the change.
3. Execute step by step and set the watermark: one transaction where the destination has them.
4. Describe again: the plan from there must be empty.
5. Record APPLIED.

The plan is a function of the actual and the target schema. After a crash anywhere in between, starting again at step 1
with the recorded endpoints finishes the change; no person is needed. Only a table that no prefix of the plan explains
is refused (`SchemaAmbiguousError`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from etl.ddl.operations import SchemaOperation, SchemaPlan, SkippedChange
from etl.ddl.plan import plan
from etl.destinations.base import (
    Destination,
    DestinationMetadata,
    DestinationTable,
    SchemaJournal,
    SchemaStatus,
)
from etl.destinations.measuring import Measure, unmeasured
from etl.errors import DestinationTableError
from etl.lsn import Position
from etl.schema.table import ReplicatedTableSchema
from etl.telemetry.failpoints import failpoint
from etl.telemetry.metric_names import DestinationCall


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What was done: the new metadata (APPLIED), the operations executed, and what the destination left out."""

    metadata: DestinationMetadata
    operations: tuple[SchemaOperation, ...]
    skipped: tuple[SkippedChange, ...]


class SchemaApplier:
    """Applies schema changes to a destination and records them in the journal."""

    def __init__(
        self, destination: Destination, journal: SchemaJournal, measure: Measure = unmeasured
    ) -> None:
        self._destination = destination
        self._journal = journal
        self._measure = measure

    def apply(
        self, recorded: DestinationMetadata, target: ReplicatedTableSchema, watermark: Position | None = None
    ) -> SchemaChange:
        """Bring an APPLIED table to `target`; `watermark` commits with the change.

        Raises `DestinationTableError` when the destination cannot hold `target` or the table is gone,
        `SchemaAmbiguousError` when the real table is explained by no point on the way.
        """
        self._destination.check_schema(recorded.table, target)
        if target.key_columns != recorded.schema.key_columns:
            self._destination.check_existing_rows(recorded.table, target)
        applying = DestinationMetadata(recorded.table, SchemaStatus.APPLYING, target, recorded.schema)
        return self._run(applying, self._plan(applying), watermark)

    def recover(self, applying: DestinationMetadata) -> SchemaChange:
        """Finish a change that was interrupted while APPLYING. Raises as `apply` does."""
        return self._run(applying, self._plan(applying), None)

    def _run(
        self, applying: DestinationMetadata, planned: SchemaPlan, watermark: Position | None
    ) -> SchemaChange:
        failpoint("ddl.before_mark_applying")
        self._journal.put(applying)
        failpoint("ddl.after_mark_applying")
        self._execute(applying.table, planned, watermark)
        failpoint("ddl.after_commit")
        self._verify(applying)
        applied = replace(applying, status=SchemaStatus.APPLIED, previous=None)
        self._journal.put(applied)
        failpoint("ddl.after_applied")
        return SchemaChange(applied, planned.operations, planned.skipped)

    def _execute(self, table: DestinationTable, planned: SchemaPlan, watermark: Position | None) -> None:
        if not planned.operations and watermark is None:
            return
        with self._measure(DestinationCall.SCHEMA), self._destination.transaction():
            for operation in planned.operations:
                self._destination.execute(table, operation)
                failpoint("ddl.after_step")
            failpoint("ddl.after_last_step")
            if watermark is not None:
                self._destination.set_watermark(table, watermark)

    def _verify(self, applying: DestinationMetadata) -> None:
        left = self._plan(applying).operations
        if left:
            raise DestinationTableError(
                f"the table does not have the schema it was just given: {len(left)} steps are still open,"
                f" the first is {type(left[0]).__name__}",
                hint="something else changes this table; stop it, then retry the table",
                table=applying.table.name,
            )

    def _plan(self, applying: DestinationMetadata) -> SchemaPlan:
        actual = self._destination.describe(applying.table)
        if actual is None:
            raise DestinationTableError(
                "the destination table is gone, and its rows with it",
                hint="copy the table again; it is never created empty in silence",
                table=applying.table.name,
            )
        destination = self._destination
        return plan(
            actual, applying.schema, applying.previous, destination.capabilities, destination.render_default
        )

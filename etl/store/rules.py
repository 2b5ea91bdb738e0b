"""What every store holds to, whatever it keeps its rows in."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from etl.errors import PipelineActiveError, StoreError
from etl.schema.table import TableSchema
from etl.store.base import NEVER_RECORDED, CopyRecord, TableStateRecord

_SURROGATES = range(0xD800, 0xE000)


def checked_schema(schema: TableSchema) -> TableSchema:
    """The schema itself. Raises `StoreError` for columns that are out of order or share a name."""
    attnums = [column.attnum for column in schema.columns]
    if any(left >= right for left, right in pairwise(attnums)):
        raise StoreError(
            f"schema version {schema.snapshot_id} does not list its columns in ascending attnum",
            hint="report this; nothing was stored",
            table=schema.qualified_name,
        )
    if len({column.name for column in schema.columns}) != len(attnums):
        raise StoreError(
            f"schema version {schema.snapshot_id} has two columns of one name",
            hint="report this; nothing was stored",
            table=schema.qualified_name,
        )
    return schema


def storable(record: TableStateRecord) -> TableStateRecord:
    """The record with texts any database takes: an error must be recorded whatever its message holds.

    Raises `StoreError` for a state that lives in memory only.
    """
    if record.state in NEVER_RECORDED:
        raise StoreError(
            f"state {record.state} of the table with oid {record.oid} is not one to record",
            hint="report this; nothing was stored",
        )
    return replace(
        record,
        reason=None if record.reason is None else storable_text(record.reason),
        solution=None if record.solution is None else storable_text(record.solution),
        updated_at=None,
    )


def storable_copy(record: CopyRecord) -> CopyRecord:
    """The record with texts any database takes."""
    return replace(
        record,
        snapshot=storable_text(record.snapshot),
        note=storable_text(record.note),
        started_at=None,
    )


def storable_text(text: str) -> str:
    """The text with what no database takes replaced."""
    return "".join("\ufffd" if c == "\0" or ord(c) in _SURROGATES else c for c in text)


def active_error(pipeline_id: int, holder: str) -> PipelineActiveError:
    """The error of wanting a pipeline that `holder` runs."""
    return PipelineActiveError(
        f"pipeline {pipeline_id} is run by {holder}",
        hint="stop that process, or give this pipeline an id of its own; a dead holder is noticed within a minute",
    )


def not_acquired(pipeline_id: int) -> StoreError:
    """The error of a write by a store that does not own its pipeline."""
    return StoreError(
        f"pipeline {pipeline_id} is not acquired, so its state cannot be written",
        hint="call acquire() first; reading needs no ownership",
    )


def closed(pipeline_id: int) -> StoreError:
    """The error of using a closed store."""
    return StoreError(f"the state store of pipeline {pipeline_id} is closed", hint="acquire() opens it again")


def destroyed(pipeline_id: int) -> StoreError:
    """The error of a write to a pipeline whose state was deleted under us."""
    return StoreError(
        f"the state of pipeline {pipeline_id} was destroyed while it ran",
        hint="stop it; a new start replicates everything anew",
    )


def never_ran(pipeline_id: int) -> StoreError:
    """The error of asking something of a pipeline that has no state."""
    return StoreError(
        f"pipeline {pipeline_id} has not run yet, so it has no tables",
        hint="start it with `etl replicate`, or check the pipeline's id",
    )

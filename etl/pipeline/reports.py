"""What `etl status`, `etl tables list` and `etl schema log` read: the slot, the store and nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace

from etl.config.models import PipelineConfig
from etl.config.reports import (
    PHASES,
    CopyStatus,
    PipelineStatus,
    SchemaLogEntry,
    SlotStatus,
    TableStatus,
)
from etl.errors import ConfigError
from etl.pipeline.schema_history import describe_changes
from etl.schema.table import TableSchema
from etl.source.catalog import table_names
from etl.source.connection import Connection, connect_query
from etl.source.slots import apply_slot_name, slot_state
from etl.store.base import CopyRecord, DestinationRecord, StateStore, TableStateRecord

_LEFT_HINT = "`etl tables drop` deletes it there; publish it again to replicate it anew"


def status(config: PipelineConfig, store: StateStore) -> PipelineStatus:
    """Slot, progress and tables as they are now. Raises `SourceError` and `StoreError`."""
    with connect_query(config.source.parameters(), f"status:{config.pipeline.id}") as connection:
        slot = slot_status(config, connection)
    return pipeline_status(config, store, slot, tables(config, store))


def pipeline_status(
    config: PipelineConfig, store: StateStore, slot: SlotStatus, found: tuple[TableStatus, ...]
) -> PipelineStatus:
    """The pipeline with what is known of its slot and tables already. Raises `StoreError`."""
    owner = store.owner()
    return PipelineStatus(
        pipeline_id=config.pipeline.id,
        name=config.pipeline.display_name,
        slot=slot,
        progress_lsn=store.progress(),
        epoch=owner.epoch if owner else None,
        holder=owner.holder if owner else None,
        tables=found,
    )


def tables(
    config: PipelineConfig, store: StateStore, schemas: Iterable[TableSchema] | None = None
) -> tuple[TableStatus, ...]:
    """The tables by name, those included that left and are still at the destination. Raises `SourceError`, `StoreError`.

    `schemas`: the stored versions, where the caller has them already.
    """
    states, records, copies = store.table_states(), store.destination_records(), store.copies()
    versions = store.schemas() if schemas is None else schemas
    names = _names(config, versions, records, states.keys() | records.keys())
    requested: defaultdict[int, list[str]] = defaultdict(list)
    for request in store.requests():
        requested[request.oid].append(request.verb.value)
    found = [
        replace(
            _table(oid, names[oid], states.get(oid), records.get(oid), config),
            copy=_copy(copies.get(oid)),
            requested=tuple(requested[oid]),
        )
        for oid in states.keys() | records.keys()
    ]
    return tuple(sorted(found, key=lambda table: (table.name, table.oid)))


def schema_log(store: StateStore, table: str) -> list[SchemaLogEntry]:
    """The versions of one table, oldest first. Raises `ConfigError` for a table the pipeline does not know."""
    schemas, records = store.schemas(), store.destination_records()
    oids = {
        schema.oid for schema in schemas if table in (schema.qualified_name, schema.name, str(schema.oid))
    }
    if not oids:
        known = ", ".join(sorted({schema.qualified_name for schema in schemas})) or "none yet"
        raise ConfigError(f"no table {table} in this pipeline", hint=f"tables with a schema log: {known}")
    entries = []
    for oid in sorted(oids):
        versions = [schema for schema in schemas if schema.oid == oid]
        record = records.get(oid)
        for previous, version in zip([None, *versions], versions, strict=False):
            current = record is not None and record.snapshot_id == version.snapshot_id
            entries.append(
                SchemaLogEntry(
                    snapshot_id=version.snapshot_id,
                    commit_lsn=version.snapshot_id.commit_lsn,
                    table=version.qualified_name,
                    columns=tuple(f"{c.name} {c.type_name}" for c in version.columns),
                    changes=_changes(previous, version),
                    status=record.status if record is not None and current else "",
                )
            )
    return entries


def _changes(previous: TableSchema | None, version: TableSchema) -> tuple[str, ...]:
    return tuple(change.text for change in describe_changes(previous, version)) or ("no change of columns",)


def slot_status(config: PipelineConfig, connection: Connection) -> SlotStatus:
    """The pipeline's slot as the server sees it. Raises `SourceError`."""
    name = apply_slot_name(config.pipeline.id)
    state = slot_state(connection, config.source.parameters(), name)
    if state is None:
        return SlotStatus(name=name, exists=False)
    return SlotStatus(
        name=name,
        exists=True,
        active=state.active,
        restart_lsn=state.restart_lsn,
        confirmed_flush_lsn=state.confirmed_flush_lsn,
        wal_status=state.wal_status,
        retained_bytes=state.retained_bytes,
        lag_bytes=state.lag_bytes,
    )


def _names(
    config: PipelineConfig,
    versions: Iterable[TableSchema],
    records: Mapping[int, DestinationRecord],
    oids: Iterable[int],
) -> dict[int, str]:
    """What the tables are called: in the newest schema version, else at the source today, else at the destination."""
    names = {schema.oid: schema.qualified_name for schema in versions}
    unknown = sorted(set(oids) - names.keys())
    if unknown:
        names |= {oid: records[oid].destination_table if oid in records else f"oid {oid}" for oid in unknown}
        parameters = config.source.parameters()
        with connect_query(parameters, f"status:{config.pipeline.id}") as connection:
            names |= table_names(connection, parameters, unknown)
    return names


def _copy(record: CopyRecord | None) -> CopyStatus | None:
    if record is None:
        return None
    return CopyStatus(record.ranges, len(record.finished), record.rows, record.started_at, record.note)


def _table(
    oid: int,
    name: str,
    state: TableStateRecord | None,
    record: DestinationRecord | None,
    config: PipelineConfig,
) -> TableStatus:
    value = state.state.value if state else None
    status = TableStatus(
        oid,
        name,
        value,
        PHASES[value],
        mode=record.mode if record else config.mode_of(name),
        destination_table=record.destination_table if record else None,
        schema_status=record.status if record else None,
        snapshot_id=record.snapshot_id if record else None,
    )
    if state is None:
        return replace(status, reason="left the publication; the destination keeps it", solution=_LEFT_HINT)
    return replace(
        status,
        reason=state.reason,
        solution=state.solution,
        since=state.updated_at,
        retry_at=state.retry_at,
        attempts=state.attempts,
    )

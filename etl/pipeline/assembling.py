"""What turns bytes of the stream into events, wired to the source and the store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import structlog

from etl.lsn import Lsn
from etl.pgoutput.assembler import Assembler
from etl.pgoutput.ddl_messages import DdlMessages
from etl.pipeline.context import PipelineContext
from etl.schema.catalog import SchemaCatalog
from etl.schema.drift import Ambiguous, explain_drift
from etl.schema.relation import RelationShape
from etl.schema.table import TableSchema
from etl.source.catalog import catalog_columns
from etl.source.connection import connect_query
from etl.source.install import load_signing_keys
from etl.source.publication import published_tables

_log = structlog.get_logger()


def stream_assembler(context: PipelineContext, tables: Mapping[int, Lsn]) -> Assembler:
    """For the stream of these tables (oid → where their copy ends). Raises a `SourceError` or `StoreError`."""
    return _assembler(context, tables, context.store.schemas(), _signing_keys(context))


def replay_assembler(context: PipelineContext, oid: int, copy_end: Lsn) -> Assembler:
    """For the backlog of one table. Signing keys are asked for when a message needs one. Raises a `StoreError`."""
    return _assembler(context, {oid: copy_end}, context.store.schemas(oid), {})


def _assembler(
    context: PipelineContext,
    tables: Mapping[int, Lsn],
    schemas: Iterable[TableSchema],
    keys: Mapping[int, bytes],
) -> Assembler:
    return Assembler(
        tables,
        SchemaCatalog(schemas),
        DdlMessages(
            keys,
            allow_unsigned=context.config.source.allow_unsigned_ddl,
            reload=lambda: _signing_keys(context),
        ),
        explainer(context),
        context.type_options,
    )


def _signing_keys(context: PipelineContext) -> dict[int, bytes]:
    with connect_query(context.parameters, f"apply:{context.pipeline_id}") as connection:
        return load_signing_keys(connection)


def explainer(context: PipelineContext) -> Callable[[TableSchema, RelationShape], TableSchema | str]:
    """Explain a RELATION that contradicts the stored version by the source's catalog of today."""

    def explain(version: TableSchema, shape: RelationShape) -> TableSchema | str:
        with connect_query(context.parameters, f"apply:{context.pipeline_id}") as connection:
            publication = context.config.pipeline.publication
            tables = {t.oid: t for t in published_tables(connection, context.parameters, publication)}
            listed = tables[version.oid].column_names if version.oid in tables else None
            columns = catalog_columns(connection, context.parameters, version.oid, listed)
        explained = explain_drift(version, shape, columns)
        if isinstance(explained, Ambiguous):
            return explained.reason
        _log.warning("schema_drift_healed", table=version.qualified_name)
        return explained

    return explain

"""The payload of a schema-change message, and the one way a `TableSchema` is built from catalog rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etl.errors import SchemaError
from etl.schema.table import TableSchema

#: The newest payload version this code reads.
MESSAGE_VERSION = 1

#: Prefix of the transactional logical messages (contract).
MESSAGE_PREFIX = "supabase_etl_ddl"


class SchemaMessageError(SchemaError):
    """The payload is malformed, contradicts itself, or was written by a newer version."""

    kind = "schema_message"


@dataclass(frozen=True, slots=True)
class SchemaMessage:
    """A parsed payload.

    `schema` is the table after the statement, under no version yet (use `TableSchema.at` with the snapshot id); None
    for a drop and when the trigger could not describe the table, then `error` is the SQLSTATE and text it caught.
    `key_is_deferrable`: the primary key cannot back a keyed table. `truncated_defaults`: columns whose default was
    too long for the payload and counts as unsupported.
    """

    oid: int
    command_tag: str
    version: int
    xid: int | None
    schema: TableSchema | None
    error: str | None = None
    is_drop: bool = False
    key_is_deferrable: bool = False
    truncated_defaults: tuple[str, ...] = ()


def parse_schema_message(payload: bytes) -> SchemaMessage:
    """Read a payload. Unknown fields are ignored, known ones are checked. Raises `SchemaMessageError`."""
    raise NotImplementedError


def table_schema_from_rows(
    *,
    oid: int,
    schema: str,
    name: str,
    columns: Sequence[Mapping[str, object]],
    identity: Mapping[str, object],
    max_attnum: int,
) -> TableSchema:
    """Build the version of a table from catalog rows, for copy and stream alike. Raises `SchemaMessageError`.

    `columns`: one mapping per visible column with the payload's keys (attname, attnum, atttypid, atttypmod,
    attnotnull, default_expression; optional formatted_type, missing_value, default_truncated). `identity`: the
    mapping of the payload's ``identity`` (primary_key_attnums in key order, relreplident,
    replica_identity_index_attnums).
    """
    raise NotImplementedError

"""The payload of a schema-change message, and the one way a `TableSchema` is built from catalog rows.

Whoever can connect can write such a message, and a future trigger may write more into it: fields we do not know are
ignored, fields we know must be exactly what they should be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import orjson

from etl.errors import SchemaError
from etl.schema.table import ColumnSchema, ReplicaIdentity, TableSchema

#: The newest payload version this code reads. A payload without a version is version 0: the contract's own fields.
MESSAGE_VERSION: Final = 1

#: Prefix of the transactional logical messages (contract).
MESSAGE_PREFIX: Final = "supabase_etl_ddl"

#: ``MaxHeapAttributeNumber``: no table has a column beyond, dropped ones counted.
MAX_ATTNUM: Final = 1600

_MAX_OID = 2**32 - 1
_MAX_INT4 = 2**31 - 1
_MAX_INT8 = 2**63 - 1
_T = TypeVar("_T")


class SchemaMessageError(SchemaError):
    """The payload is malformed, contradicts itself, or was written by a newer version."""

    kind = "schema_message"


@dataclass(frozen=True, slots=True)
class SchemaMessage:
    """A parsed payload.

    `schema` is the table after the statement, under no version yet (use `TableSchema.at` with the snapshot id); None
    for a drop (DROP TABLE and no columns) and when the trigger could not describe the table: then `error` is the text and
    SQLSTATE it caught, and `oid` is 0 where it could not even tell which tables the statement changed.
    `xid` is the full transaction id (64 bits), `subxid` that of the subtransaction (32 bits).
    `key_is_deferrable`: the primary key cannot back a keyed table. `truncated_defaults`: columns whose default was
    too long for the payload; it counts as unsupported, and the column's `default_expression` is None.
    """

    oid: int
    command_tag: str
    version: int
    xid: int | None
    schema: TableSchema | None
    error: str | None = None
    is_drop: bool = False
    subxid: int | None = None
    key_is_deferrable: bool = False
    truncated_defaults: tuple[str, ...] = ()


def parse_schema_message(payload: bytes) -> SchemaMessage:
    """Read a payload. Unknown fields are ignored, known ones are checked. Raises `SchemaMessageError`."""
    try:
        fields = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise _malformed(f"not JSON: {error.msg} at byte {error.pos}") from error
    if not isinstance(fields, dict):
        raise _malformed("not a JSON object")
    version = _integer(fields, "version", 0, _MAX_INT4, default=0)
    if version > MESSAGE_VERSION:
        raise SchemaMessageError(
            f"the schema message has version {version}, this etl reads up to {MESSAGE_VERSION}",
            hint="upgrade etl, or install the event trigger of this version of etl again",
        )
    failed = fields.get("error") is not None
    message = SchemaMessage(
        oid=_integer(fields, "oid", 0 if failed else 1, _MAX_OID),
        command_tag=_text(fields, "command_tag"),
        version=version,
        xid=_integer(fields, "xid", 0, _MAX_INT8) if fields.get("xid") is not None else None,
        schema=None,
        subxid=_integer(fields, "subxid", 0, _MAX_OID) if fields.get("subxid") is not None else None,
    )
    if failed:
        return replace(message, error=_failure(fields["error"]))
    if message.command_tag == "DROP TABLE" and not fields.get("columns"):
        return replace(message, is_drop=True)
    return _described(message, fields)


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
    attnotnull, default_expression; optional formatted_type, missing_value, default_truncated, comment). `identity`: the
    mapping of the payload's ``identity`` (primary_key_attnums in key order, relreplident,
    replica_identity_index_attnums). `max_attnum`: ``relnatts``, 0 when unknown.

    A default marked truncated becomes None, and so can never be parsed. A primary key over a column that is not
    visible (a generated one), or one whose check may be deferred (two rows may share it for a while), cannot address
    rows: no column gets a key ordinal then.
    """
    described = [_column(row) for row in columns]
    attnums = [column.attnum for column in described]
    visible = set(attnums)
    if len(visible) < len(attnums):
        raise _malformed("an attnum stands twice in columns")
    if len({column.name for column in described}) < len(described):
        raise _malformed("a name stands twice in columns")
    if max_attnum and attnums and max(attnums) > max_attnum:
        raise _malformed(f"attnum {max(attnums)} is beyond relnatts {max_attnum}")
    key = _attnums(identity, "primary_key_attnums")
    addresses_rows = visible.issuperset(key) and not _flag(
        identity, "primary_key_condeferrable", default=False
    )
    ordinals = {attnum: place for place, attnum in enumerate(key, 1)} if addresses_rows else {}
    return TableSchema(
        oid=oid,
        schema=schema,
        name=name,
        columns=tuple(
            replace(column, primary_key_ordinal=ordinals.get(column.attnum))
            for column in sorted(described, key=lambda column: column.attnum)
        ),
        identity=_replica_identity(identity),
        identity_attnums=_attnums(identity, "replica_identity_index_attnums"),
        max_attnum=max_attnum,
    )


def _described(message: SchemaMessage, fields: Mapping[str, object]) -> SchemaMessage:
    rows = _field(fields, "columns", list)
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise _malformed("columns is not a list of objects")
    identity = _field(fields, "identity", dict)
    schema = table_schema_from_rows(
        oid=message.oid,
        schema=_text(fields, "nspname"),
        name=_text(fields, "relname"),
        columns=rows,
        identity=identity,
        max_attnum=_integer(fields, "relnatts", 0, MAX_ATTNUM, default=0),
    )
    return replace(
        message,
        schema=schema,
        key_is_deferrable=_flag(identity, "primary_key_condeferrable", default=False),
        truncated_defaults=tuple(_text(row, "attname") for row in rows if row.get("default_truncated")),
    )


def _column(row: Mapping[str, object]) -> ColumnSchema:
    truncated = _flag(row, "default_truncated", default=False)
    return ColumnSchema(
        name=_text(row, "attname"),
        attnum=_integer(row, "attnum", 1, MAX_ATTNUM),
        type_oid=_integer(row, "atttypid", 1, _MAX_OID),
        typmod=_integer(row, "atttypmod", -1, _MAX_INT4),
        nullable=not _flag(row, "attnotnull"),
        default_expression=None if truncated else _text_or_none(row, "default_expression"),
        type_name=_text_or_none(row, "formatted_type") or "",
        missing_value=_text_or_none(row, "missing_value"),
        comment=_text_or_none(row, "comment"),
    )


def _replica_identity(identity: Mapping[str, object]) -> ReplicaIdentity:
    value = _text(identity, "relreplident")
    if value not in tuple(ReplicaIdentity):
        raise _malformed("relreplident is none of d, f, i, n")
    return ReplicaIdentity(value)


def _attnums(identity: Mapping[str, object], key: str) -> tuple[int, ...]:
    values = _field(identity, key, list)
    attnums = tuple(_checked_integer(value, key, 1, MAX_ATTNUM) for value in values)
    if len(set(attnums)) < len(attnums):
        raise _malformed(f"an attnum stands twice in {key}")
    return attnums


def _failure(value: object) -> str:
    if isinstance(value, dict):
        return f"{value.get('message', '')} (SQLSTATE {value.get('sqlstate', 'unknown')})"
    if isinstance(value, str):
        return value
    raise _malformed("error is neither an object nor a text")


def _field(fields: Mapping[str, object], key: str, kind: type[_T]) -> _T:
    if key not in fields:
        raise _malformed(f"{key} is missing")
    value = fields[key]
    if not isinstance(value, kind):
        raise _malformed(f"{key} is not a {kind.__name__}")
    return value


def _text(fields: Mapping[str, object], key: str) -> str:
    text = _field(fields, key, str)
    if not text:
        raise _malformed(f"{key} is empty")
    return text


def _text_or_none(fields: Mapping[str, object], key: str) -> str | None:
    return None if fields.get(key) is None else _field(fields, key, str)


def _flag(fields: Mapping[str, object], key: str, *, default: bool | None = None) -> bool:
    if default is not None and fields.get(key) is None:
        return default
    return _field(fields, key, bool)


def _integer(
    fields: Mapping[str, object], key: str, low: int, high: int, *, default: int | None = None
) -> int:
    if default is not None and key not in fields:
        return default
    return _checked_integer(_field(fields, key, int), key, low, high)


def _checked_integer(value: object, key: str, low: int, high: int) -> int:
    # a JSON true is a Python int
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed(f"{key} is not an integer")
    if not low <= value <= high:
        raise _malformed(f"{key} is {value}, not within {low} and {high}")
    return value


def _malformed(cause: str) -> SchemaMessageError:
    return SchemaMessageError(
        f"the schema message cannot be read: {cause}",
        hint="install the event trigger again; if the message repeats, report it with the server version",
    )

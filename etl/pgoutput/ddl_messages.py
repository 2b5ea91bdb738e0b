"""Which logical messages are schema changes we believe (docs/reference/ddl-message.md).

Anyone who may connect can emit a message with our prefix. Believed is what the installed trigger signed, inside a
transaction, for that very transaction; everything else is counted and ignored, unless the pipeline explicitly allows
unsigned messages. A message that *is* signed and cannot be read stops the pipeline: a schema change would be lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from etl.pgoutput.messages import LogicalMessage
from etl.schema.message import MESSAGE_PREFIX, SchemaMessage, SchemaMessageError, parse_schema_message
from etl.schema.signature import split_signed, verify

_XID_MASK = 0xFFFFFFFF


class DdlOutcome(StrEnum):
    """What became of a message with our prefix; a metric label."""

    STORED = "stored"
    DROPPED_TABLE = "dropped_table"
    UNDESCRIBED = "undescribed"
    UNSIGNED = "unsigned"
    FORGED = "forged"
    NON_TRANSACTIONAL = "non_transactional"
    FAILED_PARSE = "failed_parse"


@dataclass(frozen=True, slots=True)
class DdlNotice:
    """For the log and the metrics: never the payload, which can hold literals."""

    outcome: DdlOutcome
    oid: int | None = None
    table: str | None = None
    command_tag: str | None = None
    detail: str = ""


class DdlMessages:
    """Reads messages under the signing keys of the source: key id → secret.

    `reload` is asked for the keys of now when a message names a key that is not known: one was made meanwhile.
    """

    def __init__(
        self,
        keys: Mapping[int, bytes],
        *,
        allow_unsigned: bool = False,
        reload: Callable[[], Mapping[int, bytes]] | None = None,
    ) -> None:
        self._keys = dict(keys)
        self._allow_unsigned = allow_unsigned
        self._reload = reload

    def read(self, message: LogicalMessage, xid: int) -> tuple[DdlNotice | None, SchemaMessage | None]:
        """The notice to report, and the schema change to act on; (None, None) for other prefixes.

        Raises `SchemaMessageError` for a message that is signed and cannot be read.
        """
        if message.prefix != MESSAGE_PREFIX:
            return None, None
        if not message.transactional:
            return DdlNotice(DdlOutcome.NON_TRANSACTIONAL), None
        payload, signature = split_signed(message.content)
        if signature is None:
            return self._unsigned(payload)
        if signature.key_id not in self._keys and self._reload is not None:
            self._keys = dict(self._reload())
        if not verify(payload, signature, self._keys):
            return DdlNotice(DdlOutcome.FORGED), None
        parsed = parse_schema_message(payload)
        if parsed.xid is None or parsed.xid & _XID_MASK != xid:
            return DdlNotice(DdlOutcome.FORGED, detail="signed for another transaction"), None
        return _notice(parsed), parsed

    def _unsigned(self, payload: bytes) -> tuple[DdlNotice, SchemaMessage | None]:
        if not self._allow_unsigned:
            return DdlNotice(DdlOutcome.UNSIGNED), None
        try:
            parsed = parse_schema_message(payload)
        except SchemaMessageError as error:
            return DdlNotice(DdlOutcome.FAILED_PARSE, detail=error.message), None
        return _notice(parsed), parsed


def _notice(message: SchemaMessage) -> DdlNotice:
    if message.is_drop:
        outcome = DdlOutcome.DROPPED_TABLE
    elif message.schema is None:
        outcome = DdlOutcome.UNDESCRIBED
    else:
        outcome = DdlOutcome.STORED
    table = message.schema.qualified_name if message.schema is not None else None
    return DdlNotice(outcome, message.oid, table, message.command_tag)

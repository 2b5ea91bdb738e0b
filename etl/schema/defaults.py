"""Literal defaults: what the parser recognises in ``pg_get_expr`` text (contract, "Column defaults")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class LiteralKind(StrEnum):
    """The shapes of a deterministic literal default."""

    STRING = "string"
    NUMERIC = "numeric"
    BOOLEAN = "boolean"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    TIMESTAMPTZ = "timestamptz"
    JSON = "json"
    UUID = "uuid"


@dataclass(frozen=True, slots=True)
class DefaultLiteral:
    """A parsed default. `text` is the value without quotes and casts (``true``/``false`` for booleans)."""

    kind: LiteralKind
    text: str


def parse_default(expression: str | None, type_oid: int) -> DefaultLiteral | None:
    """The literal in a ``pg_get_expr`` text, or None when it is not one of the supported shapes."""
    raise NotImplementedError

"""Names and identity tags that mean the same at every destination.

A `DestinationTable.name` is ``schema.table`` as at the source, quoted where needed; a column carries the identity tag
``pg:<oid>.<attnum>`` at the beginning of its comment, and whatever people add behind it stays.
"""

from __future__ import annotations

import re
from typing import Final

from etl.schema.table import ColumnSchema

_PLAIN_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_NAME_PAIR: Final = re.compile(
    r'(?P<schema>[a-z_][a-z0-9_]*|"(?:[^"]|"")+")\.(?P<table>[a-z_][a-z0-9_]*|"(?:[^"]|"")+")', re.DOTALL
)
_TAG: Final = re.compile(r"pg:(?P<oid>\d+)\.(?P<attnum>\d+)(?=\s|$)")


def printable_name(schema: str, table: str) -> str:
    """``schema.table`` with quotes only where needed; two pairs never print alike.

    Raises `ValueError` for what can be no identifier (empty, or with a NUL).
    """
    return ".".join(_printable(part) for part in (schema, table))


def split_name(name: str) -> tuple[str, str]:
    """The pair that `printable_name` printed. Raises `ValueError` for other text."""
    match = _NAME_PAIR.fullmatch(name)
    if match is None:
        raise ValueError(f"not a table name: {name!r}")
    return _unquoted(match["schema"]), _unquoted(match["table"])


def tagged_comment(oid: int, column: ColumnSchema) -> str:
    """The comment of a destination column: what marks it as that source column, whatever either is called.

    What the source says of the column stands behind it.
    """
    tag = f"pg:{oid}.{column.attnum}"
    return f"{tag} {column.comment}" if column.comment and "\0" not in column.comment else tag


def tagged_attnum(oid: int, comment: str | None) -> int | None:
    """The attnum that a column's comment says, None when it carries no tag of this table."""
    match = _TAG.match(comment or "")
    return int(match["attnum"]) if match and int(match["oid"]) == oid else None


def _printable(part: str) -> str:
    if _PLAIN_NAME.fullmatch(part):
        return part
    if not part or "\0" in part:
        raise ValueError("an identifier is not empty and holds no NUL")
    return '"' + part.replace('"', '""') + '"'


def _unquoted(part: str) -> str:
    return part[1:-1].replace('""', '"') if part.startswith('"') else part

"""A RELATION that does not match the stored version: healed when exactly one explanation exists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from etl.schema.relation import RelationShape
from etl.schema.table import TableSchema


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """One entry of ``pg_attribute`` as it is today, tombstones included (then `name` is None, `type_oid` 0).

    `published`: the publication shows it today (a generated column is not published); ignored for tombstones. The
    other fields are those of `ColumnSchema`.
    """

    attnum: int
    name: str | None
    type_oid: int
    typmod: int = -1
    dropped: bool = False
    published: bool = True
    nullable: bool = True
    default_expression: str | None = None
    primary_key_ordinal: int | None = None
    type_name: str = ""
    missing_value: str | None = None


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """No explanation, or several; `reason` names the columns."""

    reason: str


def explain_drift(
    stored: TableSchema, relation: RelationShape, catalog_columns: Sequence[CatalogColumn]
) -> TableSchema | Ambiguous:
    """The schema the table had when RELATION was written, under the stored snapshot id, or why it cannot be known."""
    raise NotImplementedError

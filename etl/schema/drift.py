"""A RELATION that does not match the stored version: healed when exactly one explanation exists.

How it comes about: a statement ran without the event trigger (switched off, bypassed, not yet installed), so the
stored version is older than the row. RELATION shows the columns of the row's moment without attnums; the catalog shows
attnums, but those of today.

What can be relied on, and nothing else is: RELATION lists the published columns in attnum order; attnums only grow and
never come back to life; a column that is alive today was alive at the row's moment if its attnum had been given out by
then. So the attnums RELATION may stand for are those alive today up to some highest one, plus some that were dropped
since. Names do not choose between explanations, for a name may have belonged to another column at that moment; they can
only refuse the one that is left.

The publication's column list is taken to be today's; a table whose list changed as well finds no explanation, or not
this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from etl.schema.relation import RelationColumn, RelationShape, with_identity
from etl.schema.table import ColumnSchema, TableSchema


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
    """The schema the table had when RELATION was written, under the stored snapshot id, or why it cannot be known.

    `catalog_columns` are all entries of today with a positive attnum. Columns of the stored version keep their
    attnum, default and nullability and take RELATION's name and type; those RELATION and today's catalog both lack are
    gone, unpublished ones stay; new ones are described as they are today. Pure; raises `ValueError`
    when the oids differ.
    """
    if stored.oid != relation.oid:
        raise ValueError(f"RELATION of oid {relation.oid} held against the schema of oid {stored.oid}")
    known = {column.attnum: column for column in stored.columns}
    today = {column.attnum: column for column in catalog_columns}
    names = ", ".join(column.name for column in relation.columns)
    explanations = list(islice(_explanations(stored, len(relation.columns), today), 2))
    if not explanations:
        return Ambiguous(f"no order of attnums explains the columns {names} together with today's catalog")
    if len(explanations) > 1:
        first, second = (_told(attnums, relation) for attnums in explanations)
        return Ambiguous(f"several explanations of the columns {names}: {first}; or {second}")
    places = dict(zip(explanations[0], relation.columns, strict=True))
    refused = [_refusal(c, known.get(a), today.get(a)) for a, c in places.items()]
    reasons = [reason for reason in refused if reason]
    if reasons:
        return Ambiguous("; ".join(reasons))
    return _healed(stored, relation, places, today)


def _explanations(
    stored: TableSchema, width: int, today: Mapping[int, CatalogColumn]
) -> Iterator[tuple[int, ...]]:
    """The sets of `width` attnums that RELATION may stand for, each in ascending order and once.

    `newest` runs over the highest attnum that had been given out: it is alive or was dropped since.
    """
    known = {column.attnum for column in stored.columns}
    highest_known = max(stored.max_attnum, max(known, default=0))
    tombstones = {a for a, c in today.items() if c.dropped}
    alive = {a for a, c in today.items() if not c.dropped and c.published}
    # what was dead in the stored version stays dead
    mortal = {a for a in tombstones if a in known or a > highest_known}
    for newest in range(highest_known, max(today, default=0) + 1):
        grown = newest > highest_known
        if grown and newest not in alive and newest not in mortal:
            continue
        # every set above the base holds `newest`, so that none is told twice
        forced = {a for a in alive if a <= newest} | ({newest} if grown else set())
        if len(forced) > width:
            return
        optional = sorted(a for a in mortal if a <= newest and a not in forced)
        for chosen in combinations(optional, width - len(forced)):
            yield tuple(sorted(forced.union(chosen)))


def _refusal(column: RelationColumn, stored: ColumnSchema | None, today: CatalogColumn | None) -> str | None:
    """Why the only explanation is not believed of this column, or None."""
    witnesses: list[ColumnSchema | CatalogColumn] = [stored] if stored else []
    if today is not None and not today.dropped:
        witnesses.append(today)
        if column.name not in {witness.name for witness in witnesses}:
            return f"column {column.name} has neither its stored nor its present name"
    types = {(witness.type_oid, witness.typmod) for witness in witnesses}
    if types and (column.type_oid, column.typmod) not in types:
        return f"column {column.name} has neither its stored nor its present type"
    return None


def _healed(
    stored: TableSchema,
    relation: RelationShape,
    places: Mapping[int, RelationColumn],
    today: Mapping[int, CatalogColumn],
) -> TableSchema:
    known = {column.attnum: column for column in stored.columns}
    attnums = {column.name: attnum for attnum, column in places.items()}
    columns = [_column(a, c, known.get(a), today.get(a)) for a, c in places.items()]
    for attnum, column in known.items():
        alive = today.get(attnum)
        if attnum not in places and alive is not None and not alive.dropped and column.name not in attnums:
            columns.append(column)
    healed = replace(
        stored,
        columns=tuple(sorted(columns, key=lambda column: column.attnum)),
        max_attnum=max(stored.max_attnum, *(c.attnum for c in columns), 0),
    )
    return with_identity(healed, relation, attnums)


def _column(
    attnum: int, column: RelationColumn, stored: ColumnSchema | None, today: CatalogColumn | None
) -> ColumnSchema:
    shape = (column.type_oid, column.typmod)
    alive = today if today is not None and not today.dropped else None
    type_name = next((w.type_name for w in (stored, alive) if w and (w.type_oid, w.typmod) == shape), "")
    if stored is not None:
        return replace(
            stored, name=column.name, type_oid=column.type_oid, typmod=column.typmod, type_name=type_name
        )
    described = ColumnSchema(column.name, attnum, column.type_oid, column.typmod, type_name=type_name)
    if alive is None:
        return described
    return replace(
        described,
        nullable=alive.nullable,
        default_expression=alive.default_expression,
        primary_key_ordinal=alive.primary_key_ordinal,
        missing_value=alive.missing_value,
    )


def _told(attnums: Sequence[int], relation: RelationShape) -> str:
    return ", ".join(f"{c.name} = attnum {a}" for a, c in zip(attnums, relation.columns, strict=True))

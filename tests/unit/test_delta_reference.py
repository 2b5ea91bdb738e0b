"""docs/reference/delta.md says of every type, and of every name, what the code does."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from etl.destinations.change_rows import METADATA
from etl.destinations.delta.dialect import type_of
from etl.destinations.delta.places import escaped
from etl.schema.types import PgType, TypeCategory, arrow_type, known_types, pg_type

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "delta.md").read_text(encoding="utf-8")
NUMERIC, NUMERIC_ARRAY = 1700, 1231
NUMERIC_12_2 = (12 << 16 | 2) + 4


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def documented_types() -> dict[str, tuple[str, str]]:
    """Postgres' name → the type of a column and that of its array."""
    return {
        name.strip('"'): (column.strip("`"), array.strip("`"))
        for names, column, array in rows("Columns")
        for name in re.findall(r"`([^`]+)`", names)
    }


SCALARS = [known for known in known_types() if known.category is not TypeCategory.ARRAY]


@pytest.mark.parametrize("known", SCALARS, ids=lambda known: known.name)
def test_every_known_type_is_on_the_page_with_its_column_and_its_array(known: PgType):
    arrays = [array.oid for array in known_types() if array.element_oid == known.oid]
    expected = (type_of(arrow_type(known.oid, -1)), type_of(arrow_type(arrays[0] if arrays else 0, -1)))

    assert documented_types()[known.name] == expected


def test_a_numeric_with_a_precision_is_a_decimal():
    column, array = documented_types()["numeric(p,s)"]

    assert column.replace("p,s", "12,2") == type_of(arrow_type(NUMERIC, NUMERIC_12_2))
    assert array.replace("p,s", "12,2") == type_of(arrow_type(NUMERIC_ARRAY, NUMERIC_12_2))


def test_no_type_is_on_the_page_twice_and_none_that_is_not_known():
    named = Counter(name for names, *_ in rows("Columns") for name in re.findall(r"`([^`]+)`", names))

    assert [name for name, count in named.items() if count > 1] == []
    assert {name.strip('"') for name in named} == {known.name for known in SCALARS} | {"numeric(p,s)"}


def test_types_that_etl_does_not_know_are_text():
    assert rows("Columns")[-1][1:] == ["`string`", "`string`"]
    assert type_of(arrow_type(pg_type(0).oid, -1)) == "string"


def test_the_metadata_columns_are_on_the_page_with_their_types():
    documented = [(name.strip("`"), kind.strip("`")) for name, kind, _ in rows("Changelog mode")]

    assert documented == [(field.name, type_of(field.type)) for field in METADATA]


def test_the_example_of_an_escaped_name_is_right():
    given, becomes = re.findall(r"`(\S+)` is `(Gr\S+)`", PAGE)[0]

    assert escaped(given) == becomes

"""Names and identity tags: printed injectively, read back exactly, and never mistaken for another table's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl.destinations.naming import printable_name, split_name, tagged_attnum, tagged_comment
from etl.schema.table import ColumnSchema

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=63)
TRICKY = st.text(st.sampled_from('a".A_\n'), min_size=1, max_size=8)
OIDS = st.integers(1, 2**32 - 1)
ATTNUMS = st.integers(1, 1600)


@given(NAMES | TRICKY, NAMES | TRICKY)
def test_a_printed_pair_is_read_back(schema: str, table: str):
    assert split_name(printable_name(schema, table)) == (schema, table)


@pytest.mark.parametrize(
    ("schema", "table", "printed"),
    [
        ("public", "orders", "public.orders"),
        ("public", "Orders", 'public."Orders"'),
        ("a.b", "c", '"a.b".c'),
        ('q"t', "2nd", '"q""t"."2nd"'),
        ("public", "orders\n", 'public."orders\n"'),
    ],
)
def test_names_are_quoted_where_needed_only(schema: str, table: str, printed: str):
    assert printable_name(schema, table) == printed


@pytest.mark.parametrize("bad", ["", "a\0b"])
def test_what_can_be_no_identifier_is_refused(bad: str):
    with pytest.raises(ValueError, match="NUL"):
        printable_name("public", bad)
    with pytest.raises(ValueError, match="NUL"):
        printable_name(bad, "orders")


@pytest.mark.parametrize(
    "text",
    ["", "orders", "public.", ".orders", "a.b.c", "public.Orders", 'public."a"b"', 'public.""', "a.b\n"],
)
def test_what_was_not_printed_by_us_is_refused(text: str):
    with pytest.raises(ValueError, match="not a table name"):
        split_name(text)


@given(OIDS, ATTNUMS)
def test_a_tag_says_the_attnum_to_its_own_table_alone(oid: int, attnum: int):
    tag = tagged_comment(oid, ColumnSchema("c", attnum, 25))
    assert tagged_attnum(oid, tag) == attnum
    assert tagged_attnum(oid + 1, tag) is None


@given(OIDS, ATTNUMS, st.text())
def test_what_people_write_behind_a_tag_does_not_matter(oid: int, attnum: int, said: str):
    assert tagged_attnum(oid, tagged_comment(oid, ColumnSchema("c", attnum, 25, comment=said))) == attnum


@pytest.mark.parametrize(
    "comment",
    [None, "", "a note", "pg:", "pg:1", "pg:1.", "pg:1.2x", "x pg:1.2", "PG:1.2", "pg:1.2.3", "pg:-1.2"],
)
def test_what_is_no_tag_says_no_attnum(comment: str | None):
    assert tagged_attnum(1, comment) is None

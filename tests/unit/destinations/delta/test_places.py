"""Where tables live: two names never share a place, and none leaves its lake."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl.destinations.delta.config import DeltaSettings
from etl.destinations.delta.places import Places, escaped
from etl.destinations.naming import printable_name

#: Letters of which names that look like escapes are made, and any others.
TRICKY = st.text(st.sampled_from("_x019afg\x01é/.AX"), min_size=1, max_size=12)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), min_size=1, max_size=63)
LAKE, CATALOG = Places(DeltaSettings(path="/lake/")), Places(DeltaSettings(catalog="my`cat"))


@given(TRICKY | NAMES, TRICKY | NAMES)
@example("_x1é", "\x01xe9_")
@example("_xe9_", "é")
@example("_x_", "_x5f_x_")
def test_two_names_never_become_one(one: str, other: str):
    assert (escaped(one) == escaped(other)) == (one == other)


def test_all_short_names_of_the_letters_of_an_escape_stay_apart():
    names = [""]
    for _ in range(6):
        names += [name + letter for name in names for letter in "_x1\x01"]
    distinct = set(names) - {""}
    assert len({escaped(name) for name in distinct}) == len(distinct)


@given(NAMES | st.text(st.characters(min_codepoint=0x10000, max_codepoint=0x10FFFF), min_size=15))
def test_any_name_is_written_in_letters_of_every_file_system_and_never_too_long(name: str):
    assert re.fullmatch("[A-Za-z0-9_]{1,200}", escaped(name))


def test_long_names_that_begin_alike_stay_apart():
    assert escaped("é" * 62 + "a") != escaped("é" * 62 + "b")


@pytest.mark.parametrize("name", ["orders", "Orders", "ORDERS_2", "_", "x", "_x", "a_x1", "0"])
def test_a_plain_name_is_kept_with_its_case(name: str):
    assert escaped(name) == name


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("..", "_x2e__x2e_"),
        ("a/b", "a_x2f_b"),
        ("../../etc", "_x2e__x2e__x2f__x2e__x2e__x2f_etc"),
        ("a.b", "a_x2e_b"),
        ("`", "_x60_"),
        (" ", "_x20_"),
        ("é", "_xe9_"),
        ("😀", "_x1f600_"),
        ("_xe9_", "_x5f_xe9_"),
        ("%2e%2e", "_x25_2e_x25_2e"),
    ],
)
def test_what_could_lead_elsewhere_is_written_by_its_code(name: str, written: str):
    assert escaped(name) == written


@given(NAMES, NAMES)
def test_a_table_of_a_path_is_two_folders_below_the_root(schema: str, table: str):
    place = LAKE.table(printable_name(schema, table))
    assert place.folder is not None
    assert place.folder.split("/") == ["", "lake", escaped(schema), escaped(table)]
    assert place.sql == f"delta.`{place.folder}`"


@given(NAMES, NAMES)
def test_a_table_of_a_catalog_has_three_quoted_names_and_no_folder(schema: str, table: str):
    place = CATALOG.table(printable_name(schema, table))
    assert place.sql == f"`my``cat`.`{escaped(schema)}`.`{escaped(table)}`"
    assert place.folder is None


def test_only_a_catalog_has_namespaces():
    assert CATALOG.is_catalog
    assert CATALOG.namespace('public."My table"') == "`my``cat`.`public`"
    assert CATALOG.housekeeping_namespace() == "`my``cat`.`_etl`"
    assert not LAKE.is_catalog
    assert LAKE.namespace("public.orders") is None
    assert LAKE.housekeeping_namespace() is None


def test_our_own_tables_are_in_the_reserved_schema():
    assert LAKE.housekeeping("control").folder == "/lake/_etl/control"
    assert CATALOG.housekeeping("control").sql == "`my``cat`.`_etl`.`control`"


@given(NAMES.filter(lambda name: name.lower() != "_etl"))
def test_no_other_schema_has_the_folder_of_our_own_tables(schema: str):
    assert escaped(schema).lower() != "_etl"

"""Which Arrow type carries a column, and that the registry says of Postgres' types what a server says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from etl.schema.types import (
    ArrayForm,
    NumericForm,
    NumericModifier,
    TypeCategory,
    TypeOptions,
    arrow_type,
    element_type,
    known_types,
    numeric_modifier,
    pg_type,
)
from etl.testing.postgres import PostgresServer

TEXT = TypeOptions(numeric=NumericForm.TEXT, arrays=ArrayForm.TEXT)


def typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


SCALARS = [
    ("bool", 16, pa.bool_()),
    ("bytea", 17, pa.binary()),
    ("char", 18, pa.string()),
    ("name", 19, pa.string()),
    ("int8", 20, pa.int64()),
    ("int2", 21, pa.int16()),
    ("int4", 23, pa.int32()),
    ("text", 25, pa.string()),
    ("oid", 26, pa.uint32()),
    ("json", 114, pa.string()),
    ("xml", 142, pa.string()),
    ("point", 600, pa.string()),
    ("box", 603, pa.string()),
    ("cidr", 650, pa.string()),
    ("float4", 700, pa.float32()),
    ("float8", 701, pa.float64()),
    ("money", 790, pa.string()),
    ("macaddr", 829, pa.string()),
    ("inet", 869, pa.string()),
    ("bpchar", 1042, pa.string()),
    ("varchar", 1043, pa.string()),
    ("date", 1082, pa.date32()),
    ("time", 1083, pa.time64("us")),
    ("timestamp", 1114, pa.timestamp("us")),
    ("timestamptz", 1184, pa.timestamp("us", tz="UTC")),
    ("interval", 1186, pa.string()),
    ("timetz", 1266, pa.string()),
    ("bit", 1560, pa.string()),
    ("varbit", 1562, pa.string()),
    ("numeric", 1700, pa.string()),
    ("uuid", 2950, pa.string()),
    ("tsvector", 3614, pa.string()),
    ("jsonb", 3802, pa.string()),
    ("int4range", 3904, pa.string()),
    ("int4multirange", 4451, pa.string()),
]


@pytest.mark.parametrize(("name", "oid", "expected"), SCALARS, ids=[row[0] for row in SCALARS])
def test_a_built_in_type_has_its_arrow_type(name: str, oid: int, expected: pa.DataType):
    assert pg_type(oid).name == name
    assert arrow_type(oid) == expected


@pytest.mark.parametrize(
    ("oid", "modifier", "expected"),
    [
        (1000, -1, pa.list_(pa.bool_())),
        (1001, -1, pa.list_(pa.binary())),
        (1007, -1, pa.list_(pa.int32())),
        (1009, -1, pa.list_(pa.string())),
        (199, -1, pa.list_(pa.string())),
        (1185, -1, pa.list_(pa.timestamp("us", tz="UTC"))),
        (1231, -1, pa.list_(pa.string())),
        (1231, typmod(12, 2), pa.list_(pa.decimal128(12, 2))),
        (3905, -1, pa.list_(pa.string())),
    ],
)
def test_an_array_of_a_known_type_is_a_list_of_its_elements(oid: int, modifier: int, expected: pa.DataType):
    assert arrow_type(oid, modifier) == expected


@pytest.mark.parametrize("oid", [1017, 1018, 1019, 1020, 1027, 629, 719])
def test_an_array_of_a_geometric_type_stays_text(oid: int):
    assert pg_type(oid).category is TypeCategory.ARRAY
    assert element_type(oid) is None
    assert arrow_type(oid) == pa.string()


@pytest.mark.parametrize("oid", [0, 16384, 2**32 - 1])
def test_a_type_we_do_not_know_is_text(oid: int):
    assert pg_type(oid).category is TypeCategory.UNKNOWN
    assert element_type(oid) is None
    assert arrow_type(oid) == pa.string()


@pytest.mark.parametrize(
    ("precision", "scale", "expected"),
    [
        (1, 0, pa.decimal128(1, 0)),
        (12, 2, pa.decimal128(12, 2)),
        (38, 0, pa.decimal128(38, 0)),
        (38, 38, pa.decimal128(38, 38)),
        (39, 0, pa.string()),
        (1000, 1000, pa.string()),
        (5, -2, pa.string()),
        (5, -1000, pa.string()),
        (2, 5, pa.string()),
    ],
)
def test_numeric_is_a_decimal_exactly_where_decimal128_holds_every_finite_value(
    precision: int, scale: int, expected: pa.DataType
):
    assert numeric_modifier(typmod(precision, scale)) == NumericModifier(precision, scale)
    assert arrow_type(1700, typmod(precision, scale)) == expected


def test_numeric_without_a_modifier_has_no_precision():
    assert numeric_modifier(-1) is None


def test_the_options_turn_numerics_and_arrays_into_text():
    assert arrow_type(1700, typmod(12, 2), TEXT) == pa.string()
    assert arrow_type(1007, -1, TEXT) == pa.string()
    assert arrow_type(1231, typmod(12, 2), TypeOptions(numeric=NumericForm.TEXT)) == pa.list_(pa.string())
    assert arrow_type(23, -1, TEXT) == pa.int32()


def test_the_registry_is_what_the_server_says_of_its_types(postgres: PostgresServer):
    with postgres.connect() as connection:
        rows = connection.execute(
            "SELECT oid::int, typname, typarray::int, typelem::int, typdelim FROM pg_type WHERE oid < 10000"
        ).fetchall()
    server = {oid: (name, array, element, delimiter) for oid, name, array, element, delimiter in rows}
    for known in known_types():
        name, _, element, _ = server[known.oid]
        assert known.name == name
        if known.category is TypeCategory.ARRAY:
            assert known.element_oid == element
            assert server[element][1] == known.oid
    lists = {t.oid for t in known_types() if element_type(t.oid) is not None}
    assert {delimiter for oid, (*_, delimiter) in server.items() if oid in lists} == {","}


def test_every_base_type_of_the_server_that_a_column_can_have_is_known(postgres: PostgresServer):
    with postgres.connect() as connection:
        rows = connection.execute(
            "SELECT oid::int FROM pg_type WHERE oid < 10000 AND typtype IN ('b', 'r', 'm') AND typarray <> 0"
        ).fetchall()
    assert {oid for (oid,) in rows} <= {known.oid for known in known_types()}


@pytest.mark.parametrize(
    "declared", ["numeric(12,2)", "numeric(38,38)", "numeric(5,-2)", "numeric(2,5)", "numeric"]
)
def test_the_modifier_is_decoded_as_the_server_packed_it(postgres: PostgresServer, declared: str):
    with postgres.connect() as connection:
        connection.execute(f"CREATE TEMPORARY TABLE t (v {declared})")
        modifier, formatted = connection.execute(
            "SELECT atttypmod, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = 't'::regclass AND attname = 'v'"
        ).fetchone()
    decoded = numeric_modifier(modifier)
    assert formatted == ("numeric" if decoded is None else f"numeric({decoded.precision},{decoded.scale})")

"""What a message says about a table, and in which bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from etl.source.install import install
from etl.testing.postgres import PostgresServer
from tests.contract.trigger_stream import Source, column, names

# --- what it says -----------------------------------------------------------------------------------------------


def test_the_payload_has_exactly_these_fields(orders: Source):
    orders.run("ALTER TABLE orders ADD COLUMN note text")
    payload = orders.message()
    assert list(payload) == [
        "version",
        "trigger_event",
        "command_tag",
        "current_query",
        "current_database",
        "server_version_num",
        "xid",
        "subxid",
        "nspname",
        "relname",
        "oid",
        "relkind",
        "relnatts",
        "commands",
        "identity",
        "columns",
    ]
    assert payload["version"] == 1
    assert payload["current_query"] == "ALTER TABLE orders ADD COLUMN note text"
    assert payload["current_database"] == orders.database.name
    assert payload["server_version_num"] == orders.connection.info.server_version
    assert payload["relkind"] == "r"


def test_the_command_is_described_as_postgres_describes_it(orders: Source):
    orders.run("ALTER TABLE orders RENAME COLUMN state TO status")
    assert orders.message()["commands"] == [
        {
            "classid": 1259,
            "objid": orders.oid("orders"),
            "objsubid": 2,
            "command_tag": "ALTER TABLE",
            "object_type": "table column",
            "schema_name": "public",
            "object_identity": "public.orders.status",
            "object_address_type": "table column",
            "object_address_names": ["public", "orders", "status"],
            "object_address_args": [],
        }
    ]


def test_a_column_has_exactly_these_fields(orders: Source):
    orders.run("ALTER TABLE orders ALTER COLUMN state SET DEFAULT 'open'")
    assert column(orders.message(), "state") == {
        "attname": "state",
        "attnum": 2,
        "atttypid": 25,
        "typname": "text",
        "formatted_type": "text",
        "atttypmod": -1,
        "attnotnull": False,
        "atthasdef": True,
        "default_expression": "'open'::text",
        "default_truncated": False,
        "attidentity": None,
        "atthasmissing": False,
        "missing_value": None,
        "missing_truncated": False,
    }


def test_columns_stand_by_attnum_and_dropped_ones_are_left_out_but_counted(orders: Source):
    orders.run("ALTER TABLE orders DROP COLUMN state", "ALTER TABLE orders ADD COLUMN state text")
    payload = orders.messages()[-1]
    assert [(entry["attnum"], entry["attname"]) for entry in payload["columns"]] == [
        (1, "id"),
        (3, "qty"),
        (4, "state"),
    ]
    assert payload["relnatts"] == 4


def test_generated_columns_are_left_out(orders: Source):
    orders.run(
        "ALTER TABLE orders ADD COLUMN twice int GENERATED ALWAYS AS (qty * 2) STORED, ADD COLUMN z int"
    )
    assert names(orders.message()) == ["id", "state", "qty", "z"]


def test_a_generated_column_that_becomes_a_plain_one_appears(orders: Source):
    orders.run(
        "ALTER TABLE orders ADD COLUMN twice int GENERATED ALWAYS AS (qty * 2) STORED",
        "ALTER TABLE orders ALTER COLUMN twice DROP EXPRESSION",
    )
    assert [names(payload)[3:] for payload in orders.messages()] == [[], ["twice"]]


def test_a_table_that_shows_no_column_is_not_logged(orders: Source):
    orders.run("ALTER TABLE orders DROP COLUMN id, DROP COLUMN state, DROP COLUMN qty")
    assert orders.messages() == []


@pytest.mark.parametrize(
    ("ddl", "identity"),
    [
        ("SET (fillfactor = 90)", {"primary_key_attnums": [1], "relreplident": "d"}),
        ("REPLICA IDENTITY FULL", {"primary_key_attnums": [1], "relreplident": "f"}),
        ("REPLICA IDENTITY NOTHING", {"primary_key_attnums": [1], "relreplident": "n"}),
        (
            "REPLICA IDENTITY USING INDEX qty_id",
            {
                "relreplident": "i",
                "replica_identity_index_relname": "qty_id",
                "replica_identity_index_attnums": [3, 1],
            },
        ),
        ("DROP CONSTRAINT orders_pkey", {"primary_key_attnums": []}),
        (
            "DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (qty, id) DEFERRABLE",
            {"primary_key_attnums": [3, 1], "primary_key_condeferrable": True},
        ),
        ("DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id) INCLUDE (state)", {"primary_key_attnums": [1]}),
    ],
)
def test_the_identity_names_its_columns_in_key_order(orders: Source, ddl: str, identity: dict[str, Any]):
    orders.run("CREATE UNIQUE INDEX qty_id ON orders (qty, id)", f"ALTER TABLE orders {ddl}")
    without_index = {"replica_identity_index_relname": None, "replica_identity_index_attnums": []}
    assert orders.message()["identity"] == {
        "primary_key_attnums": [1],
        "primary_key_condeferrable": False,
        "relreplident": "d",
        **without_index,
        **identity,
    }


def test_a_partition_without_a_primary_key_answers_with_its_parents_by_name(source: Source):
    source.run(
        "CREATE TABLE root (a int NOT NULL, b int NOT NULL, v int) PARTITION BY RANGE (a)",
        "CREATE TABLE leaf (v int, b int NOT NULL, a int NOT NULL)",
        "ALTER TABLE root ATTACH PARTITION leaf FOR VALUES FROM (0) TO (9)",
        "ALTER TABLE ONLY root ADD PRIMARY KEY (b, a)",
    )
    assert source.value("SELECT etl.describe_table_identity('leaf'::regclass)") == {
        "primary_key_attnums": [2, 3],
        "primary_key_condeferrable": False,
        "relreplident": "d",
        "replica_identity_index_relname": None,
        "replica_identity_index_attnums": [],
    }
    source.run("ALTER TABLE leaf ADD PRIMARY KEY (a, b)")
    own = source.value("SELECT etl.describe_table_identity('leaf'::regclass)")
    assert own["primary_key_attnums"] == [3, 2]


@pytest.mark.parametrize(
    ("type_and_default", "missing"),
    [
        ("text DEFAULT 'it''s'", "it's"),
        ("int DEFAULT 7", "7"),
        ("timestamptz DEFAULT '2026-01-01 00:00+02'", "2025-12-31 22:00:00+00"),
        ("int[] DEFAULT '{1,NULL,3}'", "{1,NULL,3}"),
        ("box DEFAULT '((1,2),(3,4))'", "(3,4),(1,2)"),
        ("text DEFAULT ''", ""),
        ("bytea DEFAULT '\\xdead'", "\\xdead"),
        ("jsonb DEFAULT '{\"a\": [1, 2]}'", '{"a": [1, 2]}'),
    ],
)
def test_the_value_that_older_rows_read_is_told_while_postgres_still_knows_it(
    orders: Source, type_and_default: str, missing: str
):
    orders.run("SET timezone = 'Asia/Tokyo'", f"ALTER TABLE orders ADD COLUMN c {type_and_default}")
    payload = column(orders.message(), "c")
    assert (payload["atthasmissing"], payload["missing_value"]) == (True, missing)


def test_a_default_that_is_evaluated_once_tells_its_value(orders: Source):
    orders.run("ALTER TABLE orders ADD COLUMN at timestamptz DEFAULT now()")
    payload = column(orders.message(), "at")
    assert payload["default_expression"] == "now()"
    assert payload["missing_value"].startswith("20")


def test_a_default_that_rewrites_the_table_has_no_value_for_older_rows(orders: Source):
    orders.run("ALTER TABLE orders ADD COLUMN r float8 DEFAULT random()")
    payload = column(orders.message(), "r")
    assert (payload["atthasmissing"], payload["missing_value"]) == (False, None)


def test_a_default_reads_the_same_whatever_the_session_has_set(orders: Source):
    orders.run(
        "SET datestyle = 'SQL, DMY'",
        "SET intervalstyle = 'iso_8601'",
        "SET quote_all_identifiers = on",
        "SET bytea_output = 'escape'",
        "SET standard_conforming_strings = off",
        "SET escape_string_warning = off",
        "ALTER TABLE orders ADD COLUMN d date DEFAULT '2026-01-31', ADD COLUMN i interval DEFAULT '1 day 2 hours',"
        " ADD COLUMN b bytea DEFAULT '\\\\xde', ADD COLUMN s text DEFAULT 'a\\\\b', ADD COLUMN e int DEFAULT (1)::int",
    )
    payload = orders.message()
    assert [column(payload, name)["default_expression"] for name in "dibs"] == [
        "'2026-01-31'::date",
        "'1 day 02:00:00'::interval",
        "'\\xde'::bytea",
        "'a\\b'::text",
    ]


def test_the_copy_describes_a_table_as_the_trigger_does(orders: Source):
    orders.run(
        "ALTER TABLE orders ADD COLUMN d date DEFAULT '2026-01-31', ADD COLUMN i int GENERATED ALWAYS AS IDENTITY"
    )
    payload = orders.message()
    rows = orders.value(
        "SELECT json_agg(d) FROM (SELECT *, atttypid::bigint AS atttypid"
        " FROM etl.describe_table_schema('orders'::regclass)) d"
    )
    assert [
        {key: row[key] for key in payload["columns"][0]} | {"atttypid": int(row["atttypid"])} for row in rows
    ] == (payload["columns"])
    assert orders.value("SELECT etl.describe_table_identity('orders'::regclass)") == payload["identity"]
    assert column(payload, "i")["attidentity"] == "a"


def test_nothing_is_described_for_an_oid_that_is_no_table(source: Source):
    assert source.value("SELECT count(*) FROM etl.describe_table_schema(1)") == 0
    assert source.value("SELECT etl.describe_table_identity(1) IS NULL")


# --- encodings --------------------------------------------------------------------------------------------------


@pytest.fixture
def encoded(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Source]:
    """A database in the encoding the test names, spoken to in bytes."""
    with (
        postgres.database(
            encoding=request.param, template="template0", lc_collate="C", lc_ctype="C"
        ) as database,
        Source(database) as source,
    ):
        install(source.connection)
        source.clear()
        source.run("CREATE TABLE t (a int)", "ALTER PUBLICATION p ADD TABLE t")
        yield source


def execute_bytes(source: Source, statement: bytes) -> None:
    """The statement as the server stores it."""
    with source.database.connect(options="-c client_encoding=SQL_ASCII") as connection:
        connection.execute(statement)


@pytest.mark.parametrize("encoded", ["LATIN1"], indirect=True)
def test_a_latin1_database_is_described_in_utf8(encoded: Source):
    execute_bytes(encoded, "ALTER TABLE t ADD COLUMN café text DEFAULT 'crème'".encode("latin-1"))
    payload = encoded.message()
    assert names(payload) == ["a", "café"]
    assert column(payload, "café")["default_expression"] == "'crème'::text"
    assert "crème" in payload["current_query"]


@pytest.mark.parametrize("encoded", ["SQL_ASCII"], indirect=True)
def test_utf8_in_a_database_without_encoding_comes_through(encoded: Source):
    execute_bytes(encoded, "ALTER TABLE t ADD COLUMN café text DEFAULT 'crème'".encode())
    payload = encoded.message()
    assert column(payload, "café")["missing_value"] == "crème"


@pytest.mark.parametrize("encoded", ["SQL_ASCII"], indirect=True)
def test_other_bytes_in_the_statement_of_a_database_without_encoding_are_escaped(encoded: Source):
    execute_bytes(encoded, b"ALTER TABLE t ADD COLUMN b int /* caf\xe9 \\ */")
    payload = encoded.message()
    assert names(payload) == ["a", "b"]
    assert payload["current_query"] == "ALTER TABLE t ADD COLUMN b int /* caf\\351 \\\\ */"


@pytest.mark.parametrize("encoded", ["SQL_ASCII"], indirect=True)
def test_a_default_in_unknown_bytes_is_left_out_and_marked(encoded: Source):
    execute_bytes(
        encoded, b"ALTER TABLE t ADD COLUMN b text DEFAULT 'caf\xe9', ADD COLUMN c text DEFAULT 'plain'"
    )
    payload = encoded.message()
    marks = ("default_expression", "default_truncated", "missing_value", "missing_truncated")
    assert [column(payload, "b")[mark] for mark in marks] == [None, True, None, True]
    assert [column(payload, "c")[mark] for mark in marks] == ["'plain'::text", False, "plain", False]


@pytest.mark.parametrize("encoded", ["SQL_ASCII"], indirect=True)
def test_a_name_in_unknown_bytes_cannot_be_told_and_the_message_says_so(encoded: Source):
    execute_bytes(encoded, b'ALTER TABLE t ADD COLUMN "caf\xe9" int')
    payload = encoded.message()
    assert payload["oid"] == encoded.oid("t")
    assert payload["error"]["sqlstate"] == "22021"


@pytest.mark.parametrize("encoded", ["WIN1252"], indirect=True)
def test_a_character_that_utf8_lacks_is_left_out(encoded: Source):
    execute_bytes(encoded, b"ALTER TABLE t ADD COLUMN b text DEFAULT 'x\x81'")
    payload = encoded.message()
    assert names(payload) == ["a", "b"]
    assert column(payload, "b")["default_truncated"] is True

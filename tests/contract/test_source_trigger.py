"""The contract's rules on the event trigger at the source: what is logged, what it says, and what is left out."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tests.contract.trigger_stream import (
    PREFIX,
    Begin,
    LiveStream,
    Message,
    Relation,
    Row,
    Source,
    column,
    names,
)

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, state text DEFAULT 'new', qty int NOT NULL DEFAULT 1)"
PUBLISH_ORDERS = "ALTER PUBLICATION p ADD TABLE orders"


@pytest.fixture
def orders(source: Source) -> Source:
    """A source with a published table."""
    source.run(ORDERS, PUBLISH_ORDERS)
    source.events()
    return source


# --- what is logged ---------------------------------------------------------------------------------------------


def test_the_event_triggers_are_there_under_their_names_and_fire_always(source: Source):
    rows = source.connection.execute(
        "SELECT evtname, evtevent, evtenabled FROM pg_event_trigger ORDER BY evtname"
    ).fetchall()
    assert rows == [
        ("supabase_etl_ddl_drop_trigger", "sql_drop", "A"),
        ("supabase_etl_ddl_message_trigger", "ddl_command_end", "A"),
    ]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("ADD COLUMN note text", ["id", "state", "qty", "note"]),
        ("DROP COLUMN state", ["id", "qty"]),
        ("RENAME COLUMN state TO status", ["id", "status", "qty"]),
        ("ADD COLUMN a int, DROP COLUMN state, ADD COLUMN b int", ["id", "qty", "a", "b"]),
    ],
)
def test_an_alter_table_is_logged_once_with_the_columns_as_they_are_afterwards(
    orders: Source, change: str, expected: list[str]
):
    orders.run(f"ALTER TABLE orders {change}")
    payload = orders.message()
    assert (payload["oid"], payload["nspname"], payload["relname"]) == (
        orders.oid("orders"),
        "public",
        "orders",
    )
    assert payload["command_tag"] == "ALTER TABLE"
    assert payload["trigger_event"] == "ddl_command_end"
    assert names(payload) == expected


@pytest.mark.parametrize(
    ("change", "attribute", "expected"),
    [
        ("ALTER COLUMN state SET DEFAULT 'open'", "default_expression", "'open'::text"),
        ("ALTER COLUMN state DROP DEFAULT", "default_expression", None),
        ("ALTER COLUMN state SET NOT NULL", "attnotnull", True),
        ("ALTER COLUMN state TYPE varchar(10)", "atttypmod", 14),
        ("ALTER COLUMN state TYPE varchar(10)", "formatted_type", "character varying(10)"),
        ("ALTER COLUMN state TYPE varchar(10)", "typname", "varchar"),
    ],
)
def test_a_change_of_a_column_shows_in_the_snapshot(
    orders: Source, change: str, attribute: str, expected: object
):
    orders.run(f"ALTER TABLE orders {change}")
    assert column(orders.message(), "state")[attribute] == expected


def test_drop_not_null_shows_in_the_snapshot(orders: Source):
    orders.run("ALTER TABLE orders ALTER COLUMN qty DROP NOT NULL")
    assert column(orders.message(), "qty")["attnotnull"] is False


@pytest.mark.parametrize(
    "change",
    [
        "ALTER COLUMN state DROP NOT NULL",
        "OWNER TO CURRENT_USER",
        "ALTER COLUMN state SET STATISTICS 50",
        "ADD CONSTRAINT positive CHECK (qty > 0) NOT VALID",
        "ENABLE ROW LEVEL SECURITY",
        "SET (fillfactor = 90)",
        "ADD COLUMN IF NOT EXISTS state text",
    ],
)
def test_an_alter_table_that_changes_no_column_is_logged_all_the_same(orders: Source, change: str):
    orders.run(f"ALTER TABLE orders {change}")
    assert names(orders.message()) == ["id", "state", "qty"]


def test_a_statement_on_a_table_that_does_not_exist_is_not_logged(orders: Source):
    orders.run("ALTER TABLE IF EXISTS missing ADD COLUMN x int")
    assert orders.messages() == []


def test_a_renamed_table_is_logged_under_its_new_name_and_its_old_oid(orders: Source):
    oid = orders.oid("orders")
    orders.run("ALTER TABLE orders RENAME TO purchases")
    payload = orders.message()
    assert (payload["oid"], payload["relname"]) == (oid, "purchases")


def test_each_statement_has_a_message_of_its_own(orders: Source):
    orders.run("ALTER TABLE orders ADD COLUMN a int", "ALTER TABLE orders ADD COLUMN b int")
    assert [names(payload)[3:] for payload in orders.messages()] == [["a"], ["a", "b"]]


# --- where it stands in the stream ------------------------------------------------------------------------------


def test_the_message_stands_between_the_rows_before_and_the_relation_and_rows_after(orders: Source):
    with orders.connection.transaction():
        orders.run(
            "INSERT INTO orders (id) VALUES (1)",
            "ALTER TABLE orders ADD COLUMN note text",
            "INSERT INTO orders (id) VALUES (2)",
        )
    assert orders.shape() == "BRIMRIC"


def test_the_relation_after_the_message_has_the_columns_of_the_message(orders: Source):
    orders.run("ALTER TABLE orders ADD COLUMN note text", "INSERT INTO orders (id) VALUES (1)")
    events = orders.events()
    (message,) = (event for event in events if isinstance(event, Message))
    (relation,) = (event for event in events if isinstance(event, Relation))
    assert relation.columns == tuple(names(message.payload))
    assert events.index(message) < events.index(relation)


def test_a_change_that_is_rolled_back_is_not_logged(orders: Source):
    orders.run("BEGIN", "ALTER TABLE orders ADD COLUMN note text", "ROLLBACK")
    assert orders.shape() == ""


def test_a_change_in_a_savepoint_that_is_rolled_back_is_not_logged(orders: Source):
    with orders.connection.transaction():
        orders.run(
            "INSERT INTO orders (id) VALUES (1)",
            "SAVEPOINT s",
            "ALTER TABLE orders ADD COLUMN note text",
            "ROLLBACK TO SAVEPOINT s",
            "INSERT INTO orders (id) VALUES (2)",
        )
    assert orders.shape() == "BRIIC"


def test_a_change_in_a_subtransaction_arrives_under_the_top_transaction_in_wal_order(orders: Source):
    with orders.connection.transaction():
        orders.run(
            "INSERT INTO orders (id) VALUES (1)",
            """DO $$ BEGIN
                   INSERT INTO orders (id) VALUES (2);
                   ALTER TABLE orders ADD COLUMN note text;
                   INSERT INTO orders (id) VALUES (3);
               EXCEPTION WHEN division_by_zero THEN NULL; END $$""",
            "INSERT INTO orders (id) VALUES (4)",
        )
        xid = int(orders.value("SELECT pg_current_xact_id()::text"))
    events = orders.events()
    assert [type(event) for event in events if isinstance(event, Row | Message)] == [
        Row,
        Row,
        Message,
        Row,
        Row,
    ]
    (begin,) = (event for event in events if isinstance(event, Begin))
    (message,) = (event for event in events if isinstance(event, Message))
    assert begin.xid == xid & 0xFFFFFFFF
    assert message.payload["xid"] == xid
    assert message.payload["subxid"] > begin.xid


def test_logging_a_change_takes_no_subtransaction_of_its_own(orders: Source):
    with orders.connection.transaction():
        orders.run("ALTER TABLE orders ADD COLUMN note text", "ALTER TABLE orders DROP COLUMN note")
        numbers = orders.value(
            "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'transactionid'"
        )
    assert numbers == 1
    first, second = orders.messages()
    assert first["subxid"] == second["subxid"] == first["xid"] & 0xFFFFFFFF


def test_when_a_transaction_in_progress_is_streamed_the_message_names_the_subtransaction_that_is_aborted(
    orders: Source,
):
    stream = LiveStream(orders)
    rows = "INSERT INTO orders (id, state) SELECT g, repeat('x', 200) FROM generate_series({}, {}) g"
    with orders.connection.transaction():
        orders.run(
            rows.format(1, 2000),
            "SAVEPOINT outer_one",
            "SAVEPOINT inner_one",
            "ALTER TABLE orders ADD COLUMN note text",
            "RELEASE SAVEPOINT inner_one",
            rows.format(2001, 4000),
        )
        message = stream.until(b"M")[-1]
        orders.run("ROLLBACK TO SAVEPOINT outer_one")
    aborts = [data for data in stream.until(b"c") if data[:1] == b"A"]
    stream.close()
    payload = Message(transactional=True, prefix=PREFIX, content=message[14:].partition(b"\0")[2][4:]).payload
    top = payload["xid"] & 0xFFFFFFFF
    # Postgres labels the message with the number of the whole transaction, and aborts name the subtransactions
    assert int.from_bytes(message[1:5], "big") == top
    assert payload["subxid"] != top
    assert (top, payload["subxid"]) in [struct.unpack("!II", data[1:9]) for data in aborts]


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


# --- what is left out -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("create", "publish"),
    [
        ("CREATE TEMPORARY TABLE t (a int)", "ALTER PUBLICATION everything SET (publish = 'insert')"),
        ("CREATE UNLOGGED TABLE t (a int)", "ALTER PUBLICATION everything SET (publish = 'insert')"),
        ("CREATE TABLE t (a int)", "DROP PUBLICATION everything"),
        ("CREATE VIEW t AS SELECT 1 AS a", "ALTER PUBLICATION everything SET (publish = 'insert')"),
        (
            "CREATE MATERIALIZED VIEW t AS SELECT 1 AS a",
            "ALTER PUBLICATION everything SET (publish = 'insert')",
        ),
    ],
)
def test_temporary_unlogged_and_unpublished_tables_and_views_are_not_logged(
    source: Source, create: str, publish: str
):
    source.run(
        "CREATE PUBLICATION everything FOR ALL TABLES", create, publish, "ALTER TABLE t RENAME COLUMN a TO b"
    )
    assert source.messages() == []


def test_tables_of_schema_etl_itself_are_not_logged(source: Source):
    source.run(
        "CREATE PUBLICATION everything FOR ALL TABLES", "ALTER TABLE etl.source_migrations ADD COLUMN x int"
    )
    assert source.messages() == []


def test_what_the_script_of_an_extension_does_is_not_logged(orders: Source):
    extension = orders.value(
        "SELECT name FROM pg_available_extensions WHERE installed_version IS NULL AND NOT name ~ 'pl' ORDER BY 1 LIMIT 1"
    )
    orders.run(
        # a statement that somebody's own event trigger runs while the script creates functions
        """CREATE FUNCTION meddle() RETURNS event_trigger LANGUAGE plpgsql AS $$
           BEGIN ALTER TABLE public.orders ADD COLUMN IF NOT EXISTS meddled int; END $$""",
        """CREATE EVENT TRIGGER meddle ON ddl_command_end WHEN TAG IN ('CREATE FUNCTION', 'CREATE TYPE', 'CREATE VIEW')
           EXECUTE FUNCTION meddle()""",
        f'CREATE EXTENSION "{extension}"',
        "DROP EVENT TRIGGER meddle",
    )
    assert orders.value("SELECT count(*) FROM pg_attribute WHERE attname = 'meddled'") == 1
    assert orders.messages() == []


@pytest.mark.parametrize("value", ["true", "on", "1", "yes", "t", " TRUE ", "On"])
def test_a_session_can_opt_out(orders: Source, value: str):
    orders.run(
        f"SET supabase_etl.skip_ddl_log = '{value}'",
        "ALTER TABLE orders ADD COLUMN a int",
        "DROP TABLE orders",
    )
    assert orders.messages() == []


@pytest.mark.parametrize("value", ["", "false", "off", "0", "no", "f", "banana", "2", "'"])
def test_anything_else_does_not_opt_out_and_never_makes_a_statement_fail(orders: Source, value: str):
    orders.connection.execute("SELECT set_config('supabase_etl.skip_ddl_log', %s, false)", (value,))
    orders.run("ALTER TABLE orders ADD COLUMN a int")
    assert orders.tables() == ["public.orders"]


@pytest.mark.parametrize(
    "leave_behind", ["SET LOCAL supabase_etl.skip_ddl_log = 'true'", "RESET supabase_etl.skip_ddl_log"]
)
def test_the_empty_string_that_a_setting_leaves_behind_does_not_opt_out(orders: Source, leave_behind: str):
    orders.run("BEGIN", leave_behind, "COMMIT", "ALTER TABLE orders ADD COLUMN a int")
    assert orders.tables() == ["public.orders"]

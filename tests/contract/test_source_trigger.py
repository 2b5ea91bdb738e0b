"""The contract's rules on the event trigger at the source: what is logged, what it says, and what is left out."""

from __future__ import annotations

import struct

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

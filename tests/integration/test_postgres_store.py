"""What a state store in Postgres owes beyond the suite: broken connections, lost locks, rights and odd servers."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from etl.errors import PipelineActiveError, StoreError, StoreUnavailableError
from etl.lsn import ORDINAL_RULE, Lsn
from etl.store.base import TableState, TableStateRecord, TableVerb
from etl.store.connection import Connection, StoreSession
from etl.store.ownership import fence, lock_key, take_epoch
from etl.store.postgres import PostgresStore
from etl.testing.postgres import Database, start_postgres
from etl.testing.store_samples import EXACT_SCHEMAS, OID, fill, metadata

NAME = "supabase_etl_replicator_store:1"
LOCK_NAME = f"{NAME}:lock"

HOLDER = """
import sys
from etl.store.connection import Connection, StoreSession
from etl.store.ownership import fence, lock_key, take_epoch
from etl.store.postgres import PostgresStore
store = PostgresStore(sys.argv[1], 1)
store.acquire()
print("acquired", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def store(database: Database) -> Iterator[PostgresStore]:
    """A store that has pipeline 1."""
    with_pipeline = PostgresStore(database.dsn, 1)
    with_pipeline.acquire()
    yield with_pipeline
    with_pipeline.close()


@pytest.fixture
def rival(database: Database) -> Iterator[PostgresStore]:
    """Another store of pipeline 1."""
    other = PostgresStore(database.dsn, 1)
    yield other
    other.close()


def terminate(database: Database, application_name: str) -> None:
    """End a session of the store, and wait until it is gone."""
    with database.connect() as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = %s",
            (application_name,),
        ).fetchall()
    assert ended == [(True,)]


def sessions(database: Database, count: int) -> list[str]:
    """The store's sessions, once there are no more than `count`: a closed one is noticed a little later."""
    with database.connect(application_name="observer") as connection:
        for _ in range(1000):
            rows = connection.execute(
                "SELECT application_name FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name LIKE 'supabase%' ORDER BY 1"
            ).fetchall()
            if len(rows) <= count:
                break
            connection.execute("SELECT pg_sleep(0.01)")
    return [row[0] for row in rows]


# --- connections ----------------------------------------------------------------------------------------------


def test_sessions_carry_the_name_of_their_pipeline_and_end_with_the_store(
    database: Database, store: PostgresStore
) -> None:
    assert sessions(database, 2) == [NAME, LOCK_NAME]
    store.close()
    assert sessions(database, 0) == []


def test_sessions_do_not_wait_for_ever(store: PostgresStore) -> None:
    connection = store._session.connection
    limits = {
        name: connection.execute(f"SHOW {name}").fetchone()
        for name in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
    }
    assert limits == {
        "statement_timeout": ("30s",),
        "lock_timeout": ("10s",),
        "idle_in_transaction_session_timeout": ("1min",),
    }


def test_a_broken_connection_is_replaced_in_silence(database: Database, store: PostgresStore) -> None:
    fill(store)
    terminate(database, NAME)
    store.save_progress(Lsn(200))
    terminate(database, NAME)
    assert store.progress() == 200
    terminate(database, NAME)
    assert store.acquire() > 0


def test_a_connection_that_breaks_inside_a_write_loses_and_doubles_nothing(
    database: Database, store: PostgresStore
) -> None:
    store.set_table_state(TableStateRecord(OID, TableState.INIT))
    with database.connect() as connection:
        # a sequence remembers that it has cut once, although the transaction it did that in is undone
        connection.execute(
            "CREATE SEQUENCE public.cuts;"
            "CREATE FUNCTION public.cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            "  IF nextval('public.cuts') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
            "  RETURN NULL; END $$;"
            "CREATE TRIGGER cut AFTER INSERT ON etl.replication_state EXECUTE FUNCTION public.cut()"
        )
        store.set_table_state(TableStateRecord(OID, TableState.DATA_SYNC))
        assert connection.execute("SELECT last_value FROM public.cuts").fetchone() == (2,)
    states = [kept.state for kept in store.table_state_history(OID)]
    assert states == [TableState.INIT, TableState.DATA_SYNC]


def test_a_server_that_is_away_is_worth_waiting_for(database: Database) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        store = PostgresStore(make_conninfo(database.dsn, port=unused.getsockname()[1]), 1)
        with pytest.raises(StoreUnavailableError, match="refused"):
            store.acquire()


def test_a_store_survives_a_restart_of_its_server() -> None:
    with start_postgres(own=True) as server, server.database() as database:
        store = PostgresStore(database.dsn, 1)
        epoch = store.acquire()
        fill(store)
        server.stop("immediate")
        for use in (store.progress, lambda: store.save_progress(Lsn(300)), store.acquire):
            with pytest.raises(StoreUnavailableError):
                use()
        server.start()
        store.save_progress(Lsn(300))
        assert store.progress() == 300
        assert store.acquire() > epoch
        store.close()


# --- ownership ------------------------------------------------------------------------------------------------


def test_a_lost_lock_is_taken_again(database: Database, store: PostgresStore, rival: PostgresStore) -> None:
    terminate(database, LOCK_NAME)
    store.save_progress(Lsn(1))
    assert sessions(database, 2) == [NAME, LOCK_NAME]
    with pytest.raises(PipelineActiveError):
        rival.acquire()


def test_a_lost_lock_that_another_took_stops_every_write(
    database: Database, store: PostgresStore, rival: PostgresStore
) -> None:
    terminate(database, LOCK_NAME)
    rival.acquire()
    fill(rival)
    for write in (lambda: store.save_progress(Lsn(999)), lambda: store.delete_table(OID), store.destroy):
        with pytest.raises(PipelineActiveError, match=socket.gethostname()):
            write()
    with pytest.raises(PipelineActiveError):
        store.acquire()
    assert rival.progress() == 100
    assert len(rival.schemas()) == 2


def test_a_lock_that_another_took_and_gave_back_does_not_make_an_old_epoch_good(
    database: Database, store: PostgresStore, rival: PostgresStore
) -> None:
    terminate(database, LOCK_NAME)
    between = rival.acquire()
    rival.save_progress(Lsn(50))
    rival.close()
    with pytest.raises(PipelineActiveError):
        store.save_progress(Lsn(999))
    assert store.progress() == 50
    assert store.acquire() > between
    store.save_progress(Lsn(999))


def test_the_next_epoch_waits_for_a_write_in_flight(database: Database, store: PostgresStore) -> None:
    epoch = store.acquire()
    with database.connect(autocommit=False) as writing, database.connect() as taking:
        fence(writing, 1, epoch)
        taking.execute("SET lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_epoch(taking, 1)
        writing.rollback()
        assert take_epoch(taking, 1) > epoch


def test_a_killed_holder_leaves_the_pipeline_to_the_next(database: Database, rival: PostgresStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, database.dsn], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "acquired\n"
        with pytest.raises(PipelineActiveError, match=f"process {holder.pid} on {socket.gethostname()}"):
            rival.acquire()
        with database.connect() as connection:
            backend = connection.execute(
                "SELECT pid FROM pg_stat_activity WHERE application_name = %s", (LOCK_NAME,)
            ).fetchone()
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            # the server notices on its own; this waits for it, and ends nothing that is still alive
            connection.execute("SELECT pg_terminate_backend(%s, 10000)", backend)
    assert rival.acquire() > 0


def test_the_lock_is_found_by_the_name_of_its_session(database: Database, store: PostgresStore) -> None:
    with database.connect() as connection:
        held = connection.execute(
            "SELECT a.application_name, (l.classid::bigint << 32) | l.objid::bigint"
            " FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory'"
        ).fetchall()
    assert held == [(LOCK_NAME, lock_key(1))]
    assert lock_key(1) == -7910832772852360972


def test_a_restored_backup_does_not_take_the_epoch_back(database: Database, store: PostgresStore) -> None:
    before = store.acquire()
    with database.connect() as connection:
        connection.execute("UPDATE etl.pipelines SET epoch = 3")
    assert store.acquire() > before


def test_a_clock_that_went_back_does_not_take_the_epoch_back(
    database: Database, store: PostgresStore
) -> None:
    with database.connect() as connection:
        connection.execute("UPDATE etl.pipelines SET epoch = 9000000000000000")
    assert store.acquire() == 9000000000000001


def test_state_counted_by_another_ordinal_rule_is_refused(
    database: Database, store: PostgresStore, rival: PostgresStore
) -> None:
    epoch = store.acquire()
    store.close()
    with database.connect() as connection:
        connection.execute("UPDATE etl.pipelines SET ordinal_rule = %s", (ORDINAL_RULE + 1,))
        with pytest.raises(StoreError, match=f"rule {ORDINAL_RULE + 1}") as refused:
            rival.acquire()
        assert refused.value.hint
        assert sessions(database, 1) == [NAME], "a refused store keeps the lock from nobody"
        assert connection.execute("SELECT epoch FROM etl.pipelines").fetchone() == (epoch,)


# --- rights and settings --------------------------------------------------------------------------------------


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role without any right, named so that quoting matters."""
    name = f"etl Reader {database.name}"
    with database.connect() as connection:
        connection.execute(f"CREATE ROLE \"{name}\" LOGIN PASSWORD 'hunter2'")
        yield name
        connection.execute(f'DROP OWNED BY "{name}"; DROP ROLE "{name}"')


def test_a_missing_right_to_create_names_the_grant_that_helps(database: Database, role: str) -> None:
    store = PostgresStore(make_conninfo(database.dsn, user=role, password="hunter2"), 1)
    with pytest.raises(StoreError, match="permission denied for database") as refused:
        store.acquire()
    grant = f'GRANT CREATE ON DATABASE "{database.name}" TO "{role}"'
    assert grant in refused.value.hint
    with database.connect() as connection:
        connection.execute(grant)
    store.acquire()
    fill(store)
    store.close()


def test_a_role_that_may_only_use_a_store_that_is_there_runs_a_pipeline(
    database: Database, store: PostgresStore, role: str
) -> None:
    store.close()
    theirs = PostgresStore(make_conninfo(database.dsn, user=role, password="hunter2"), 1)
    with pytest.raises(StoreError, match="permission denied for schema") as refused:
        theirs.acquire()
    _, _, grants = refused.value.hint.partition("where schema etl is there, ")
    with database.connect() as connection:
        connection.execute(grants.replace("USAGE, CREATE", "USAGE"))
    theirs.acquire()
    fill(theirs)
    theirs.close()


def test_a_role_that_may_only_add_requests_can_ask_and_do_nothing_else(
    database: Database, store: PostgresStore, role: str
) -> None:
    with database.connect() as connection:
        connection.execute(
            f'GRANT USAGE ON SCHEMA etl TO "{role}"; GRANT SELECT ON ALL TABLES IN SCHEMA etl TO "{role}";'
            f' GRANT INSERT ON etl.table_requests TO "{role}"'
        )
    asking = PostgresStore(make_conninfo(database.dsn, user=role, password="hunter2"), 1)
    number = asking.request(OID, TableVerb.PAUSE)
    assert [asked.id for asked in store.requests()] == [number]
    store.settle_request(number, "paused")
    assert asking.request_outcome(number) == "paused"
    owner = asking.owner()
    assert owner is not None
    assert owner.holder is not None
    store.close()
    with pytest.raises(StoreError, match="permission denied"):
        asking.acquire()
    asking.close()


def test_a_store_that_was_never_set_up_says_so(database: Database) -> None:
    store = PostgresStore(database.dsn, 1)
    with pytest.raises(StoreError, match="does not exist") as missing:
        store.table_states()
    assert "etl init" in missing.value.hint
    store.close()


def test_a_server_that_takes_no_writes_is_refused_with_where_to_look(database: Database) -> None:
    def write(connection: Connection) -> None:
        connection.execute("SET TRANSACTION READ ONLY")
        connection.execute("CREATE TABLE public.any (id int)")

    session = StoreSession(database.dsn, "read-only")
    with pytest.raises(StoreError, match="read-only") as refused:
        session.run(write)
    assert "primary" in refused.value.hint
    session.close()


def test_a_database_that_is_read_only_by_default_is_written_all_the_same(database: Database) -> None:
    store = PostgresStore(make_conninfo(database.dsn, options="-c default_transaction_read_only=on"), 1)
    store.acquire()
    store.save_progress(Lsn(7))
    assert store.progress() == Lsn(7)
    store.close()


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"dbname": "no such database"}, "does not exist"),
        ({"user": "no such role"}, "no such role"),
        ({"sslmode": "verify-full"}, "SSL|root certificate"),
    ],
)
def test_a_refusal_that_waiting_does_not_heal_is_not_waited_for(
    database: Database, changed: dict[str, str], expected: str
) -> None:
    with pytest.raises(StoreError, match=expected) as refused:
        PostgresStore(make_conninfo(database.dsn, **changed), 1).acquire()
    assert not isinstance(refused.value, StoreUnavailableError)
    assert refused.value.hint


@pytest.mark.parametrize(
    "conninfo",
    ["host=x pass word=hunter2", "postgresql://u:hunter2%zz@h/db", "hunter2"],
)
def test_a_malformed_connection_string_is_not_repeated(conninfo: str) -> None:
    with pytest.raises(StoreError) as refused:
        PostgresStore(conninfo, 1)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_parameters_do_as_well_as_a_string(database: Database) -> None:
    parameters = {key: str(value) for key, value in conninfo_to_dict(database.dsn).items()}
    store = PostgresStore(parameters, 1)
    assert store.acquire() > 0
    store.close()


HOSTILE_SETTINGS = {
    "DateStyle": "SQL, DMY",
    "TimeZone": "Asia/Kathmandu",
    "search_path": "nowhere",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "default_transaction_isolation": "serializable",
    "synchronous_commit": "off",
    "client_encoding": "LATIN1",
    "row_security": "off",
    "default_transaction_deferrable": "on",
}


def test_the_settings_of_a_database_do_not_change_what_is_kept(database: Database) -> None:
    with database.connect() as connection:
        for setting, value in HOSTILE_SETTINGS.items():
            connection.execute(f"ALTER DATABASE {database.name} SET {setting} = '{value}'")
    store = PostgresStore(database.dsn, 1)
    store.acquire()
    for schema in EXACT_SCHEMAS.values():
        store.save_schema(schema)
        assert schema in store.schemas()
    record = metadata(replication_mask=(True, False) * 200)
    store.save_destination_record(record)
    assert store.destination_records() == {OID: record}
    store.set_table_state(TableStateRecord(OID, TableState.ERRORED, reason="a\\'b"))
    assert store.table_states()[OID].reason == "a\\'b"
    assert store._session.connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
    store.close()


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1", "UTF8"])
def test_names_are_kept_in_a_database_of_any_encoding(database: Database, encoding: str) -> None:
    schema = replace(EXACT_SCHEMAS["1600 columns"], schema="größe", name="ñandú")
    with database.server.database(encoding=encoding, template="template0", locale="C") as encoded:
        store = PostgresStore(encoded.dsn, 1)
        store.acquire()
        store.save_schema(schema)
        assert store.schemas() == [schema]
        store.close()


def test_a_name_the_database_cannot_hold_is_refused_with_the_way_out(database: Database) -> None:
    with database.server.database(encoding="LATIN1", template="template0", locale="C") as encoded:
        store = PostgresStore(encoded.dsn, 1)
        store.acquire()
        with pytest.raises(StoreError, match="no equivalent") as refused:
            store.save_schema(replace(EXACT_SCHEMAS["a table without columns"], name="🦆"))
        assert "UTF8" in refused.value.hint
        store.save_progress(Lsn(1))
        store.close()


def test_a_table_locked_by_another_is_waited_for_but_not_for_ever(
    database: Database, store: PostgresStore
) -> None:
    with database.connect(autocommit=False) as connection:
        connection.execute("LOCK TABLE etl.replication_progress")
        store._session.connection.execute("SET lock_timeout = '50ms'")
        with pytest.raises(StoreUnavailableError, match="lock timeout"):
            store.save_progress(Lsn(1))
    store.save_progress(Lsn(1))


def test_errors_name_the_place_and_no_password(database: Database) -> None:
    conninfo = make_conninfo(database.dsn, password="hunter2", dbname="nowhere")
    with pytest.raises(StoreError) as refused:
        PostgresStore(conninfo, 1).acquire()
    text = str(refused.value)
    assert f"{database.server.host}:{database.server.port}/nowhere" in text
    assert "hunter2" not in text


def test_errors_do_not_repeat_the_values_a_server_reports_as_detail(
    database: Database, store: PostgresStore
) -> None:
    with database.connect() as connection:
        connection.execute(
            "CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE 'refused' USING DETAIL = 'Key (email)=(ada@example.com)'; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON etl.replication_progress EXECUTE FUNCTION public.refuse()"
        )
    with pytest.raises(StoreError, match="refused") as refused:
        store.save_progress(Lsn(1))
    assert "ada@example.com" not in str(refused.value)


def test_history_is_a_chain_that_ends_at_the_first_state(database: Database, store: PostgresStore) -> None:
    for state in (TableState.INIT, TableState.DATA_SYNC, TableState.FINISHED_COPY):
        store.set_table_state(TableStateRecord(OID, state))
    with database.connect() as connection:
        rows = connection.execute(
            "SELECT r.state::text, p.state::text, r.is_current"
            " FROM etl.replication_state r LEFT JOIN etl.replication_state p ON p.id = r.prev ORDER BY r.id"
        ).fetchall()
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("UPDATE etl.replication_state SET is_current = true")
    assert rows == [
        ("init", None, False),
        ("data_sync", "init", False),
        ("finished_copy", "data_sync", True),
    ]

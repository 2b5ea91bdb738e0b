"""The Postgres a test gets is real, decodes logically, and survives what tests do to it."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import psycopg
import pytest

from etl.testing import cluster as clusters
from etl.testing.cluster import Cluster, everyone_can_read, find_wheel
from etl.testing.errors import PostgresUnavailableError
from etl.testing.postgres import DSN_VARIABLE, PROVIDER_VARIABLE, Database, PostgresServer, start_postgres


def slots(server: PostgresServer) -> list[str]:
    with server.connect() as connection:
        return [row[0] for row in connection.execute("SELECT slot_name FROM pg_replication_slots")]


def test_the_server_of_the_session_decodes_logically(postgres: PostgresServer):
    with postgres.connect() as connection:
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_a_database_is_empty_and_has_a_name_of_its_own(database: Database, postgres: PostgresServer):
    with postgres.database() as other, other.connect() as connection:
        assert other.name != database.name
        assert connection.execute("SELECT current_database()").fetchone() == (other.name,)
        assert (
            connection.execute("SELECT FROM pg_class WHERE relnamespace = 'public'::regnamespace").fetchall()
            == []
        )


def test_a_database_takes_the_options_of_create_database(postgres: PostgresServer):
    with postgres.database(template="template0", encoding="LATIN1", connection_limit=3) as database:
        with database.connect() as connection:
            row = connection.execute(
                "SELECT pg_encoding_to_char(encoding), datconnlimit FROM pg_database WHERE datname = current_database()"
            ).fetchone()
        assert row == ("LATIN1", 3)


def test_a_dropped_database_takes_its_slot_and_the_client_that_streams_from_it_along(
    postgres: PostgresServer,
):
    with postgres.database() as database:
        slot = f"slot_of_{database.name}"
        with database.connect() as connection:
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
            connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
        streaming = psycopg.connect(f"{database.dsn} replication=database", autocommit=True)
        streaming.pgconn.send_query(
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'everything')".encode()
        )
        assert streaming.pgconn.get_result().status == psycopg.pq.ExecStatus.COPY_BOTH
        assert slot in slots(postgres)
    streaming.close()

    assert slot not in slots(postgres)
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        database.connect()


def test_dropping_a_database_that_is_gone_is_no_error(postgres: PostgresServer):
    postgres.drop_database("etl_never_was")


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_keeps_rows_slots_and_port(mode: str):
    with start_postgres(own=True) as server, server.database() as database:
        with database.connect() as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
            connection.execute("SELECT pg_create_logical_replication_slot('kept', 'pgoutput')")

        server.restart(mode)

        with database.connect() as connection:
            assert connection.execute("SELECT answer FROM kept").fetchone() == (42,)
        assert slots(server) == ["kept"]


def test_a_stopped_server_refuses_connections_and_stopping_it_twice_is_fine():
    with start_postgres(own=True) as server:
        server.stop()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            server.connect()


def test_settings_of_the_test_come_on_top_of_ours():
    with (
        start_postgres(
            {"max_slot_wal_keep_size": "64MB", "application_name": "it's quoted"}, own=True
        ) as server,
        server.connect() as connection,
    ):
        assert connection.execute("SHOW max_slot_wal_keep_size").fetchone() == ("64MB",)
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_the_server_in_the_wheel_serves_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PROVIDER_VARIABLE, "wheel")
    with start_postgres() as server, server.connect() as connection:
        assert server.provider.startswith("wheel ")
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_a_wheel_inside_a_private_directory_serves_as_well(tmp_path: Path):
    private = tmp_path / "private"
    inside = find_wheel().copied_to(private)
    private.chmod(stat.S_IRWXU)
    assert not everyone_can_read(inside.bin_dir.parent)

    cluster = Cluster.create(inside)
    try:
        psycopg.connect(host="127.0.0.1", port=cluster.port, user="postgres", dbname="postgres").close()
        assert os.geteuid() != 0 or cluster.bin_dir != inside.bin_dir
    finally:
        cluster.destroy()
    assert not cluster.home.exists()


def test_a_server_that_was_named_is_used_and_never_stopped(
    database: Database, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(PROVIDER_VARIABLE, raising=False)
    monkeypatch.setenv(DSN_VARIABLE, database.dsn)

    with start_postgres() as named:
        assert named.provider.startswith("dsn ")
        assert (named.host, named.port) == (postgres.host, postgres.port)
        with pytest.raises(PostgresUnavailableError, match="it is not ours"):
            named.stop()

    database.connect().close()


def test_a_named_server_that_does_not_fit_fails_instead_of_giving_way_to_another(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(PROVIDER_VARIABLE, raising=False)
    monkeypatch.setenv(DSN_VARIABLE, database.dsn)

    with (
        pytest.raises(PostgresUnavailableError, match="its max_connections is 100, the test needs 7"),
        start_postgres({"max_connections": "7"}),
    ):
        pass


def test_a_failure_lists_every_way_that_was_tried_and_why_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for variable in (PROVIDER_VARIABLE, clusters.BIN_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(clusters, "SYSTEM_BINS", ("/no/such/server",))
    monkeypatch.setattr(clusters, "WHEEL", "no_such_wheel")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no.sock")

    with pytest.raises(PostgresUnavailableError) as failure, start_postgres(own=True):
        pass

    said = str(failure.value)
    assert "local: no initdb, pg_ctl and postgres together in: initdb on PATH, /no/such/server" in said
    assert "wheel: the Python package no_such_wheel is not installed" in said
    assert f"container: no container engine at unix://{tmp_path}/no.sock" in said
    assert "make setup" in said


def test_binaries_that_were_named_and_are_none_fail_instead_of_giving_way_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(PROVIDER_VARIABLE, raising=False)
    monkeypatch.setenv(clusters.BIN_VARIABLE, str(tmp_path))
    with (
        pytest.raises(PostgresUnavailableError, match=f"{clusters.BIN_VARIABLE}={tmp_path}"),
        start_postgres(own=True),
    ):
        pass


def test_a_setting_the_server_refuses_fails_with_its_own_words_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(PROVIDER_VARIABLE, "wheel")
    with tempfile.TemporaryDirectory() as homes:
        Path(homes).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", homes)
        with (
            pytest.raises(PostgresUnavailableError, match="no_such_setting"),
            start_postgres({"no_such_setting": "1"}),
        ):
            pass
        assert list(Path(homes).iterdir()) == []


def test_an_unknown_provider_is_refused_with_the_list_of_known_ones(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(PROVIDER_VARIABLE, "sqlite")
    with pytest.raises(PostgresUnavailableError, match="dsn, local, wheel, container"), start_postgres():
        pass

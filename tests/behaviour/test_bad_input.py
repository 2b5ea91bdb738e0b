"""What a user may get wrong: one clear error that says what, where and what to do, and the documented exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import psycopg
import pytest

from etl.source import install
from etl.testing.harness import PipelineUnderTest, Run
from etl.testing.postgres import Database, PostgresServer, start_postgres
from etl.testing.warm import WarmEtl

NEEDS_A_PERSON, UNAVAILABLE, CONFIGURATION, CHECK_FAILED = 1, 75, 78, 3
SLOT = "supabase_etl_apply_1"


@pytest.fixture
def pipeline(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline whose source has two tables, not published yet."""
    pipeline = PipelineUnderTest(database, tmp_path, warm=warm)
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1)",
        "INSERT INTO others VALUES (1)",
    )
    return pipeline


@pytest.fixture
def published(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.publish("items", "others")
    return pipeline


def told(run: Run, code: int) -> str:
    """The one error the run ended with, its hint included; checks the exit code, and that nothing else was said."""
    assert run.code == code, run.log
    assert "Traceback" not in run.log
    assert run.log.count("error: ") == 1, run.log
    message = run.log[run.log.index("error: ") :]
    assert re.search(r"^  hint: \S", message, re.MULTILINE), message
    return message


def failed_tables(run: Run) -> dict[str, str]:
    """Table → error and hint, of the tables that were set aside."""
    lines = run.logged("table_errored")
    assert all(line["hint"] for line in lines)
    return {line["table"]: f"{line['error']} {line['hint']}" for line in lines}


def checked(run: Run, name: str) -> str:
    """What `etl check` says of one thing: status, finding and fix in one line."""
    lines = run.out.splitlines()
    at = next(i for i, line in enumerate(lines) if line[6:].startswith(name))
    fix = lines[at + 1] if "fix: " in lines[at + 1] else ""
    return " ".join(f"{lines[at]} {fix}".split())


# --- the configuration --------------------------------------------------------------------------------------------


def edited(pipeline: PipelineUnderTest, warm: WarmEtl, old: str, new: str) -> Run:
    """A run under the pipeline's file with some of its text replaced."""
    file = pipeline.directory / "edited.yaml"
    text = pipeline.file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    arguments = ["replicate", "--once", "--pipeline", str(file)]
    out, log = file.with_suffix(".out"), file.with_suffix(".log")
    process = warm.start(arguments, environment={}, out=out, log=log)
    return Run(process.wait(60), out.read_text(), log.read_text())


def test_an_unknown_key_names_its_line_and_the_key_that_was_meant(
    published: PipelineUnderTest, warm: WarmEtl
):
    error = told(edited(published, warm, "max_fill_ms", "max_fil_ms"), CONFIGURATION)

    assert re.search(
        r"edited\.yaml:\d+: batch\.max_fil_ms is not a known key; did you mean 'max_fill_ms'\?", error
    )


def test_a_broken_file_names_the_line(published: PipelineUnderTest, warm: WarmEtl):
    error = told(edited(published, warm, "source:", "source: ["), CONFIGURATION)

    assert re.search(r"edited\.yaml:\d+", error)


# --- the source ---------------------------------------------------------------------------------------------------


def test_a_missing_publication_is_told_with_the_statement_that_creates_it(pipeline: PipelineUnderTest):
    error = told(pipeline.once(check=False), CONFIGURATION)

    assert "publication etl_pub does not exist" in error
    assert 'CREATE PUBLICATION "etl_pub" FOR TABLE' in error
    assert checked(pipeline.etl("check"), "publication").startswith("fail publication")


def test_an_empty_publication_is_told_with_the_statement_that_fills_it(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE PUBLICATION etl_pub")
    error = told(pipeline.once(check=False), CONFIGURATION)

    assert "publication etl_pub has no tables" in error
    assert 'ALTER PUBLICATION "etl_pub" ADD TABLE' in error
    assert "fail publication etl_pub has no tables" in checked(pipeline.etl("check"), "publication")


def test_a_slot_in_use_elsewhere_is_waited_for_and_the_process_that_holds_it_named(
    published: PipelineUnderTest,
):
    published.once()
    published.sql("INSERT INTO items VALUES (2)")
    before = published.confirmed()
    with closing(psycopg.connect(f"{published.database.dsn} replication=database", autocommit=True)) as other:
        other.pgconn.exec_(
            f"START_REPLICATION SLOT {SLOT} LOGICAL 0/0 (proto_version '1', publication_names 'etl_pub')".encode()
        )
        run = published.once(check=False)
        assert f"is active for PID {other.info.backend_pid}" in told(run, UNAVAILABLE)
    assert [line["error_kind"] for line in run.logged("attempt_failed")] == ["slot_active"] * 5
    assert published.confirmed() == before

    published.once()
    published.assert_settled("public.items", "public.others")


@contextmanager
def role_of(pipeline: PipelineUnderTest, options: str, *grants: str) -> Iterator[PipelineUnderTest]:
    """The pipeline as a role of its own, for which an administrator has installed everything."""
    role = f"role_of_{pipeline.database.name}"
    assert pipeline.etl("init", "--yes").code == 0
    with pipeline.database.connect() as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN {options}".encode())
        install.install(connection, role)
        tables = "ALL TABLES IN SCHEMA etl"
        for grant in (f"SELECT, INSERT, UPDATE, DELETE ON {tables}", "USAGE ON SCHEMA etl", *grants):
            connection.execute(f"GRANT {grant} TO {role}".encode())
    settings = {**pipeline.settings, "source": {"user": role, "install_trigger": False}}
    try:
        yield PipelineUnderTest(pipeline.database, pipeline.directory, settings, warm=pipeline.warm)
    finally:
        pipeline.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_role_without_replication_is_told_what_to_alter(published: PipelineUnderTest):
    with role_of(published, "", "SELECT ON items, others") as restricted:
        error = told(restricted.once(check=False), CONFIGURATION)
        assert "hint: ALTER ROLE" in error
        assert "REPLICATION" in error
        assert checked(restricted.etl("check"), "replication right").startswith("warn")
    assert published.confirmed() == 0


def test_a_table_that_may_not_be_read_fails_alone_and_comes_along_once_it_may(
    published: PipelineUnderTest,
):
    with role_of(published, "REPLICATION", "SELECT ON others") as restricted:
        for number in (2, 3):
            run = restricted.once(check=False)
            assert run.code == NEEDS_A_PERSON
            (table, error), *rest = failed_tables(run).items()
            assert (table, rest) == ("public.items", [])
            assert "permission denied for table items" in error
            restricted.assert_equal("public.others")
            published.sql(f"INSERT INTO items VALUES ({number})", f"INSERT INTO others VALUES ({number})")
        status = restricted.etl("status").out
        assert "public.items   error" in status
        assert "permission denied for table items" in status
        check = checked(restricted.etl("check"), "table public.items")
        assert (
            check
            == 'fail table public.items not readable fix: GRANT SELECT ON "public"."items" TO CURRENT_USER'
        )

        published.sql(f"GRANT SELECT ON items TO {restricted.settings['source']['user']}")
        restricted.once()
        restricted.assert_settled("public.items", "public.others")


def test_a_table_without_identity_takes_inserts_only_and_the_check_says_so_beforehand(
    published: PipelineUnderTest,
):
    published.sql(
        "CREATE TABLE lines (a int)",
        "ALTER PUBLICATION etl_pub ADD TABLE lines",
        "INSERT INTO lines VALUES (1), (1)",
    )
    run = published.etl("check")
    assert run.code == 0
    assert checked(run, "table public.lines") == (
        "warn table public.lines no usable replica identity: only inserts can be replicated"
        ' fix: add a primary key, or ALTER TABLE "public"."lines" REPLICA IDENTITY FULL'
    )
    published.once()
    published.sql("INSERT INTO lines VALUES (1), (2)")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="does not have a replica identity"):
        published.sql("DELETE FROM lines")
    published.once()

    published.assert_settled("public.items", "public.lines", "public.others")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("CREATE TABLE odd ()", "no column of the table is replicated"),
        (
            'CREATE TABLE odd (id int PRIMARY KEY, "Ab" int, "aB" int)',
            "column 'aB' and column 'Ab' have one name",
        ),
    ],
    ids=["without columns", "colliding columns"],
)
def test_a_table_that_the_destination_cannot_hold_fails_alone(
    published: PipelineUnderTest, table: str, message: str
):
    published.sql(table, "ALTER PUBLICATION etl_pub ADD TABLE odd")
    for number in (2, 3):
        run = published.once(check=False)
        assert run.code == NEEDS_A_PERSON
        assert list(failed_tables(run)) == ["public.odd"]
        assert message in failed_tables(run)["public.odd"]
        published.assert_equal("public.items")
        published.sql(f"INSERT INTO items VALUES ({number})", "ALTER TABLE odd ADD COLUMN more int")
        published.sql("ALTER TABLE odd DROP COLUMN more")

    published.sql("ALTER PUBLICATION etl_pub DROP TABLE odd")
    published.once()
    published.assert_settled("public.items", "public.others")


# --- the source's server ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server whose settings and access rules may be changed."""
    with start_postgres(own=True) as own:
        yield own


@pytest.fixture
def elsewhere(server: PostgresServer, tmp_path: Path, warm: WarmEtl) -> Iterator[PipelineUnderTest]:
    """A pipeline on that server."""
    with server.database() as database:
        pipeline = PipelineUnderTest(database, tmp_path, warm=warm)
        pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)")
        pipeline.publish("items")
        yield pipeline


def follow_rules(server: PostgresServer, rules: str) -> None:
    """Put access rules in force."""
    assert server.data_dir is not None
    (server.data_dir / "pg_hba.conf").write_text(rules)
    with server.connect() as connection:
        (loaded,) = connection.execute("SELECT pg_conf_load_time()").fetchone() or (None,)
        connection.execute("SELECT pg_reload_conf()")
    while True:
        # a new connection has what the postmaster has
        with server.connect() as connection:
            if connection.execute("SELECT pg_conf_load_time()").fetchone() != (loaded,):
                return


TRUST = "host all postgres 127.0.0.1/32 trust\nhost replication postgres 127.0.0.1/32 trust\n"


@pytest.mark.parametrize(
    ("rules", "password", "words", "hint"),
    [
        (
            "host all all 127.0.0.1/32 scram-sha-256\n",
            "canary-wrong",
            "password authentication failed",
            "check source.user and source.password",
        ),
        (
            "host all all 127.0.0.1/32 scram-sha-256\n",
            None,
            "no password supplied",
            "set source.password, PGPASSWORD or a .pgpass entry",
        ),
        (
            "host all all 127.0.0.1/32 reject\n",
            "canary-right",
            "rejects connection",
            "allow this host and role in the server's pg_hba.conf",
        ),
        ("", "canary-right", "no pg_hba.conf entry", "allow this host and role in the server's pg_hba.conf"),
    ],
    ids=["wrong password", "no password", "rejected", "no entry"],
)
def test_an_unwelcome_login_is_told_and_no_password_with_it(
    server: PostgresServer,
    elsewhere: PipelineUnderTest,
    rules: str,
    password: str | None,
    words: str,
    hint: str,
):
    elsewhere.sql("DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN SUPERUSER PASSWORD 'canary-right'")
    source = {"user": "reader"} | ({"password": password} if password else {})
    reader = PipelineUnderTest(
        elsewhere.database, elsewhere.directory, {"source": source}, warm=elsewhere.warm
    )
    assert server.data_dir is not None
    kept = (server.data_dir / "pg_hba.conf").read_text()
    try:
        follow_rules(server, TRUST + rules)
        run = reader.once(check=False)
    finally:
        follow_rules(server, kept)

    error = told(run, CONFIGURATION)
    assert words in error
    assert f"hint: {hint}" in error
    assert "canary" not in run.log


def test_a_server_without_logical_decoding_is_told_the_setting(
    server: PostgresServer, elsewhere: PipelineUnderTest
):
    try:
        elsewhere.sql("ALTER SYSTEM SET wal_level = replica")
        server.restart()
        error = told(elsewhere.once(check=False), CONFIGURATION)
        check = elsewhere.etl("check")
    finally:
        elsewhere.sql("ALTER SYSTEM RESET wal_level")
        server.restart()

    assert "wal_level is replica; logical replication needs logical" in error
    assert "ALTER SYSTEM SET wal_level = logical" in error
    assert check.code == CHECK_FAILED
    assert checked(check, "wal_level").startswith("fail wal_level replica")


# --- the destination ----------------------------------------------------------------------------------------------


def test_a_file_that_another_process_has_open_is_waited_for(published: PipelineUnderTest):
    with duckdb.connect(str(published.warehouse)):
        run = published.once(check=False)
    error = told(run, UNAVAILABLE)

    assert f"{published.warehouse} is in use" in error
    assert "a DuckDB file has one process; close the other one" in error
    published.once()
    published.assert_settled("public.items", "public.others")


def test_a_file_from_a_newer_version_is_refused_and_left_alone(published: PipelineUnderTest):
    published.once()
    with duckdb.connect(str(published.warehouse)) as connection:
        connection.execute("UPDATE _etl.pipeline SET format_version = 99")
    before = published.warehouse.read_bytes()
    published.sql("INSERT INTO items VALUES (2)")
    error = told(published.once(check=False), CONFIGURATION)

    assert f"{published.warehouse} was written with format 99; this version knows" in error
    assert "hint: upgrade etl, or name another path" in error
    assert published.warehouse.read_bytes() == before
    check = published.etl("check")
    assert check.code == CHECK_FAILED
    assert checked(check, "destination").startswith("fail destination")


def test_a_file_that_is_no_database_is_refused_and_left_alone(published: PipelineUnderTest):
    text = b"my thesis, which has nothing to do with databases\n" * 500
    published.warehouse.write_bytes(text)
    error = told(published.once(check=False), NEEDS_A_PERSON)

    assert f"{published.warehouse} is not a DuckDB database" in error
    assert published.warehouse.read_bytes() == text
    assert published.etl("check").code == CHECK_FAILED


def test_a_folder_where_nothing_can_be_written_is_named(published: PipelineUnderTest):
    published.settings["destination"] = {"path": str(published.directory / "file" / "warehouse.duckdb")}
    (published.directory / "file").write_text("a file, not a folder")
    error = told(published.once(check=False), NEEDS_A_PERSON)

    assert str(published.directory / "file") in error
    assert "hint: choose another path" in error


def test_a_table_of_that_name_that_is_not_ours_is_never_replaced(published: PipelineUnderTest):
    with duckdb.connect(str(published.warehouse)) as connection:
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE TABLE public.items AS SELECT 42 AS answer")
    run = published.once(check=False)

    assert run.code == NEEDS_A_PERSON
    assert list(failed_tables(run)) == ["public.items"]
    assert published.rows("public.items") == [(42,)]
    published.assert_equal("public.others")

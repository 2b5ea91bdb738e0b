"""A pipeline into Delta Lake from end to end: a real Postgres, `etl replicate` with its JVM, and delta-rs that looks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl.errors import ExitCode
from etl.testing.delta_reader import delta_settings
from etl.testing.harness import PipelineUnderTest, Row
from etl.testing.postgres import Database, PostgresServer
from etl.testing.warm import WarmEtl

KINDS = {
    "truth": "boolean",
    "small": "smallint",
    "whole": "integer",
    "big": "bigint",
    "single": "real",
    "twofold": "double precision",
    "money": "numeric(12,2)",
    "exact": "numeric",
    "words": "text",
    "padded": "character(5)",
    "short": "varchar(10)",
    "bytes": "bytea",
    "day": "date",
    "clock": "time",
    "zoned_clock": "timetz",
    "moment": "timestamp",
    "instant": "timestamptz",
    "span": "interval",
    "tag": "uuid",
    "loose": "json",
    "tight": "jsonb",
    "address": "inet",
    "numbers": "integer[]",
    "texts": "text[]",
    "sums": "numeric[]",
}
FULL = (
    "true, -32768, 2147483647, -9223372036854775808, 1.5, 0.1, -9999999999.99, 12345678901234567890123456789.123456789,"
    r" E'Łódź 🦆\t''\\', 'ab', 'xyz', '\x00ff', '0001-01-01', '24:00:00', '12:30:00+05:30', '1583-01-01 00:00:00.000001',"
    " '2026-11-30 12:00:00.123456+05:30', '1 mon 2 days 03:04:05', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',"
    """ '{"a":  1}', '{"b": [1, null], "a": "x"}', '10.0.0.1/8', '{1,NULL,3}', '{"",NULL,"NULL","a,b"}', '{1.50,NULL}'"""
)
EMPTY = (
    "false, 0, 0, 0, 'NaN', '-Infinity', 0, 'NaN', '', '', '', '', '9999-12-31', '00:00', '00:00+00', '9999-12-31 23:59:59',"
    " '1970-01-01 00:00+00', '0', '00000000-0000-0000-0000-000000000000', 'null', 'null', '::1', '{}', '{}', '{}'"
)
NULLS = ", ".join(["NULL"] * len(KINDS))
GIVEN = (
    f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind in KINDS.items())})",
    f"INSERT INTO kinds VALUES (1, {FULL}), (2, {EMPTY}), (3, {NULLS})",
    "CREATE TABLE orders (id int PRIMARY KEY, a text, b text, c text DEFAULT 'old', body text)",
    "ALTER TABLE orders ALTER body SET STORAGE EXTERNAL",
    "INSERT INTO orders SELECT n, 'a', 'b', 'c', repeat(n::text, 5000) FROM generate_series(1, 4) n",
    "CREATE TABLE bare (a int, b text)",
    "ALTER TABLE bare REPLICA IDENTITY FULL",
    "INSERT INTO bare VALUES (1, 'twice'), (1, 'twice'), (2, NULL)",
    "CREATE TABLE emptied (id int PRIMARY KEY, a text)",
    "INSERT INTO emptied VALUES (1, 'gone')",
    "CREATE TABLE changes (id int PRIMARY KEY, a text)",
    "INSERT INTO changes VALUES (1, 'copied')",
)
#: While the first daemon runs. Each entry is one transaction.
FIRST = (
    (
        f"INSERT INTO kinds VALUES (4, {FULL}), (5, {EMPTY}), (6, {NULLS})",
        "UPDATE kinds SET whole = 7, clock = '07:00', sums = '{7}', tight = '{}' WHERE id IN (1, 3)",
        "DELETE FROM kinds WHERE id = 2",
    ),
    (
        "INSERT INTO orders VALUES (10, 'a', 'b')",
        "ALTER TABLE orders ADD COLUMN d int DEFAULT 7",
        "INSERT INTO orders VALUES (11, 'a', 'b')",
        "ALTER TABLE orders RENAME COLUMN a TO z",
        "INSERT INTO orders (id, z) VALUES (12, 'renamed')",
        "ALTER TABLE orders DROP COLUMN b",
        "INSERT INTO orders (id, z) VALUES (13, 'dropped')",
        "ALTER TABLE orders ADD COLUMN b int",
        "INSERT INTO orders (id, z, b) VALUES (14, 'there again', 14)",
    ),
    ("UPDATE orders SET c = 'body was not sent' WHERE id = 1",),
    ("UPDATE orders SET id = 102 WHERE id = 2",),
    (
        "INSERT INTO bare VALUES (1, 'twice'), (3, 'three')",
        "DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare)",
        "UPDATE bare SET b = 'was null' WHERE a = 2",
    ),
    ("INSERT INTO emptied VALUES (2, 'gone')", "TRUNCATE emptied", "INSERT INTO emptied VALUES (3, 'stays')"),
    ("INSERT INTO changes VALUES (2, 'x'), (3, 'y')", "UPDATE changes SET a = 'xx' WHERE id = 2"),
    ("DELETE FROM changes WHERE id = 3",),
)
#: While none runs.
MEANWHILE = (
    (
        "ALTER TABLE orders RENAME COLUMN z TO b2",
        "ALTER TABLE orders ALTER COLUMN c DROP DEFAULT",
        "INSERT INTO orders (id, b2) VALUES (20, 'while it was down')",
        "UPDATE orders SET d = d",
    ),
    ("ALTER TABLE bare ADD COLUMN c int", "UPDATE bare SET c = 1 WHERE a = 1"),
    ("DELETE FROM kinds WHERE id = 4",),
)
#: While the second one runs.
SECOND = (
    ("TRUNCATE changes", "INSERT INTO changes VALUES (9, 'after')"),
    ("DELETE FROM orders WHERE id = 102",),
    ("UPDATE emptied SET id = 4, a = 'moved'",),
)
TABLES = ("public.bare", "public.emptied", "public.kinds", "public.orders")


@dataclass(frozen=True, slots=True)
class Told:
    """What became of the story: both daemons' exit codes, and ``orders`` as it was between them."""

    pipeline: PipelineUnderTest
    codes: list[int]
    columns: list[tuple[str, str, str | None]]
    orders: dict[int, Row]


@pytest.fixture(scope="module")
def told(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory, warm: WarmEtl) -> Iterator[Told]:
    with postgres.database() as database:
        directory = tmp_path_factory.mktemp("delta")
        modes = [{"name": "public.changes", "mode": "changelog"}]
        settings = {
            "destination": delta_settings(directory / "lake"),
            "tables": modes,
            "shutdown_timeout_s": 120,
        }
        # slots are the server's: the story's stays while other tests run
        pipeline = PipelineUnderTest(database, directory, settings, pipeline_id=5, warm=warm)
        pipeline.sql(*GIVEN)
        pipeline.publish("kinds", "orders", "bare", "emptied", "changes")
        first = live(pipeline, FIRST)
        columns, orders = pipeline.columns("public.orders"), pipeline.rows("public.orders", "id, d")
        for step in MEANWHILE:
            pipeline.transaction(*step)
        second = live(pipeline, SECOND)
        yield Told(pipeline, [first, second], columns, dict(orders))


def live(pipeline: PipelineUnderTest, steps: tuple[tuple[str, ...], ...]) -> int:
    """Let the steps happen while a daemon runs, and end it when all has arrived; its exit code."""
    with pipeline.running() as daemon:
        daemon.wait_for_log("tables_settled")
        for step in steps:
            pipeline.transaction(*step)
        before = pipeline.written()
        pipeline.sql("UPDATE emptied SET a = a")
        daemon.wait_until(lambda: pipeline.progress() > before, "the end of the story")
        return daemon.terminate()


@pytest.mark.spark
class TestALake:
    def test_is_equal_to_its_source_in_the_end(self, told: Told):
        told.pipeline.assert_settled(*TABLES, changelogs=["public.changes"])

    def test_is_left_by_sigterm_with_0(self, told: Told):
        assert told.codes == [0, 0]

    def test_has_each_column_where_the_schema_changes_left_it(self, told: Told):
        assert told.columns == [
            ("id", "int", None),
            ("z", "string", None),
            ("c", "string", "'old'"),
            ("body", "string", None),
            ("d", "int", "7"),
            ("b", "int", None),
        ]
        names = [(name, default) for name, _, default in told.pipeline.columns("public.orders")]
        assert names == [("id", None), ("b2", None), ("c", None), ("body", None), ("d", "7"), ("b", None)]

    def test_reads_null_in_rows_from_before_a_default_and_the_value_in_those_after_it(self, told: Told):
        assert told.orders == {1: 7, 102: 7, 3: None, 4: None, 10: None, 11: 7, 12: 7, 13: 7, 14: 7}

    def test_keeps_every_change_of_a_changelog_once_and_in_order(self, told: Told):
        rows = told.pipeline.destination(
            'SELECT "_etl_op", id, a FROM changes ORDER BY "_etl_commit_lsn", "_etl_ordinal"'
        )
        assert rows == [
            ("copy", 1, "copied"),
            ("insert", 2, "x"),
            ("insert", 3, "y"),
            ("update", 2, "xx"),
            ("delete", 3, None),
            ("truncate", None, None),
            ("insert", 9, "after"),
        ]


# --- what `etl check` says, and who needs no Java ---------------------------------------------------------------------


@pytest.fixture
def lake(database: Database, tmp_path: Path, warm: WarmEtl) -> PipelineUnderTest:
    """A pipeline into a lake that has never been opened."""
    pipeline = PipelineUnderTest(
        database, tmp_path, {"destination": delta_settings(tmp_path / "lake")}, warm=warm
    )
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipeline.publish("items")
    return pipeline


def no_java(directory: Path) -> dict[str, str]:
    """Variables of a machine without Java."""
    return {"PATH": str(directory / "nothing"), "JAVA_HOME": str(directory / "nowhere")}


def checked(pipeline: PipelineUnderTest, env: dict[str, str] | None = None) -> tuple[int, dict[str, str]]:
    """The exit code of ``etl check``, and what it says of the destination."""
    run = pipeline.etl("check", "--json", env=env)
    return run.code, next(each for each in json.loads(run.out) if each["name"] == "destination")


def test_check_finds_java_and_the_jars_without_starting_spark(lake: PipelineUnderTest):
    code, found = checked(lake)

    assert (code, found["status"]) == (0, "ok"), found
    assert found["detail"].startswith(f"{lake.warehouse} can be written; Spark local[2], ")
    assert found["detail"].endswith("2 jars")


def test_check_says_in_one_line_that_java_is_missing_and_how_to_get_it(
    lake: PipelineUnderTest, tmp_path: Path
):
    code, found = checked(lake, no_java(tmp_path))

    assert (code, found["status"]) == (ExitCode.CHECK_FAILED, "fail")
    assert found["detail"] == (
        f"Spark needs Java 17 or newer: JAVA_HOME's {tmp_path}/nowhere/bin/java does not exist;"
        " there is no java on PATH"
    )
    assert found["fix"].startswith("on Debian and Ubuntu: apt-get install openjdk-17-jre-headless")


def test_check_names_the_jars_that_are_missing_and_the_verb_that_fetches_them(
    lake: PipelineUnderTest, tmp_path: Path
):
    code, found = checked(lake, {"ETL_JARS_DIR": str(tmp_path)})

    assert (code, found["status"], found["fix"]) == (ExitCode.CHECK_FAILED, "fail", "run: etl jars fetch")
    assert found["detail"].startswith(f"Spark's jars in {tmp_path} are not complete: delta-spark_")
    assert "\n" not in found["detail"]


def test_check_says_that_the_place_cannot_be_written(lake: PipelineUnderTest, tmp_path: Path):
    (tmp_path / "file").touch()
    lake.settings["destination"]["path"] = str(tmp_path / "file" / "lake")
    code, found = checked(lake)

    assert (code, found["status"]) == (ExitCode.CHECK_FAILED, "fail")
    assert found["detail"].startswith(f"{tmp_path}/file/lake/_etl/staging cannot be written: ")
    assert found["detail"].endswith("Not a directory")
    assert "\n" not in found["detail"]
    assert found["fix"] == "choose another path, or mend its permissions"


def test_replicate_without_java_ends_at_once_and_says_why(lake: PipelineUnderTest, tmp_path: Path):
    run = lake.etl("replicate", "--once", env=no_java(tmp_path))

    assert run.code not in {0, ExitCode.UNEXPECTED}
    assert "Spark needs Java 17 or newer" in run.log
    assert "Traceback" not in run.log


def test_a_pipeline_into_duckdb_needs_no_java(pipeline: PipelineUnderTest, tmp_path: Path):
    pipeline.sql("CREATE TABLE items (id int PRIMARY KEY)", "INSERT INTO items VALUES (1)")
    pipeline.publish("items")
    run = pipeline.etl("replicate", "--once", env=no_java(tmp_path) | {"ETL_JARS_DIR": str(tmp_path)})

    assert run.code == 0, run.log
    assert run.logged("spark_starting") == []
    pipeline.assert_settled("public.items")

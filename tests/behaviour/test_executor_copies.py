"""The initial copy read by Spark's executors: the same result as when the daemon reads, and the same answers to trouble."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etl.testing.delta_reader import delta_settings
from etl.testing.harness import PUBLICATION, PipelineUnderTest
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl
from tests.behaviour.test_delta_pipeline import EMPTY, FULL, KINDS, NULLS
from tests.holding import held

pytestmark = pytest.mark.spark

GIVEN = (
    f"CREATE TABLE kinds (id int PRIMARY KEY, {', '.join(f'{name} {kind}' for name, kind in KINDS.items())})",
    f"INSERT INTO kinds VALUES (1, {FULL}), (2, {EMPTY}), (3, {NULLS})",
    "CREATE TABLE large (id int PRIMARY KEY, a text)",
    "INSERT INTO large SELECT n, repeat(n::text, 20) FROM generate_series(1, 40000) n",
    "CREATE TABLE parted (id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
    "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2026-07-01')",
    "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2026-07-01') TO ('2027-01-01')",
    "INSERT INTO parted SELECT n, date '2026-01-01' + n FROM generate_series(1, 300) n",
    "CREATE TABLE endless (id int PRIMARY KEY, day date, number numeric)",
    "INSERT INTO endless VALUES (1, 'infinity', 1), (2, '2026-01-01', 'NaN'), (3, '-infinity', NULL)",
    "CREATE TABLE changes (id int PRIMARY KEY, a text)",
    "INSERT INTO changes VALUES (1, 'copied'), (2, NULL)",
    "CREATE TABLE nothing (id int PRIMARY KEY)",
)
TABLES = ("public.kinds", "public.parted", "public.nothing")


@pytest.fixture(scope="module")
def pipeline(
    postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory, warm: WarmEtl
) -> Iterator[PipelineUnderTest]:
    with postgres.database() as database:
        directory = tmp_path_factory.mktemp("executors")
        settings = {
            "destination": delta_settings(directory / "lake"),
            "tables": [{"name": "public.changes", "mode": "changelog"}],
            "table_sync": {"read_by": "executors", "range_bytes": "64KiB", "connections_per_table": 2},
        }
        pipeline = PipelineUnderTest(database, directory, settings, pipeline_id=6, warm=warm)
        pipeline.sql(*GIVEN)
        pipeline.publish("kinds", "parted", "endless", "changes", "nothing")
        yield pipeline


@pytest.fixture(scope="module")
def copied(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    pipeline.once()
    return pipeline


def test_rows_of_every_type_and_of_every_partition_are_those_of_the_source(copied: PipelineUnderTest):
    for table in TABLES:
        copied.assert_equal(table)


def test_a_value_that_delta_cannot_hold_is_null_and_kept_as_its_exact_text(copied: PipelineUnderTest):
    assert copied.rows("public.endless", "id, day::text") == [(1, None), (2, "2026-01-01"), (3, None)]
    assert set(copied.rows("_etl.unrepresentable", "value")) == {("-infinity",), ("infinity",)}


def test_a_changelog_begins_with_the_copied_rows(copied: PipelineUnderTest):
    rows = copied.destination('SELECT "_etl_op", id, a FROM changes ORDER BY id')
    assert rows == [("copy", 1, "copied"), ("copy", 2, None)]


def test_a_large_table_is_read_by_as_many_connections_as_it_may_have_and_they_do_not_hold_up_our_end(
    copied: PipelineUnderTest,
):
    copied.sql(f"ALTER PUBLICATION {PUBLICATION} ADD TABLE large")
    with held(copied, "copy.before_range_recorded:1=hold") as copy:
        copy.wait("copy.before_range_recorded")
        with copied.database.connect() as other, other.transaction():
            other.execute("LOCK TABLE large IN ACCESS EXCLUSIVE MODE")
            copy.go("copy.before_range_recorded")
            copy.daemon.wait_until(lambda: waiting(copied) == 2, "two connections that wait for the lock")
            assert copy.daemon.terminate() == 0, copy.daemon.log[-4000:]


def test_a_table_that_is_rewritten_in_the_middle_is_copied_anew(copied: PipelineUnderTest):
    with held(copied, "copy.before_range_recorded:1=hold") as copy:
        copy.wait("copy.before_range_recorded")
        copied.sql("ALTER TABLE large ALTER a TYPE int USING length(a)")
        copy.go("copy.before_range_recorded")
        copy.daemon.wait_until(lambda: copied.states().get("public.large") == "ready", "the table")
        assert copy.daemon.count_log("copy_failed") == 1
        assert "was altered between the snapshot and its copy" in copy.daemon.log
        assert copy.daemon.terminate() == 0, copy.daemon.log[-4000:]

    copied.assert_equal("public.large")


def test_a_secret_for_spark_stands_on_no_command_line(copied: PipelineUnderTest):
    secret = "canary-of-the-storage"
    spark = copied.settings["destination"]["spark"]
    conf = {**spark["conf"], "spark.hadoop.fs.s3a.secret.key": secret}
    copied.settings["destination"]["spark"] = {**spark, "conf": conf}
    with copied.running() as daemon:
        daemon.wait_for_log("tables_settled")
        lines = {line for each in Path("/proc").glob("[0-9]*/cmdline") if (line := command_line(each))}
        assert daemon.terminate() == 0, daemon.log[-4000:]
    assert any("org.apache.spark.deploy.SparkSubmit" in line for line in lines)
    assert not [line for line in lines if secret in line]


def command_line(path: Path) -> str:
    try:
        return path.read_text(errors="replace").replace("\0", " ")
    except OSError:
        # it has ended
        return ""


def waiting(pipeline: PipelineUnderTest) -> int:
    return len(
        pipeline.query(
            "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            " AND application_name LIKE '%table\\_sync:6'"
        )
    )

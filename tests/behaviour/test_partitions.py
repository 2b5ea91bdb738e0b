"""Partitioned tables: whose rows a partition's rows become, and what is left when partitions come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from etl.testing.harness import PUBLICATION, PipelineUnderTest, Row
from etl.testing.postgres import PostgresServer
from etl.testing.warm import WarmEtl
from tests.behaviour.test_live_membership import streaming, wait_applied, wait_ready
from tests.stories import Outcome, story

# --- which level of a tree is published -----------------------------------------------------------------------------

#: ``top`` by region, ``middle`` (of region 1) by id: ``leaf`` below 100, ``other_leaf`` from there; ``aside``: region 2.
TREE = (
    "CREATE TABLE top (id int, region int, t text, PRIMARY KEY (id, region)) PARTITION BY LIST (region)",
    "CREATE TABLE middle PARTITION OF top FOR VALUES IN (1) PARTITION BY RANGE (id)",
    # other attnums than the root has
    "CREATE TABLE leaf (gone int, t text, region int NOT NULL, id int NOT NULL, PRIMARY KEY (id, region))",
    "ALTER TABLE leaf DROP COLUMN gone",
    "ALTER TABLE middle ATTACH PARTITION leaf FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE other_leaf PARTITION OF middle FOR VALUES FROM (100) TO (1000)",
    "CREATE TABLE aside PARTITION OF top FOR VALUES IN (2)",
    "INSERT INTO top SELECT g, 1 + g % 2, 'copied' FROM generate_series(1, 199) g",
)
CHANGES = (
    "INSERT INTO top SELECT g, 1 + g % 2, 'streamed' FROM generate_series(200, 219) g",
    "INSERT INTO top VALUES (0, 1, 'streamed')",
    "UPDATE top SET t = 'changed' WHERE id % 10 = 0",
    "DELETE FROM top WHERE id % 10 IN (1, 2)",
    # into the neighbour leaf, and out of the middle
    "UPDATE top SET id = id + 500 WHERE id IN (4, 5)",
    "UPDATE top SET region = 3 - region WHERE id IN (6, 7, 16, 17)",
)
LEVELS = ("top", "middle", "leaf")
FILTER = "(id % 3 <> 0 OR region = 2)"

#: The pipelines of the trees live as long as the module, and their slots are the server's.
_PIPELINE_ID = 2_000_000

#: What the copy of each level arrives as when leaves are published one by one.
LEAVES = {"top": ["aside", "leaf", "other_leaf"], "middle": ["leaf", "other_leaf"], "leaf": ["leaf"]}


@dataclass(frozen=True, slots=True)
class Shape:
    """How the trees are published, and read."""

    name: str
    via_root: bool
    connections: int


SHAPES = (
    Shape("under their root, copied serially", via_root=True, connections=1),
    Shape("under their root, copied in parallel", via_root=True, connections=4),
    Shape("leaf by leaf", via_root=False, connections=4),
)


@dataclass(slots=True)
class Trees:
    """One pipeline over several trees, each in a schema of its own; the published level names the schema."""

    shape: Shape
    pipeline: PipelineUnderTest
    copied: dict[str, list[Row]]

    def expected(self, schema: str, table: str) -> list[Row]:
        where = f" WHERE {FILTER}" if schema.startswith("filtered") else ""
        return sorted(self.pipeline.query(f"SELECT id, region, t FROM {schema}.{table}{where}"))

    def arrived(self, schema: str, table: str) -> list[Row]:
        return sorted(self.pipeline.rows(f"{schema}.{table}", "id, region, t"))

    def tables(self, schema: str) -> list[str]:
        return [
            row[0]
            for row in self.pipeline.destination(
                "SELECT table_name FROM duckdb_tables() WHERE schema_name = ? ORDER BY 1", [schema]
            )
        ]


def tree(pipeline: PipelineUnderTest, schema: str) -> None:
    pipeline.sql(f"CREATE SCHEMA {schema}")
    pipeline.transaction(f"SET LOCAL search_path = {schema}", *TREE)


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.name)
def trees(
    request: pytest.FixtureRequest,
    postgres: PostgresServer,
    tmp_path_factory: pytest.TempPathFactory,
    warm: WarmEtl,
) -> Iterator[Trees]:
    shape: Shape = request.param
    schemas = {f"published_{level}": f"published_{level}.{level}" for level in LEVELS}
    if shape.via_root:
        # leaf by leaf, Postgres takes no filter of a partitioned table
        schemas |= {f"filtered_{level}": f"filtered_{level}.{level} WHERE {FILTER}" for level in LEVELS}
    with postgres.database() as database:
        directory: Path = tmp_path_factory.mktemp("trees")
        pipeline = PipelineUnderTest(database, directory, pipeline_id=_PIPELINE_ID, warm=warm)
        pipeline.settings["table_sync"] = {"connections": shape.connections}
        for schema in schemas:
            tree(pipeline, schema)
        published = ", ".join(schemas.values())
        pipeline.sql(
            f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {published}"
            f" WITH (publish_via_partition_root = {str(shape.via_root).lower()})"
        )
        run = pipeline.once()
        copied = {
            line["table"]: sorted(pipeline.rows(line["table"], "id, region, t"))
            for line in run.logged("table_copied")
        }
        for schema in schemas:
            pipeline.transaction(f"SET LOCAL search_path = {schema}", *CHANGES)
        pipeline.once()
        yield Trees(shape, pipeline, copied)


def arriving(trees: Trees, schema: str, level: str) -> list[str]:
    return [level] if trees.shape.via_root else LEAVES[level]


@pytest.mark.parametrize("level", LEVELS)
def test_rows_arrive_in_the_published_root_or_else_in_their_leaves(trees: Trees, level: str):
    schema = f"published_{level}"

    assert trees.tables(schema) == arriving(trees, schema, level)
    for table in trees.tables(schema):
        assert trees.arrived(schema, table) == trees.expected(schema, table)


@pytest.mark.parametrize("level", LEVELS)
def test_the_copy_reads_exactly_the_published_part_of_a_tree(trees: Trees, level: str):
    copied = {name: rows for name, rows in trees.copied.items() if name.startswith(f"published_{level}.")}
    ids = {"top": 199, "middle": 99, "leaf": 49}

    assert sorted(copied) == [f"published_{level}.{t}" for t in arriving(trees, f"published_{level}", level)]
    assert sum(map(len, copied.values())) == ids[level]


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_filter_of_the_published_root_holds_for_copy_and_stream(trees: Trees, level: str):
    schema = f"filtered_{level}"
    if not trees.shape.via_root:
        assert trees.tables(schema) == []
        return
    copied = trees.copied[f"{schema}.{level}"]

    assert copied
    assert all(row[0] % 3 != 0 or row[1] == 2 for row in copied)
    assert trees.arrived(schema, level) == trees.expected(schema, level)


@pytest.mark.parametrize("level", LEVELS)
def test_a_table_is_known_by_the_oid_of_what_is_published(trees: Trees, level: str):
    schema = f"published_{level}"
    oids = trees.pipeline.query(
        "SELECT relname::text FROM pg_class WHERE relnamespace = %s::regnamespace AND oid IN"
        " (SELECT table_id FROM etl.replication_state WHERE is_current AND state = 'ready') ORDER BY 1",
        [schema],
    )

    assert [row[0] for row in oids] == arriving(trees, schema, level)


# --- stories: what happens to partitions below a published root -------------------------------------------------------

BY_DAY = (
    "CREATE TABLE p (id int, day int, t text, PRIMARY KEY (id, day)) PARTITION BY LIST (day)",
    "CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)",
    "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2)",
    "INSERT INTO p SELECT g, 1 + g % 2, 'copied' FROM generate_series(1, 100) g",
)


@story(given=BY_DAY, when=["UPDATE p SET day = 3 - day WHERE id <= 10", "DELETE FROM p2 WHERE id > 90"])
def test_rows_that_were_there_are_copied_and_move_between_partitions(outcome: Outcome):
    assert outcome.tables() == ["p"]
    outcome.assert_same("p")


@story(
    given=BY_DAY,
    when=[
        "CREATE TABLE p3 PARTITION OF p FOR VALUES IN (3)",
        "INSERT INTO p VALUES (1, 3, 'through the root')",
    ],
    later=["INSERT INTO p3 VALUES (2, 3, 'into the partition')"],
)
def test_rows_of_a_new_partition_arrive_in_the_root(outcome: Outcome):
    assert outcome.tables() == ["p"]
    assert len(outcome.logged("table_copied", "p")) == 1
    outcome.assert_same("p")


@story(given=BY_DAY, when=["TRUNCATE p", "INSERT INTO p VALUES (1, 1, 'after')"])
def test_truncating_the_root_empties_the_destination(outcome: Outcome):
    assert outcome.rows("p", "id, day, t") == [(1, 1, "after")]


@story(given=BY_DAY, when=["TRUNCATE p1", "INSERT INTO p VALUES (1, 1, 'after')"])
def test_truncating_a_partition_below_the_published_root_leaves_its_rows(outcome: Outcome):
    assert len(outcome.rows("p")) == 101


@story(given=BY_DAY, publish=["p1"], when=["TRUNCATE p1", "INSERT INTO p VALUES (1, 1, 'after')"])
def test_truncating_a_published_partition_empties_it(outcome: Outcome):
    assert outcome.rows("p1", "id, day, t") == [(1, 1, "after")]


@story(given=BY_DAY, when=["DROP TABLE p2", "INSERT INTO p VALUES (500, 1, 'after')"])
def test_the_rows_of_a_dropped_partition_stay(outcome: Outcome):
    assert len(outcome.rows("p")) == 101
    assert len(outcome.logged("table_copied", "p")) == 1


@story(
    given=BY_DAY,
    when=["ALTER TABLE p DETACH PARTITION p2", "INSERT INTO p2 VALUES (500, 2, 'detached')"],
    later=["INSERT INTO p2 VALUES (501, 2, 'detached')", "INSERT INTO p VALUES (501, 1, 'after')"],
)
def test_the_rows_of_a_detached_partition_stay_and_its_later_ones_do_not_arrive(outcome: Outcome):
    assert outcome.tables() == ["p"]
    assert len(outcome.rows("p")) == 101


@story(
    given=BY_DAY,
    when=[
        "CREATE TABLE p3 (t text, day int NOT NULL, id int NOT NULL)",
        "INSERT INTO p3 VALUES ('before', 3, 1), ('before', 3, 2)",
        "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES IN (3)",
        "INSERT INTO p VALUES (3, 3, 'after')",
    ],
)
def test_the_rows_that_an_attached_partition_brings_arrive_though_etl_did_not_run(outcome: Outcome):
    outcome.assert_same("p")


@story(
    given=[
        *BY_DAY,
        "CREATE TABLE p3 (id int NOT NULL, day int NOT NULL, t text)",
        "INSERT INTO p3 VALUES (1, 3)",
    ],
    publish=["p"],
    when=["ALTER TABLE p ATTACH PARTITION p3 FOR VALUES IN (3)"],
    later=[
        (
            "ALTER TABLE p DETACH PARTITION p3",
            "INSERT INTO p3 VALUES (2, 3, 'detached')",
            "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES IN (3)",
        )
    ],
)
def test_what_a_partition_got_while_it_was_detached_arrives_when_it_is_attached_again(outcome: Outcome):
    outcome.assert_same("p")


@story(given=BY_DAY, publish=["p2"], when=["INSERT INTO p VALUES (500, 1, 'other'), (500, 2, 'published')"])
def test_a_partition_that_is_published_alone_is_a_table_of_its_own(outcome: Outcome):
    assert outcome.tables() == ["p2"]
    outcome.assert_same("p2")


@story(given=BY_DAY, publish=["p", "p2"], when=["INSERT INTO p VALUES (500, 1, 'one'), (500, 2, 'two')"])
def test_a_partition_that_is_published_beside_its_root_arrives_in_the_root(outcome: Outcome):
    assert outcome.tables() == ["p"]
    outcome.assert_same("p")


@story(
    given=BY_DAY,
    when=[
        "ALTER TABLE p ADD COLUMN n int DEFAULT 7",
        "INSERT INTO p VALUES (500, 1, 'one', 1), (500, 2, 'two', 2)",
        "ALTER TABLE p RENAME COLUMN t TO text",
        "INSERT INTO p2 VALUES (501, 2, 'two', 3)",
        "ALTER TABLE p DROP COLUMN text",
        "INSERT INTO p1 VALUES (501, 1, 4)",
    ],
)
def test_a_schema_change_of_the_root_holds_for_every_partition(outcome: Outcome):
    assert outcome.names("p") == ["id", "day", "n"]
    assert sorted(row for row in outcome.rows("p", "id, day, n") if row[0] >= 500) == [
        (500, 1, 1),
        (500, 2, 2),
        (501, 1, 4),
        (501, 2, 3),
    ]


# --- detached under a publication that publishes whole schemas ----------------------------------------------------------

WIDE = ("ALL TABLES", "TABLES IN SCHEMA public")
DETACH = ("ALTER TABLE p DETACH PARTITION p2", "INSERT INTO p2 VALUES (500, 2, 'detached')")


def by_day(pipeline: PipelineUnderTest, what: str) -> None:
    pipeline.sql(
        *BY_DAY, f"CREATE PUBLICATION {PUBLICATION} FOR {what} WITH (publish_via_partition_root = true)"
    )


def assert_detached(pipeline: PipelineUnderTest) -> None:
    """The root keeps what it had, and the detached partition has become a table of its own."""
    assert len(pipeline.rows("public.p")) == 100
    pipeline.assert_equal("public.p2")
    assert pipeline.states() == {"public.p": "ready", "public.p2": "ready"}


@pytest.mark.parametrize("what", WIDE)
def test_a_partition_that_is_detached_becomes_a_table_of_its_own_at_once(
    pipeline: PipelineUnderTest, what: str
):
    by_day(pipeline, what)
    with streaming(pipeline) as daemon:
        pipeline.sql(*DETACH)
        wait_ready(pipeline, daemon, "public.p2")
        pipeline.sql("INSERT INTO p2 VALUES (501, 2, 'streamed')")

    assert_detached(pipeline)


@pytest.mark.parametrize("what", WIDE)
def test_a_partition_that_was_detached_while_etl_did_not_run_becomes_a_table_of_its_own(
    pipeline: PipelineUnderTest, what: str
):
    by_day(pipeline, what)
    pipeline.once()
    pipeline.sql(*DETACH)
    pipeline.once()
    pipeline.sql("INSERT INTO p2 VALUES (501, 2, 'streamed')")
    pipeline.once()

    assert_detached(pipeline)


def test_a_partition_that_is_detached_from_a_table_that_is_published_by_name_is_left_alone(
    pipeline: PipelineUnderTest,
):
    by_day(pipeline, "TABLE p")
    with streaming(pipeline) as daemon:
        pipeline.sql(*DETACH, "INSERT INTO p VALUES (500, 1, 'after')")
        wait_applied(pipeline, daemon)
        assert daemon.count_log("table_copied") == 1

    assert len(pipeline.rows("public.p")) == 101
    assert pipeline.states() == {"public.p": "ready"}


def test_a_table_that_is_attached_leaves_and_its_rows_arrive_in_the_root(pipeline: PipelineUnderTest):
    pipeline.sql("CREATE TABLE p3 (id int NOT NULL, day int NOT NULL, t text, PRIMARY KEY (id, day))")
    pipeline.sql("INSERT INTO p3 VALUES (1, 3, 'its own')")
    by_day(pipeline, "ALL TABLES")
    with streaming(pipeline) as daemon:
        pipeline.sql(
            "ALTER TABLE p ATTACH PARTITION p3 FOR VALUES IN (3)", "INSERT INTO p VALUES (2, 3, 'new')"
        )
        daemon.wait_for_log("table_copied", times=3)
        wait_ready(pipeline, daemon, "public.p")
        daemon.wait_for_log("table_left")

    pipeline.assert_equal("public.p")
    assert pipeline.states() == {"public.p": "ready"}


# --- what happened while etl did not run ------------------------------------------------------------------------------

PLAIN = (
    "CREATE TABLE a (id int PRIMARY KEY, t text)",
    "INSERT INTO a SELECT g, 'a' FROM generate_series(1, 100) g",
)
OUT_AND_IN = {
    "by name": ("TABLE a", "DROP TABLE a", "ADD TABLE a"),
    "by schema": (
        "TABLES IN SCHEMA public",
        "DROP TABLES IN SCHEMA public",
        "ADD TABLES IN SCHEMA public",
    ),
}


@pytest.mark.parametrize("how", OUT_AND_IN)
def test_a_table_that_was_taken_out_and_put_back_while_etl_did_not_run_is_copied_anew(
    pipeline: PipelineUnderTest, how: str
):
    what, out, back = OUT_AND_IN[how]
    pipeline.sql(*PLAIN, f"CREATE PUBLICATION {PUBLICATION} FOR {what}")
    pipeline.once()
    pipeline.sql(
        f"ALTER PUBLICATION {PUBLICATION} {out}",
        "UPDATE a SET t = 'unseen' WHERE id <= 10",
        f"ALTER PUBLICATION {PUBLICATION} {back}",
        "INSERT INTO a VALUES (101, 'seen')",
    )
    pipeline.once()

    pipeline.assert_settled("public.a")


def test_a_root_that_was_taken_out_and_put_back_has_its_leaves_copied_anew(pipeline: PipelineUnderTest):
    pipeline.sql(*BY_DAY, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE p")
    pipeline.once()
    pipeline.sql(
        f"ALTER PUBLICATION {PUBLICATION} SET TABLE p1",
        f"ALTER PUBLICATION {PUBLICATION} DROP TABLE p1",
        "UPDATE p SET t = 'unseen'",
        f"ALTER PUBLICATION {PUBLICATION} ADD TABLE p",
    )
    pipeline.once()

    pipeline.assert_settled("public.p1", "public.p2")


def test_another_row_filter_set_while_etl_did_not_run_brings_the_rows_it_shows(pipeline: PipelineUnderTest):
    pipeline.sql(*PLAIN, f"CREATE PUBLICATION {PUBLICATION} FOR TABLE a WHERE (id <= 10)")
    pipeline.once()
    pipeline.sql(f"ALTER PUBLICATION {PUBLICATION} SET TABLE a WHERE (id <= 1000)")
    pipeline.once()

    pipeline.assert_settled("public.a")


def test_what_is_published_as_before_is_not_copied_anew_by_a_start(pipeline: PipelineUnderTest):
    pipeline.sql(*PLAIN, *BY_DAY)
    pipeline.publish("a WHERE (id <= 50)", "p")
    pipeline.once()
    pipeline.sql(
        "CREATE TABLE p3 PARTITION OF p FOR VALUES IN (3)",
        "INSERT INTO p VALUES (1, 3, 'new')",
        "ANALYZE p",
    )
    run = pipeline.once()

    assert run.logged("table_copied") == []
    assert run.logged("published_rows_changed") == []
    pipeline.assert_equal("public.p")


@story(
    given=[
        "CREATE TABLE bag (a int, day int) PARTITION BY LIST (day)",
        "CREATE TABLE bag1 PARTITION OF bag FOR VALUES IN (1)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "ALTER TABLE bag1 REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1, 1), (1, 1), (2, 1)",
    ],
    when=[
        "ALTER TABLE bag ADD COLUMN d text DEFAULT 'given'",
        "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
        "UPDATE bag SET a = 3 WHERE a = 2",
    ],
)
def test_rows_without_a_key_that_are_older_than_a_column_of_the_root_are_found(outcome: Outcome):
    """Only the partitions know what such rows read there: the root has no rows."""
    assert outcome.logged("old_rows_not_found", "bag") == []
    assert outcome.rows("bag", "a, day, d") == [(1, 1, None), (3, 1, "given")]

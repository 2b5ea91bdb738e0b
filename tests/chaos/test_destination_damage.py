"""Somebody changes the destination behind the pipeline's back: said at once, and no change is let go meanwhile."""

from __future__ import annotations

import signal

import duckdb
import pytest

from etl.testing.harness import PipelineUnderTest

pytestmark = pytest.mark.chaos


@pytest.fixture
def replicated(pipeline: PipelineUnderTest) -> PipelineUnderTest:
    """Two tables, copied."""
    pipeline.sql(
        "CREATE TABLE items (id int PRIMARY KEY, b text)",
        "CREATE TABLE others (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1, 'b1')",
    )
    pipeline.publish("items", "others")
    pipeline.once()
    return pipeline


def tamper(pipeline: PipelineUnderTest, *statements: str) -> None:
    with duckdb.connect(str(pipeline.warehouse)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_schema_change_that_cannot_be_finished_holds_the_slot_until_it_can(
    replicated: PipelineUnderTest,
):
    """Killed half-way; meanwhile somebody takes the name that the column was to get."""
    replicated.sql("ALTER TABLE items RENAME COLUMN b TO z", "INSERT INTO items VALUES (2, 'b2')")
    killed = replicated.once(failpoints="ddl.after_mark_applying=kill", check=False)
    assert killed.code == -signal.SIGKILL
    tamper(replicated, "ALTER TABLE public.items ADD COLUMN z text")

    for number in (3, 4):
        replicated.sql(f"INSERT INTO items VALUES ({number}, 'b')", f"INSERT INTO others VALUES ({number})")
        run = replicated.once(check=False)
        assert run.code == 1
        (failed,) = run.logged("table_failed")
        assert (failed["table"], failed["error_kind"]) == ("public.items", "schema_ambiguous")
        assert failed["hint"]
        assert replicated.states() == {"public.items": "errored", "public.others": "ready"}
        replicated.assert_equal("public.others")
    tamper(replicated, "ALTER TABLE public.items DROP COLUMN z")
    replicated.once()

    replicated.assert_settled("public.items", "public.others")


def test_a_destination_that_was_emptied_is_noticed_at_the_start_and_never_looks_complete(
    replicated: PipelineUnderTest,
):
    replicated.warehouse.unlink()
    run = replicated.once(check=False)

    assert run.code == 1
    assert {line["table"] for line in run.logged("table_failed")} == {"public.items", "public.others"}
    assert "the destination does not have the table any more" in run.log
    replicated.sql("INSERT INTO items VALUES (2, 'b2')")
    assert replicated.once(check=False).code == 1
    assert set(replicated.states().values()) == {"errored"}
    asked = replicated.etl("tables", "resync", "public.items", "public.others", "--yes")
    assert asked.code == 0, asked.log
    replicated.once()
    replicated.assert_settled("public.items", "public.others")


def test_one_dropped_table_fails_alone(replicated: PipelineUnderTest):
    tamper(replicated, "DROP TABLE public.items")
    replicated.sql("INSERT INTO items VALUES (2, 'b2')", "INSERT INTO others VALUES (2)")
    run = replicated.once(check=False)

    assert run.code == 1
    assert {line["table"] for line in run.logged("table_failed")} == {"public.items"}
    replicated.assert_equal("public.others")

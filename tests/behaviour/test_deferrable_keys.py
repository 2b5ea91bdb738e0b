"""A primary key whose check is deferred lets two rows share a key inside a transaction."""

from __future__ import annotations

from etl.testing.harness import PipelineUnderTest


def test_rows_that_share_a_deferred_key_for_a_while_are_told_apart_by_all_their_columns(
    pipeline: PipelineUnderTest,
) -> None:
    pipeline.sql(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, a text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
    )
    pipeline.publish("public.t")
    pipeline.once()
    pipeline.transaction(
        "UPDATE t SET id = 2 WHERE a = 'one'",
        "UPDATE t SET id = 1 WHERE a = 'two'",
        "INSERT INTO t VALUES (1, 'passing')",
        "DELETE FROM t WHERE a = 'passing'",
    )
    pipeline.once()
    pipeline.assert_equal("public.t")

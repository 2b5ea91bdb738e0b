"""Keys that sign schema messages can be replaced while a pipeline runs."""

from __future__ import annotations

from etl.testing.harness import PipelineUnderTest


def test_a_key_made_while_the_pipeline_streams_is_believed(pipeline: PipelineUnderTest) -> None:
    pipeline.sql("CREATE TABLE t (id int PRIMARY KEY)")
    pipeline.publish("public.t")
    with pipeline.running() as daemon:
        daemon.wait_until(lambda: '"state":"ready"' in daemon.log, "the table to stream")
        pipeline.sql(
            "SELECT etl.create_ddl_signing_key()",
            "ALTER TABLE t ADD COLUMN a text",
            "INSERT INTO t VALUES (1, 'signed with the new key')",
        )
        daemon.wait_for_log("schema_change_applied")
        assert daemon.terminate() == 0
        assert '"event":"schema_message_ignored"' not in daemon.log
    pipeline.assert_equal("public.t")

-- The life of each table: one current row, and the rows it replaced behind it.

CREATE TYPE etl.table_state AS ENUM (
    'init', 'data_sync', 'finished_copy', 'sync_done', 'ready', 'errored'
);

CREATE TABLE etl.replication_state (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    table_id oid NOT NULL,
    state etl.table_state NOT NULL,
    -- {"type": state, "lsn": "X/Y"} and, when errored, "reason", "solution", "retry_policy": {"type": "no_retry"}
    metadata jsonb NOT NULL,
    prev bigint REFERENCES etl.replication_state (id),
    is_current boolean NOT NULL DEFAULT true,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);

CREATE UNIQUE INDEX replication_state_current
    ON etl.replication_state (pipeline_id, table_id) WHERE is_current;
CREATE INDEX replication_state_history ON etl.replication_state (pipeline_id, table_id, id);
-- without it every deleted row would search the whole table for its successor
CREATE INDEX replication_state_prev ON etl.replication_state (prev);

-- How far the stream is durable at the destination. It only grows.

CREATE TYPE etl.replication_worker_type AS ENUM ('apply', 'table_sync');

CREATE TABLE etl.replication_progress (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    worker_type etl.replication_worker_type NOT NULL,
    table_id oid,
    flush_lsn pg_lsn NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CHECK ((worker_type = 'apply') = (table_id IS NULL))
);

CREATE UNIQUE INDEX replication_progress_apply
    ON etl.replication_progress (pipeline_id) WHERE worker_type = 'apply';
CREATE UNIQUE INDEX replication_progress_table_sync
    ON etl.replication_progress (pipeline_id, table_id) WHERE worker_type = 'table_sync';

-- Where each table's schema stands at the destination: both endpoints of a change, so that a crash can be finished.

CREATE TYPE etl.destination_table_schema_status AS ENUM ('creating', 'applying', 'applied');

CREATE TABLE etl.destination_tables_metadata (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    table_id oid NOT NULL,
    destination_table_id text NOT NULL,
    mode text NOT NULL,
    schema_status etl.destination_table_schema_status NOT NULL,
    snapshot_commit_lsn pg_lsn NOT NULL,
    snapshot_message_lsn pg_lsn NOT NULL,
    -- masks: one byte per column of the schema version, 1 for replicated and for part of the old-key image
    replication_mask bytea NOT NULL,
    identity_mask bytea NOT NULL,
    previous_snapshot_commit_lsn pg_lsn,
    previous_snapshot_message_lsn pg_lsn,
    previous_replication_mask bytea,
    previous_identity_mask bytea,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pipeline_id, table_id),
    CHECK ((previous_snapshot_commit_lsn IS NULL) = (previous_snapshot_message_lsn IS NULL))
);

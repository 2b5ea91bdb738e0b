-- Schema versions: what a table looked like from one schema change to the next.

CREATE TABLE etl.table_schemas (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    table_id oid NOT NULL,
    schema_name text COLLATE "C" NOT NULL,
    table_name text COLLATE "C" NOT NULL,
    -- both parts are needed: messages of concurrent transactions do not stand in commit order
    snapshot_commit_lsn pg_lsn NOT NULL DEFAULT '0/0',
    snapshot_message_lsn pg_lsn NOT NULL DEFAULT '0/0',
    -- pg_class.relreplident
    replica_identity text NOT NULL DEFAULT 'd' CHECK (replica_identity IN ('d', 'f', 'i', 'n')),
    identity_attnums smallint[] NOT NULL DEFAULT '{}',
    -- highest attnum ever used, dropped columns included; 0 when unknown
    max_attnum smallint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (pipeline_id, table_id, snapshot_commit_lsn, snapshot_message_lsn)
);

CREATE TABLE etl.table_columns (
    table_schema_id bigint NOT NULL REFERENCES etl.table_schemas (id) ON DELETE CASCADE,
    -- pg_attribute.attnum: gaps are dropped columns
    ordinal_position smallint NOT NULL,
    column_name text COLLATE "C" NOT NULL,
    type_oid oid NOT NULL,
    type_modifier integer NOT NULL,
    type_name text COLLATE "C" NOT NULL,
    nullable boolean NOT NULL,
    primary_key_ordinal_position smallint,
    default_expression text,
    -- what rows older than the column read at the source
    missing_value text,
    PRIMARY KEY (table_schema_id, ordinal_position),
    UNIQUE (table_schema_id, column_name)
);

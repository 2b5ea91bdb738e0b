-- The ledger of each copy under way: which of its ranges are durable at the destination.

CREATE TABLE etl.table_copies (
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    table_id oid NOT NULL,
    -- the exported snapshot that all ranges are read under, and where in the log it stands
    snapshot text NOT NULL,
    consistent_point pg_lsn NOT NULL,
    range_count integer NOT NULL,
    -- numbers from 0
    finished_ranges integer[] NOT NULL DEFAULT '{}',
    row_count bigint NOT NULL DEFAULT 0,
    -- for people: why the copy started over
    note text NOT NULL DEFAULT '',
    started_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (pipeline_id, table_id)
);

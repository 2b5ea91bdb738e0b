-- What people ask of a pipeline. Whoever runs it does it, and says what became of it.

CREATE TYPE etl.table_verb AS ENUM ('pause', 'resume', 'resync', 'retry', 'drop');

CREATE TABLE etl.table_requests (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline_id bigint NOT NULL REFERENCES etl.pipelines (pipeline_id) ON DELETE CASCADE,
    table_id oid NOT NULL,
    verb etl.table_verb NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT now(),
    -- for people; both are NULL while the request waits
    outcome text,
    settled_at timestamptz,
    CHECK ((outcome IS NULL) = (settled_at IS NULL))
);

CREATE INDEX table_requests_pipeline ON etl.table_requests (pipeline_id, id);

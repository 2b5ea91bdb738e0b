-- Who runs a pipeline. Everything a pipeline remembers hangs off its row here and leaves with it.

CREATE TABLE etl.pipelines (
    pipeline_id bigint PRIMARY KEY,
    -- grows with every start; destinations refuse commits of a lower one
    epoch bigint NOT NULL CHECK (epoch > 0),
    -- the rule by which ordinals of stored positions were counted
    ordinal_rule integer NOT NULL,
    holder_host text NOT NULL,
    holder_pid integer NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    -- when the present holder took it
    updated_at timestamptz NOT NULL DEFAULT now()
);

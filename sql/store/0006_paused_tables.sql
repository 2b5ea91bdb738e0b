-- A table that a person stopped. The other new states live in memory only.
-- metadata may also hold "backlog", "retry_at" and "attempts".

ALTER TYPE etl.table_state ADD VALUE 'paused' BEFORE 'errored';

-- What a message says: docs/reference/ddl-message.md. These functions are called by the event trigger's function
-- alone, whose owner's rights and pinned search_path they run with.

-- What one statement did to one table travels as an object: {oid, commands}, with {locked: true} where the statement
-- itself names the table, with {schema, name} where the table is gone, or {oid: 0, sqlstate, message} where the
-- statement's tables could not be found.

-- The first 8 kB of the statement, for people. It may hold several statements and literals: never to be replayed.
CREATE FUNCTION etl.statement_text(ascii_only boolean) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text := left(current_query(), 8192);
BEGIN
    IF ascii_only THEN
        RETURN left(encode(convert_to(statement, getdatabaseencoding()), 'escape'), 8192);
    ELSIF octet_length(statement) > 8192 THEN
        RETURN left(statement, 2048);  -- a character takes four bytes at most
    END IF;
    RETURN statement;
END
$$;

-- Whether a text reads the same in every encoding.
CREATE FUNCTION etl.is_ascii(value text) RETURNS boolean
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT encode(convert_to(value, getdatabaseencoding()), 'hex') ~ '^([0-7].)*$'
$$;

-- The list of columns; NULL for a table that shows none. With `ascii_only` a default or missing value that is not ASCII
-- is left out and marked.
CREATE FUNCTION etl.render_columns(table_oid oid, ascii_only boolean) RETURNS json
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT ascii_only THEN
        RETURN (
            SELECT json_agg(shown) FROM (
                SELECT d.attname, d.attnum, d.atttypid::bigint AS atttypid, d.typname, d.formatted_type, d.atttypmod,
                       d.attnotnull, d.atthasdef, d.default_expression, d.default_truncated, d.attidentity,
                       d.atthasmissing, d.missing_value, d.missing_truncated
                  FROM etl.describe_table_schema(table_oid) d) shown);
    END IF;
    RETURN (
        SELECT json_agg(shown) FROM (
            SELECT d.attname, d.attnum, d.atttypid::bigint AS atttypid, d.typname, d.formatted_type, d.atttypmod,
                   d.attnotnull, d.atthasdef,
                   CASE WHEN etl.is_ascii(d.default_expression) THEN d.default_expression END AS default_expression,
                   d.default_truncated OR etl.is_ascii(d.default_expression) IS FALSE AS default_truncated,
                   d.attidentity, d.atthasmissing,
                   CASE WHEN etl.is_ascii(d.missing_value) THEN d.missing_value END AS missing_value,
                   d.missing_truncated OR etl.is_ascii(d.missing_value) IS FALSE AS missing_truncated
              FROM etl.describe_table_schema(table_oid) d) shown);
END
$$;

-- The payload of a change. NULL when there is nothing to tell: the table is gone again, or shows no column.
CREATE FUNCTION etl.render_change(
    change json, trigger_event text, command_tag text, subxid bigint, ascii_only boolean
) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_oid oid := change ->> 'oid';
    schema_name text := change ->> 'schema';
    table_name text := change ->> 'name';
    table_kind text;
    highest_attnum integer := 0;
    identity jsonb := '{"primary_key_attnums": [], "primary_key_condeferrable": false, "relreplident": "n",
                        "replica_identity_index_relname": null, "replica_identity_index_attnums": []}';
    columns json := '[]';
BEGIN
    IF table_name IS NOT NULL THEN
        command_tag := 'DROP TABLE';
    ELSE
        SELECT n.nspname, c.relname, c.relkind, c.relnatts
          INTO schema_name, table_name, table_kind, highest_attnum
          FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = table_oid;
        identity := etl.describe_table_identity(table_oid);
        columns := etl.render_columns(table_oid, ascii_only);
        IF table_name IS NULL OR columns IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN json_build_object(
        'version', 1,
        'trigger_event', trigger_event,
        'command_tag', command_tag,
        'current_query', etl.statement_text(ascii_only),
        'current_database', current_database(),
        'server_version_num', current_setting('server_version_num')::integer,
        'xid', pg_current_xact_id()::text::bigint,
        'subxid', subxid,
        'nspname', schema_name,
        'relname', table_name,
        'oid', table_oid::bigint,
        'relkind', table_kind,
        'relnatts', highest_attnum,
        'commands', change -> 'commands',
        'identity', identity,
        'columns', columns)::text;
END
$$;

-- The payload that says a table changed and could not be described. ASCII only, hence fit for any encoding.
CREATE FUNCTION etl.render_failure(
    table_oid oid, trigger_event text, command_tag text, subxid bigint, failure_state text, failure text
) RETURNS text
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT json_build_object(
        'version', 1,
        'trigger_event', trigger_event,
        'command_tag', command_tag,
        'server_version_num', current_setting('server_version_num')::integer,
        'xid', pg_current_xact_id()::text::bigint,
        'subxid', subxid,
        'oid', table_oid::bigint,
        'error', json_build_object(
            'sqlstate', failure_state,
            'message', left(encode(convert_to(left(failure, 500), getdatabaseencoding()), 'escape'), 500)))::text
$$;

-- Under REPEATABLE READ and SERIALIZABLE the catalog is seen as of the transaction's start, while the statement itself
-- worked on the catalog of now. Where somebody else has replaced a row of the table's description since, what we would
-- tell is wrong, so we do not tell it.
CREATE FUNCTION etl.check_description_is_current(table_oid oid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN;
    END IF;
    IF EXISTS (
        SELECT FROM (
            SELECT c.xmax FROM pg_class c WHERE c.oid = table_oid
             UNION SELECT a.xmax FROM pg_attribute a WHERE a.attrelid = table_oid AND a.attnum > 0
             UNION SELECT d.xmax FROM pg_attrdef d WHERE d.adrelid = table_oid
             UNION SELECT i.xmax FROM pg_index i WHERE i.indrelid = table_oid
        ) replaced (by)
        WHERE replaced.by <> '0' AND etl.committed_after_snapshot(replaced.by)
    ) THEN
        RAISE EXCEPTION 'another transaction changed the table after this one took its snapshot'
            USING ERRCODE = 'serialization_failure';
    END IF;
END
$$;

-- Whether the transaction that replaced a row we still see has committed. One below the snapshot's oldest can only have
-- rolled back, or we would not see the row. Vacuum leaves no number on a row that is half the circle of numbers old.
CREATE FUNCTION etl.committed_after_snapshot(replaced_by xid) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ahead.of_oldest < 2147483648
           AND pg_xact_status((oldest.xid + ahead.of_oldest)::text::xid8) = 'committed'
      FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint) oldest (xid)
     CROSS JOIN LATERAL (
           SELECT (replaced_by::text::bigint - oldest.xid % 4294967296 + 4294967296) % 4294967296
     ) ahead (of_oldest)
$$;

-- Only a table that this transaction holds a lock on may be described: any lock keeps a competing ALTER TABLE from
-- committing before us, so that for one table the order of the messages is the order of the changes. A statement locks
-- what it names and what it changes. But renaming a schema locks none of its tables, and that a row is newer than this
-- transaction does not mean that it is ours.
CREATE FUNCTION etl.hold_still(table_oid oid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    target record;
BEGIN
    SELECT n.nspname, c.relname INTO target
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = table_oid;
    EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS SHARE MODE', target.nspname, target.relname);
END
$$;

-- The signed message of one change, in UTF-8. NULL when there is nothing to say, or, after a warning, when even the
-- failure cannot be told. Raises nothing.
--
-- A database that does not say which encoding its bytes are in (SQL_ASCII), or whose encoding holds characters that
-- UTF-8 lacks, gets a second try without them.
CREATE FUNCTION etl.ddl_message(
    change json, trigger_event text, command_tag text, subxid bigint
) RETURNS bytea
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    table_oid oid := change ->> 'oid';
    failure_state text := change ->> 'sqlstate';
    failure text := change ->> 'message';
BEGIN
    IF failure_state IS NULL THEN
        BEGIN
            IF change ->> 'name' IS NULL AND change ->> 'locked' IS DISTINCT FROM 'true' THEN
                PERFORM etl.hold_still(table_oid);
            END IF;
            PERFORM etl.check_description_is_current(table_oid);
            BEGIN
                RETURN etl.sign_ddl_message(convert_to(
                    etl.render_change(change, trigger_event, command_tag, subxid, false), 'UTF8'));
            EXCEPTION WHEN character_not_in_repertoire OR untranslatable_character THEN
                RETURN etl.sign_ddl_message(convert_to(
                    etl.render_change(change, trigger_event, command_tag, subxid, true), 'UTF8'));
            END;
        EXCEPTION WHEN OTHERS THEN
            failure_state := SQLSTATE;
            failure := SQLERRM;
        END;
    END IF;
    RAISE WARNING 'etl: a schema change of % was recorded without a description: % (SQLSTATE %)',
        CASE WHEN table_oid = 0 THEN 'unknown tables' ELSE 'the table with oid ' || table_oid END,
        left(failure, 500), failure_state;
    RETURN etl.sign_ddl_message(convert_to(
        etl.render_failure(table_oid, trigger_event, command_tag, subxid, failure_state, failure),
        getdatabaseencoding()));
EXCEPTION WHEN OTHERS THEN
    RAISE WARNING 'etl: a schema change was not recorded: % (SQLSTATE %)', left(SQLERRM, 500), SQLSTATE;
    RETURN NULL;
END
$$;

REVOKE ALL ON FUNCTION
    etl.statement_text(boolean),
    etl.is_ascii(text),
    etl.render_columns(oid, boolean),
    etl.render_change(json, text, text, bigint, boolean),
    etl.render_failure(oid, text, text, bigint, text, text),
    etl.check_description_is_current(oid),
    etl.committed_after_snapshot(xid),
    etl.hold_still(oid),
    etl.ddl_message(json, text, text, bigint)
FROM PUBLIC;

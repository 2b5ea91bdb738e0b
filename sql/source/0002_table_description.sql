-- What a table looks like, told the same way to the initial copy and to the trigger.
--
-- Settings of the session that change how pg_get_expr and output functions write a value are pinned: the same
-- default must read the same whoever asks.

-- One row per visible column by attnum; generated columns and dropped ones are left out.
--
-- A default or missing value of more than 64 kB, or one past the first megabyte of the table's, is left out and marked.
CREATE FUNCTION etl.describe_table_schema(table_oid oid)
RETURNS TABLE (
    attname text,
    attnum integer,
    atttypid oid,
    typname text,
    formatted_type text,
    atttypmod integer,
    attnotnull boolean,
    atthasdef boolean,
    -- pg_get_expr; NULL with default_truncated where it was too long
    default_expression text,
    default_truncated boolean,
    attidentity text,
    atthasmissing boolean,
    -- what rows older than the column read; NULL with missing_truncated where it was too long
    missing_value text,
    missing_truncated boolean
)
LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO, MDY'
SET intervalstyle = 'postgres'
SET timezone = 'UTC'
SET bytea_output = 'hex'
SET extra_float_digits = '1'
SET lc_monetary = 'C'
SET xmlbinary = 'base64'
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
#variable_conflict use_column
DECLARE
    value_limit CONSTANT integer := 65536;
    table_limit CONSTANT integer := 1048576;
    is_partitioned boolean := (SELECT c.relkind = 'p' FROM pg_class c WHERE c.oid = table_oid);
BEGIN
    RETURN QUERY
    SELECT m.attname::text, m.attnum::integer, m.atttypid, m.typname::text, format_type(m.atttypid, m.atttypmod),
           m.atttypmod, m.attnotnull, m.atthasdef,
           CASE WHEN m.expression_fits AND m.table_fits THEN m.expression END,
           m.atthasdef AND (m.expression_fits AND m.table_fits) IS NOT TRUE,
           nullif(m.attidentity::text, ''), m.atthasmissing,
           CASE WHEN m.missing_fits AND m.table_fits THEN m.missing END,
           m.atthasmissing AND (m.missing_fits AND m.table_fits) IS NOT TRUE
      FROM (
           SELECT c.*,
                  octet_length(c.expression) <= value_limit AS expression_fits,
                  octet_length(c.missing) <= value_limit AS missing_fits,
                  sum(coalesce(octet_length(c.expression), 0) + coalesce(octet_length(c.missing), 0))
                      OVER (ORDER BY c.attnum) <= table_limit AS table_fits
             FROM (
                  SELECT a.attname, a.attnum, a.atttypid, t.typname, a.atttypmod, a.attnotnull, a.atthasdef,
                         a.attidentity, a.atthasmissing OR p.missing IS NOT NULL AS atthasmissing,
                         -- The length of a toasted text is known without reading it. A literal takes four times its
                         -- length as a node tree, so what is cut here would not fit below either.
                         -- A default refers to no column, so pg_get_expr needs no relation; with one it would list all
                         -- columns and compare their names, for every default: 18 seconds for a table of 1600.
                         CASE WHEN a.atthasdef THEN (
                             SELECT CASE WHEN octet_length(d.adbin::text) <= 8 * value_limit
                                         THEN pg_get_expr(d.adbin, 0) END
                               FROM pg_attrdef d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum
                         ) END AS expression,
                         -- pg_attribute has no room for large ones: Postgres refuses the statement
                         CASE WHEN a.atthasmissing THEN array_to_string(a.attmissingval, '') ELSE p.missing END AS missing
                    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
                    -- A partitioned table has no rows: the value of a column is with the partitions that are older than
                    -- it, the same with all.
                    LEFT JOIN LATERAL (
                         SELECT array_to_string(l.attmissingval, '') AS missing
                           FROM pg_partition_tree(table_oid) tree
                           JOIN pg_attribute l ON l.attrelid = tree.relid AND l.attname = a.attname
                          WHERE is_partitioned AND l.atthasmissing AND l.attnum > 0
                          ORDER BY tree.relid LIMIT 1
                    ) p ON true
                   WHERE a.attrelid = table_oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
                  OFFSET 0  -- each expression is written once
             ) c
      ) m
     ORDER BY m.attnum;
END
$$;

-- How rows of a table are told apart: {primary_key_attnums in key order, primary_key_condeferrable, relreplident,
-- replica_identity_index_relname, replica_identity_index_attnums}. A partition without a primary key answers with its
-- parent's, by column name. NULL for an oid that is no relation.
CREATE FUNCTION etl.describe_table_identity(table_oid oid) RETURNS jsonb
LANGUAGE plpgsql STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    relation record;
    index record;
    key_attnums integer[];
    key_is_deferrable boolean;
    identity_index_name name;
    identity_attnums integer[];
BEGIN
    SELECT c.relreplident, c.relispartition INTO relation FROM pg_class c WHERE c.oid = table_oid;
    IF relation.relreplident IS NULL THEN
        RETURN NULL;
    END IF;
    FOR index IN
        -- the columns of INCLUDE stand behind the key's
        SELECT i.indexrelid, i.indisprimary, i.indisreplident, i.indimmediate,
               (i.indkey::int2[]::integer[])[0:i.indnkeyatts - 1] AS attnums
          FROM pg_index i
         WHERE i.indrelid = table_oid AND (i.indisprimary OR i.indisreplident)
    LOOP
        IF index.indisprimary THEN
            key_attnums := index.attnums;
            key_is_deferrable := NOT index.indimmediate;
        END IF;
        IF index.indisreplident AND relation.relreplident = 'i' THEN
            identity_attnums := index.attnums;
            SELECT c.relname INTO identity_index_name FROM pg_class c WHERE c.oid = index.indexrelid;
        END IF;
    END LOOP;
    IF key_attnums IS NULL AND relation.relispartition THEN
        SELECT array_agg(mine.attnum::integer ORDER BY k.place), bool_or(NOT i.indimmediate)
          INTO key_attnums, key_is_deferrable
          FROM pg_inherits h
          JOIN pg_index i ON i.indrelid = h.inhparent AND i.indisprimary
         CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (attnum, place)
          JOIN pg_attribute theirs ON theirs.attrelid = h.inhparent AND theirs.attnum = k.attnum
          JOIN pg_attribute mine ON mine.attrelid = table_oid AND mine.attname = theirs.attname
         WHERE h.inhrelid = table_oid AND k.place <= i.indnkeyatts;
    END IF;
    RETURN jsonb_build_object(
        'primary_key_attnums', coalesce(key_attnums, '{}'),
        'primary_key_condeferrable', coalesce(key_is_deferrable, false),
        'relreplident', relation.relreplident,
        'replica_identity_index_relname', identity_index_name,
        'replica_identity_index_attnums', coalesce(identity_attnums, '{}'));
END
$$;

REVOKE ALL ON FUNCTION etl.describe_table_schema(oid), etl.describe_table_identity(oid) FROM PUBLIC;

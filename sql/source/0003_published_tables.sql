-- Which of some tables are published, by any publication, as pg_publication_tables would list them: a partition under
-- its own name unless a publication sends it as its root, a partitioned table only when one does.
--
-- Answered from the membership rows of the candidates: pg_publication_tables lists every table of the database.
-- Each once: under REPEATABLE READ one table can have two visible rows, the one of the snapshot and our own.
--
-- Never among them: temporary and unlogged tables, system tables (below FirstNormalObjectId, 16384), and those of schema
-- etl itself.

CREATE FUNCTION etl.published_tables(candidates oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    schema_publications oid[] := '{}';
    schema_members oid[] := '{}';
    our_schema oid := 'etl'::regnamespace;
BEGIN
    -- FOR TABLES IN SCHEMA exists since Postgres 15
    IF current_setting('server_version_num')::integer >= 150000 THEN
        SELECT coalesce(array_agg(s.pnpubid ORDER BY s.oid), '{}'), coalesce(array_agg(s.pnnspid ORDER BY s.oid), '{}')
          INTO schema_publications, schema_members
          FROM pg_publication_namespace s;
    END IF;

    -- partitions have publications of their own and those of their ancestors
    IF NOT EXISTS (
        SELECT FROM pg_class c WHERE c.oid = ANY (candidates) AND (c.relispartition OR c.relkind = 'p')
    ) THEN
        RETURN ARRAY(
            SELECT DISTINCT c.oid FROM pg_class c
             WHERE c.oid = ANY (candidates)
               AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.oid >= 16384 AND c.relnamespace <> our_schema
               AND (c.relnamespace = ANY (schema_members)
                    OR EXISTS (SELECT FROM pg_publication p WHERE p.puballtables)
                    OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prrelid = c.oid))
             ORDER BY c.oid);
    END IF;

    RETURN ARRAY(
        SELECT DISTINCT c.oid
          FROM pg_class c
         CROSS JOIN LATERAL (
               SELECT CASE WHEN c.relispartition
                           THEN ARRAY(SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a)
                           ELSE ARRAY[c.oid] END AS relids
         ) lineage
         WHERE c.oid = ANY (candidates)
           AND c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND c.oid >= 16384 AND c.relnamespace <> our_schema
           AND EXISTS (
               SELECT
                 FROM pg_publication p
                CROSS JOIN LATERAL (
                      SELECT bool_or(m.oid = c.oid) AS itself, bool_or(m.oid <> c.oid) AS an_ancestor
                        FROM pg_class m
                       WHERE m.oid = ANY (lineage.relids)
                         AND (p.puballtables
                              OR EXISTS (SELECT FROM pg_publication_rel r
                                          WHERE r.prpubid = p.oid AND r.prrelid = m.oid)
                              OR EXISTS (SELECT FROM unnest(schema_publications, schema_members) s (pubid, nspid)
                                          WHERE s.pubid = p.oid AND s.nspid = m.relnamespace))
                ) member
                WHERE CASE WHEN p.pubviaroot THEN member.itself AND NOT member.an_ancestor
                           ELSE c.relkind = 'r' AND (member.itself OR member.an_ancestor) END)
         ORDER BY c.oid);
END
$$;

REVOKE ALL ON FUNCTION etl.published_tables(oid[]) FROM PUBLIC;

-- Which tables a statement changed, and the two event triggers.

-- Rows that one transaction leaves for itself; nobody else ever sees them. Unlogged, so that they are neither in the
-- WAL nor in any publication.
--
-- A row without a table tells the number of the present (sub)transaction, which no function does. Readers need it: when
-- a transaction in progress is streamed, Postgres labels a message with the number of the whole transaction, while a
-- ROLLBACK TO SAVEPOINT later names only the subtransaction. A row with a table is a change that the drop trigger saw
-- and leaves to the other trigger, which fires for the same statement.
CREATE UNLOGGED TABLE etl.ddl_scratch (xid xid8 NOT NULL, table_oid oid);
REVOKE ALL ON etl.ddl_scratch FROM PUBLIC;

-- Partitions and inheritance children of any depth, and tables of a composite type, whose description this transaction
-- has changed. Every row newer than the transaction counts: too much does no harm. What leaves no row behind, a dropped
-- key, is seen by the drop trigger.
CREATE FUNCTION etl.touched_dependents(named oid[]) RETURNS oid[]
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
SET jit = off
AS $$
DECLARE
    dependents oid[];
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = ANY (named) AND (c.relhassubclass OR c.relkind = 'c')) THEN
        RETURN '{}';
    END IF;
    WITH RECURSIVE tree (relid) AS (
        SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = ANY (named)
         UNION
        SELECT t.oid
          FROM pg_class composite
          JOIN pg_depend d ON d.refclassid = 'pg_type'::regclass AND d.refobjid = composite.reltype
                          AND d.classid = 'pg_class'::regclass AND d.objsubid = 0
          JOIN pg_class t ON t.oid = d.objid AND t.reloftype = composite.reltype
         WHERE composite.oid = ANY (named) AND composite.relkind = 'c'
         UNION
        SELECT h.inhrelid FROM pg_inherits h JOIN tree ON h.inhparent = tree.relid
    )
    SELECT coalesce(array_agg(c.oid ORDER BY c.oid), '{}') INTO dependents
      FROM tree JOIN pg_class c ON c.oid = tree.relid
     WHERE age(c.xmin) <= 0
        OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND age(a.xmin) <= 0)
        OR EXISTS (SELECT FROM pg_attrdef d WHERE d.adrelid = c.oid AND age(d.xmin) <= 0)
        OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND age(i.xmin) <= 0);
    RETURN dependents;
END
$$;

-- The changes of the statement that ddl_command_end is fired for.
CREATE FUNCTION etl.changes_of_commands() RETURNS json[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    command record;
    address record;
    command_texts json[] := '{}';
    -- what each command names when that is a relation, else 0
    named oid[] := '{}';
    candidates oid[] := '{}';
    table_oid oid;
    places integer[];
    changes json[] := '{}';
BEGIN
    FOR command IN
        SELECT * FROM pg_event_trigger_ddl_commands() c
         WHERE c.objid IS NOT NULL AND c.in_extension IS NOT TRUE
         ORDER BY c.classid, c.objid, c.objsubid
    LOOP
        SELECT * INTO address FROM pg_identify_object_as_address(command.classid, command.objid, command.objsubid);
        command_texts := command_texts || json_build_object(
            'classid', command.classid::bigint, 'objid', command.objid::bigint, 'objsubid', command.objsubid,
            'command_tag', command.command_tag, 'object_type', command.object_type,
            'schema_name', command.schema_name, 'object_identity', command.object_identity,
            'object_address_type', address.type, 'object_address_names', address.object_names,
            'object_address_args', address.object_args);
        named := named || CASE WHEN command.classid = 'pg_class'::regclass THEN command.objid ELSE 0 END;
        IF command.classid = 'pg_namespace'::regclass THEN
            candidates := candidates || ARRAY(
                SELECT c.oid FROM pg_class c WHERE c.relnamespace = command.objid AND c.relkind IN ('r', 'p'));
        END IF;
    END LOOP;
    candidates := candidates || named || etl.touched_dependents(named) || etl.take_deferred_tables();
    FOREACH table_oid IN ARRAY etl.published_tables(candidates) LOOP
        places := array_positions(named, table_oid);
        IF places = '{}' THEN
            -- a table that the statement does not name is told what it does name
            places := ARRAY(SELECT generate_series(1, least(cardinality(named), 100)));
        END IF;
        changes := changes || json_build_object(
            'oid', table_oid,
            'locked', table_oid = ANY (named),
            'commands', (SELECT coalesce(json_agg(command_texts[n] ORDER BY n), '[]') FROM unnest(places) n));
    END LOOP;
    RETURN changes;
END
$$;

-- What the drop trigger left for this statement.
CREATE FUNCTION etl.take_deferred_tables() RETURNS oid[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    deferred oid[];
BEGIN
    -- looked for first: a block that writes gets a number of its own
    SELECT coalesce(array_agg(s.table_oid), '{}') INTO deferred
      FROM etl.ddl_scratch s WHERE s.xid = pg_current_xact_id() AND s.table_oid IS NOT NULL;
    IF cardinality(deferred) > 0 THEN
        DELETE FROM etl.ddl_scratch s WHERE s.xid = pg_current_xact_id();
    END IF;
    RETURN deferred;
END
$$;

-- A dropped object in the words of pg_event_trigger_ddl_commands.
CREATE FUNCTION etl.describe_drop(dropped record) RETURNS json
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN json_build_object(
        'classid', dropped.classid::bigint, 'objid', dropped.objid::bigint, 'objsubid', dropped.objsubid,
        'command_tag', 'DROP ' || upper(dropped.object_type), 'object_type', dropped.object_type,
        'schema_name', dropped.schema_name, 'object_identity', dropped.object_identity,
        'object_address_type', dropped.object_type, 'object_address_names', dropped.address_names,
        'object_address_args', dropped.address_args);
END
$$;

-- The changes of the statement that sql_drop is fired for: tables that are gone, and tables that lost a column, a
-- default or a key. The latter are left to the other trigger where that fires too.
CREATE FUNCTION etl.changes_of_drops(other_trigger_fires boolean) RETURNS json[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lost oid[];
BEGIN
    IF other_trigger_fires THEN
        -- The other trigger sees by itself that a column is gone, and not that a default or a key is. A key has an
        -- index of its name; other constraints change nothing.
        WITH dropped AS MATERIALIZED (SELECT * FROM pg_event_trigger_dropped_objects())
        INSERT INTO etl.ddl_scratch (xid, table_oid)
        SELECT DISTINCT pg_current_xact_id(), c.oid
          FROM dropped d
          JOIN pg_namespace n ON n.nspname = d.address_names[1]
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = d.address_names[2]
         WHERE d.object_type = 'default value'
            OR d.object_type = 'table constraint' AND ARRAY[d.address_names[1], d.address_names[3]] IN (
               SELECT i.address_names FROM dropped i WHERE i.object_type = 'index');
        RETURN etl.dropped_tables();
    END IF;

    lost := etl.published_tables(ARRAY(
        SELECT c.oid
          FROM pg_event_trigger_dropped_objects() d
          JOIN pg_namespace n ON n.nspname = d.address_names[1]
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = d.address_names[2]
         WHERE d.object_type IN ('table column', 'default value')));
    RETURN etl.dropped_tables() || ARRAY(
        SELECT json_build_object('oid', c.oid, 'commands',
                                 json_agg(etl.describe_drop(d) ORDER BY d.classid, d.objid, d.objsubid))
          FROM pg_event_trigger_dropped_objects() d
          JOIN pg_namespace n ON n.nspname = d.address_names[1]
          JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = d.address_names[2]
          JOIN unnest(lost) l (oid) ON l.oid = c.oid
         WHERE d.object_type IN ('table column', 'default value')
         GROUP BY c.oid
         ORDER BY c.oid);
END
$$;

-- The published tables that are gone. Their membership rows went with them and are among the dropped objects.
-- Not known any more: whether a table was unlogged, or a partition published through its parents.
CREATE FUNCTION etl.dropped_tables() RETURNS json[]
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    all_tables boolean := EXISTS (SELECT FROM pg_publication p WHERE p.puballtables);
    member_schemas text[] := '{}';
BEGIN
    IF NOT EXISTS (SELECT FROM pg_event_trigger_dropped_objects() d
                    WHERE d.object_type = 'table' AND NOT d.is_temporary) THEN
        RETURN '{}';
    END IF;
    -- FOR TABLES IN SCHEMA exists since Postgres 15
    IF current_setting('server_version_num')::integer >= 150000 THEN
        member_schemas := ARRAY(SELECT n.nspname::text FROM pg_publication_namespace s
                                  JOIN pg_namespace n ON n.oid = s.pnnspid);
    END IF;
    RETURN ARRAY(
        WITH dropped AS MATERIALIZED (SELECT * FROM pg_event_trigger_dropped_objects())
        SELECT json_build_object('oid', d.objid, 'schema', d.schema_name, 'name', d.object_name,
                                 'commands', json_build_array(etl.describe_drop(d)))
          FROM dropped d
         WHERE d.object_type = 'table' AND NOT d.is_temporary AND d.schema_name <> 'etl'
           AND (all_tables
                OR d.schema_name = ANY (member_schemas)
                OR d.schema_name IN (SELECT m.address_names[1] FROM dropped m
                                      WHERE m.object_type = 'publication namespace')
                OR d.address_names IN (SELECT m.address_names FROM dropped m
                                        WHERE m.object_type = 'publication relation'))
         ORDER BY d.objid);
END
$$;

-- Whether this statement is none of our business: the session opted out, nobody could decode the WAL, or nothing is
-- published. A setting made by SET LOCAL stays behind as an empty string, so it is compared, never cast.
CREATE FUNCTION etl.ddl_log_is_off() RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN lower(btrim(coalesce(current_setting('supabase_etl.skip_ddl_log', true), '')))
               IN ('true', 'on', '1', 'yes', 't')
        -- since Postgres 19 logical decoding may be on while wal_level says replica
        OR coalesce(nullif(current_setting('effective_wal_level', true), ''), current_setting('wal_level')) <> 'logical'
        OR NOT EXISTS (SELECT FROM pg_publication);
END
$$;

-- One transactional message per published table that the statement changed. Runs with its owner's rights, so that
-- whoever may alter a table needs no right on anything of ours.
--
-- lock_timeout: should an administrator hold a lock on one of our tables, the user's statement waits this long at most;
-- it is below the default deadlock_timeout, so that our waiting makes nobody else a deadlock's victim.
CREATE FUNCTION etl.emit_schema_change_messages() RETURNS event_trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '500ms'
SET jit = off
SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    changes json[];
    change json;
    message bytea;
    scratch record;
    subxid bigint;
    may_write boolean := false;
BEGIN
    BEGIN
        IF etl.ddl_log_is_off() THEN
            RETURN;
        END IF;
        IF TG_EVENT = 'sql_drop' THEN
            changes := etl.changes_of_drops(TG_TAG IN (
                'ALTER TABLE', 'ALTER VIEW', 'ALTER MATERIALIZED VIEW', 'ALTER FOREIGN TABLE', 'ALTER INDEX',
                'ALTER TYPE', 'ALTER SCHEMA'));
        ELSE
            changes := etl.changes_of_commands();
        END IF;
    EXCEPTION WHEN OTHERS THEN
        changes := ARRAY[json_build_object('oid', 0, 'sqlstate', SQLSTATE, 'message', SQLERRM)];
    END;
    IF cardinality(changes) = 0 THEN
        RETURN;
    END IF;

    BEGIN
        -- an administrator may have taken the function from PUBLIC, as docs/reference/ddl-message.md advises
        IF NOT has_function_privilege('pg_logical_emit_message(boolean, text, bytea' || CASE
               WHEN current_setting('server_version_num')::integer >= 170000 THEN ', boolean)' ELSE ')' END,
               'EXECUTE') THEN
            RAISE WARNING 'etl: a schema change was not recorded: % may not call pg_logical_emit_message', current_user;
            RETURN;
        END IF;
        -- once it is locked, writing to it cannot fail any more
        LOCK TABLE etl.ddl_scratch IN ROW EXCLUSIVE MODE;
        may_write := true;
    EXCEPTION WHEN OTHERS THEN
        may_write := false;
    END;
    IF may_write THEN
        INSERT INTO etl.ddl_scratch (xid) VALUES (pg_current_xact_id()) RETURNING ctid AS place, xmin INTO scratch;
        DELETE FROM etl.ddl_scratch WHERE ctid = scratch.place;
        subxid := scratch.xmin::text::bigint;
    END IF;

    FOREACH change IN ARRAY changes LOOP
        BEGIN
            message := etl.ddl_message(change, TG_EVENT, TG_TAG, subxid);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING 'etl: a schema change was not recorded: % (SQLSTATE %)', left(SQLERRM, 500), SQLSTATE;
            message := NULL;
        END;
        IF message IS NOT NULL THEN
            PERFORM pg_logical_emit_message(true, 'supabase_etl_ddl', message);
        END IF;
    END LOOP;
END
$$;

-- Creates the event triggers that are missing; a disabled one stays disabled.
CREATE FUNCTION etl.create_event_triggers() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- session_replication_role = replica turns ordinary triggers off; a schema change under it is one all the same
    IF NOT EXISTS (SELECT FROM pg_event_trigger e WHERE e.evtname = 'supabase_etl_ddl_message_trigger') THEN
        -- ALTER VIEW, MATERIALIZED VIEW and FOREIGN TABLE rename columns of plain tables, ALTER INDEX renames a table
        CREATE EVENT TRIGGER supabase_etl_ddl_message_trigger ON ddl_command_end
            WHEN TAG IN ('ALTER TABLE', 'ALTER VIEW', 'ALTER MATERIALIZED VIEW', 'ALTER FOREIGN TABLE',
                         'ALTER INDEX', 'ALTER TYPE', 'ALTER SCHEMA')
            EXECUTE FUNCTION etl.emit_schema_change_messages();
        ALTER EVENT TRIGGER supabase_etl_ddl_message_trigger ENABLE ALWAYS;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_event_trigger e WHERE e.evtname = 'supabase_etl_ddl_drop_trigger') THEN
        CREATE EVENT TRIGGER supabase_etl_ddl_drop_trigger ON sql_drop
            EXECUTE FUNCTION etl.emit_schema_change_messages();
        ALTER EVENT TRIGGER supabase_etl_ddl_drop_trigger ENABLE ALWAYS;
    END IF;
END
$$;

REVOKE ALL ON FUNCTION
    etl.touched_dependents(oid[]),
    etl.changes_of_commands(),
    etl.describe_drop(record),
    etl.changes_of_drops(boolean),
    etl.dropped_tables(),
    etl.ddl_log_is_off(),
    etl.take_deferred_tables(),
    etl.emit_schema_change_messages(),
    etl.create_event_triggers()
FROM PUBLIC;

SELECT etl.create_event_triggers();

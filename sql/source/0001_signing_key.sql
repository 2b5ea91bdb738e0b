-- The room all source objects live in, and the key that tells the trigger's messages from anybody else's:
-- whoever can connect may call pg_logical_emit_message.

CREATE SCHEMA IF NOT EXISTS etl;

-- The owner of a schema may replace every function in it, and the trigger calls them with its own owner's rights.
-- So the schema belongs to whoever installs the trigger; who owned it keeps the right to create in it.
DO $$
DECLARE
    previous_owner name;
BEGIN
    SELECT r.rolname INTO previous_owner
      FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner
     WHERE n.nspname = 'etl' AND r.rolname <> current_user AND NOT r.rolsuper;
    IF previous_owner IS NOT NULL THEN
        EXECUTE pg_catalog.format('ALTER SCHEMA etl OWNER TO %I', current_user);
        EXECUTE pg_catalog.format('GRANT USAGE, CREATE ON SCHEMA etl TO %I', previous_owner);
    END IF;
END
$$;

CREATE TABLE etl.source_migrations (
    version integer PRIMARY KEY,
    name text NOT NULL,
    -- SHA-256 of the file, hex
    checksum text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

CREATE TABLE etl.ddl_signing_key (
    key_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- RFC 2104: the secret, padded to the block of SHA-256, XOR 0x36 and XOR 0x5c. Kept so that signing is two hashes.
    inner_pad bytea NOT NULL CHECK (pg_catalog.length(inner_pad) = 64),
    outer_pad bytea NOT NULL CHECK (pg_catalog.length(outer_pad) = 64),
    secret bytea NOT NULL CHECK (pg_catalog.length(secret) = 32),
    created_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);

REVOKE ALL ON etl.source_migrations, etl.ddl_signing_key FROM PUBLIC;

-- Adds a key; the newest one signs. Older ones stay until their messages are out of every slot.
CREATE FUNCTION etl.create_ddl_signing_key() RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- four random uuids carry 488 bits of the server's entropy
    new_secret bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
                               || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    padded bytea := new_secret || decode(repeat('00', 32), 'hex');
    inner_key bytea := padded;
    outer_key bytea := padded;
    new_id integer;
BEGIN
    FOR i IN 0..63 LOOP
        inner_key := set_byte(inner_key, i, get_byte(padded, i) # 54);
        outer_key := set_byte(outer_key, i, get_byte(padded, i) # 92);
    END LOOP;
    INSERT INTO etl.ddl_signing_key (inner_pad, outer_pad, secret)
    VALUES (inner_key, outer_key, new_secret)
    RETURNING key_id INTO new_id;
    RETURN new_id;
END
$$;

-- Puts the signature in front of the closing brace of a JSON object. What is signed is the object as it came in.
-- Without a key the object goes out unsigned: a reader ignores it, and the warning says why.
CREATE FUNCTION etl.sign_ddl_message(payload bytea) RETURNS bytea
LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    newest record;
    hmac bytea;
BEGIN
    SELECT k.key_id, k.inner_pad, k.outer_pad INTO newest
      FROM etl.ddl_signing_key k ORDER BY k.key_id DESC LIMIT 1;
    IF newest.key_id IS NULL THEN
        RAISE WARNING 'etl: a schema change was recorded without a signature: etl.ddl_signing_key is empty';
        RETURN payload;
    END IF;
    hmac := sha256(newest.outer_pad || sha256(newest.inner_pad || payload));
    RETURN substring(payload FROM 1 FOR length(payload) - 1)
        || convert_to(format(', "etl_signature": {"version": 1, "key_id": %s, "hmac": "%s"}}',
                             newest.key_id, encode(hmac, 'hex')), getdatabaseencoding());
END
$$;

REVOKE ALL ON FUNCTION etl.create_ddl_signing_key(), etl.sign_ddl_message(bytea) FROM PUBLIC;

SELECT etl.create_ddl_signing_key();

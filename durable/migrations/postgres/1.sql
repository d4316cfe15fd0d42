-- Makes the tables of tickwheel-durable.
--
-- For a role with CREATE on the schema, which stands first in its search_path:
--     psql -v ON_ERROR_STOP=1 -f 1.sql
--
-- No other role may have CREATE on it. Only built-in functions and operators are looked up by name; `@.` is the schema.

BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(8388345094170240357);
DO $install$
DECLARE
    place pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    SET LOCAL search_path = pg_catalog, pg_temp;
    IF place IS NULL THEN
        RAISE 'the search_path names no schema that is there';
    END IF;
    IF EXISTS (
        SELECT FROM pg_namespace n, aclexplode(n.nspacl) a
        WHERE quote_ident(n.nspname) = place AND a.privilege_type = 'CREATE'
            AND a.grantee <> n.nspowner AND a.grantee <> (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user)
    ) THEN
        RAISE 'other roles may create in the schema %, and so stand in the way of tickwheel-durable', place
            USING HINT = 'REVOKE CREATE ON SCHEMA ' || place || ' FROM PUBLIC, and from other roles; or take a schema of its own.';
    END IF;
    IF place ~ '[$''\\]' THEN
        RAISE 'the name of the schema, %, has a character that is not allowed', place;
    END IF;
    IF to_regclass(place || '.tickwheel_schema') IS NOT NULL THEN
        RAISE 'there are tables of tickwheel-durable already';
    END IF;
    EXECUTE replace($sql$
-- | column | |
-- |---|---|
-- | `due`, `deadline`, `alive_until` | microseconds since the epoch |
-- | `period` | microseconds, or null |
-- | `loaded_by` | the id of an instance, or null |
-- | `lacks` | how many due rows an instance lacks |
-- | `replaces` | the version that a waiting row had before it was last set or moved |
--
-- | index | finds |
-- |---|---|
-- | `tickwheel_timers_pkey` | what is fired or settled |
-- | `tickwheel_waiting` | the one waiting row of a key |
-- | `tickwheel_in_flight` | the latest claim of a key |
-- | `tickwheel_due` | rows that no instance has loaded, by when they are due |
-- | `tickwheel_loaded` | rows that are loaded, by the instance |
--
-- Rows come and go all the time, so the table is vacuumed early.
CREATE TABLE @.tickwheel_schema (version int NOT NULL, identity uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO @.tickwheel_schema VALUES (1);
CREATE SEQUENCE @.tickwheel_versions MAXVALUE 9007199254740991;
CREATE TABLE @.tickwheel_namespaces (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    codec text NOT NULL
);
CREATE TABLE @.tickwheel_instances (
    id bigint PRIMARY KEY,
    alive_until bigint NOT NULL,
    lacks bigint NOT NULL,
    namespace int NOT NULL
);
CREATE TABLE @.tickwheel_timers (
    version bigint PRIMARY KEY,
    due bigint NOT NULL,
    deadline bigint NOT NULL,
    period bigint,
    loaded_by bigint,
    replaces bigint,
    namespace int NOT NULL,
    attempt int NOT NULL,
    in_flight boolean NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX tickwheel_waiting ON @.tickwheel_timers (namespace, key) WHERE NOT in_flight;
CREATE INDEX tickwheel_in_flight ON @.tickwheel_timers (namespace, key, version) WHERE in_flight;
CREATE INDEX tickwheel_due ON @.tickwheel_timers (namespace, in_flight, due, version) WHERE loaded_by IS NULL;
CREATE INDEX tickwheel_loaded ON @.tickwheel_timers (namespace, loaded_by) WHERE loaded_by IS NOT NULL;
    $sql$, '@.', place || '.');
END $install$;
COMMIT;

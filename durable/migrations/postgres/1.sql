-- Makes the tables of tickwheel-durable.
--
-- For a role with CREATE on the schema, which stands first in its search_path:
--     psql -v ON_ERROR_STOP=1 -f 1.sql

BEGIN;
SELECT pg_advisory_xact_lock(8388345094170240357);
DO $$ BEGIN
    IF to_regclass('tickwheel_schema') IS NOT NULL THEN
        RAISE 'there are tables of tickwheel-durable already';
    END IF;
END $$;
SELECT set_config('search_path', (SELECT quote_ident(current_schema())) || ', pg_temp', true);
CREATE TABLE tickwheel_schema (version int NOT NULL, identity uuid NOT NULL DEFAULT gen_random_uuid());
INSERT INTO tickwheel_schema VALUES (1);
CREATE SEQUENCE tickwheel_versions MAXVALUE 9007199254740991;
CREATE TABLE tickwheel_namespaces (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    codec text NOT NULL
);
CREATE TABLE tickwheel_instances (
    id bigint PRIMARY KEY,
    alive_until bigint NOT NULL,
    lacks bigint NOT NULL,
    namespace int NOT NULL
);
CREATE TABLE tickwheel_timers (
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
CREATE UNIQUE INDEX tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE NOT in_flight;
CREATE INDEX tickwheel_in_flight ON tickwheel_timers (namespace, key, version) WHERE in_flight;
CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, in_flight, due, version) WHERE loaded_by IS NULL;
CREATE INDEX tickwheel_loaded ON tickwheel_timers (namespace, loaded_by) WHERE loaded_by IS NOT NULL;
COMMIT;

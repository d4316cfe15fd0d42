-- Upgrades the tables of tickwheel-durable from version 1 to version 2.
--
-- For a role with CREATE on the schema, which stands first in its search_path:
--     psql -v ON_ERROR_STOP=1 -f 2.sql
--
-- No other role may have CREATE on it. Only built-in functions and operators are looked up by name; `@.` is the schema.

BEGIN;
SELECT pg_catalog.pg_advisory_xact_lock(8388345094170240357);
DO $install$
DECLARE
    place pg_catalog.text := pg_catalog.quote_ident((
        SELECT n.nspname FROM pg_catalog.pg_class c, pg_catalog.pg_namespace n
        WHERE c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass('tickwheel_schema') AND n.oid OPERATOR(pg_catalog.=) c.relnamespace
    ));
    found pg_catalog.int4;
BEGIN
    SET LOCAL search_path = pg_catalog, pg_temp;
    IF place ~ '[$''\\]' THEN
        RAISE 'the name of the schema, %, has a character that is not allowed', place;
    END IF;
    IF place IS NULL THEN
        RAISE 'there are no tables of tickwheel-durable';
    END IF;
    EXECUTE replace('SELECT version FROM @.tickwheel_schema', '@.', place || '.') INTO found;
    IF found <> 1 THEN
        RAISE 'the tables of tickwheel-durable have version %, not 1', found;
    END IF;
    EXECUTE replace($sql$
-- Dead rows, with `died` and `error`, and the last error of the other rows. `tickwheel_dead_key` finds those of a key,
-- `tickwheel_dead_died` those that died first. The schedule of rows that repeat by one: its text, or null. And the id of the
-- instance that fired a row in flight.
ALTER TABLE @.tickwheel_timers ADD COLUMN error text;
ALTER TABLE @.tickwheel_timers ADD COLUMN schedule text;
ALTER TABLE @.tickwheel_timers ADD COLUMN claimed_by bigint;
CREATE TABLE @.tickwheel_dead (
    version bigint PRIMARY KEY,
    died bigint NOT NULL,
    deadline bigint NOT NULL,
    namespace int NOT NULL,
    attempt int NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    error text
);
CREATE INDEX tickwheel_dead_key ON @.tickwheel_dead (namespace, key, died, version);
CREATE INDEX tickwheel_dead_died ON @.tickwheel_dead (namespace, died, version);
UPDATE @.tickwheel_schema SET version = 2;
    $sql$, '@.', place || '.');
END $install$;
COMMIT;

-- Drops the tables and functions of tickwheel-durable, and all timers with them.
--
-- For a role that owns them, in one transaction:
--     psql -1 -v ON_ERROR_STOP=1 -f 1.down.sql
-- The file has no BEGIN and no COMMIT.

DROP TABLE tickwheel_dead, tickwheel_timers, tickwheel_instances, tickwheel_namespaces, tickwheel_schema;
DROP FUNCTION
    tickwheel_set(text, text, jsonb, timestamptz), tickwheel_set(text, jsonb, jsonb, timestamptz),
    tickwheel_set_if_absent(text, text, jsonb, timestamptz), tickwheel_set_if_absent(text, jsonb, jsonb, timestamptz),
    tickwheel_move(text, text, timestamptz), tickwheel_move(text, jsonb, timestamptz),
    tickwheel_remove(text, text), tickwheel_remove(text, jsonb),
    tickwheel_hint_at_commit(), tickwheel_hint(int, text, bigint, bigint),
    tickwheel_write(text, bytea, bytea, timestamptz, text), tickwheel_compact(jsonb);
DROP SEQUENCE tickwheel_versions;

-- Makes the tables and functions of tickwheel-durable: version 1 of its schema.
--
-- For a role with CREATE on the schema, which stands first in its search_path, in one transaction:
--     psql -1 -v ON_ERROR_STOP=1 -f 1.sql
-- The file has no BEGIN and no COMMIT, so a tool for migrations can run it in a transaction of its own. It leaves no setting.
--
-- No other role may have CREATE on the schema. Names are looked up in `pg_catalog` first and then in this schema alone. `@.`
-- in the functions stands for it, until the last statement.

DO $check$
DECLARE
    place pg_catalog.text := pg_catalog.quote_ident(pg_catalog.current_schema());
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock(8388345094170240357);
    PERFORM pg_catalog.set_config('tickwheel.path', pg_catalog.current_setting('search_path'), true);
    PERFORM pg_catalog.set_config('tickwheel.bodies', pg_catalog.current_setting('check_function_bodies'), true);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
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
    IF NOT EXISTS (
        SELECT FROM pg_namespace n, pg_database d
        WHERE quote_ident(n.nspname) = place AND d.datname = current_database() AND pg_has_role(
            CASE n.nspowner WHEN 'pg_database_owner'::regrole THEN d.datdba ELSE n.nspowner END, current_user, 'MEMBER'
        )
    ) THEN
        RAISE 'the owner of the schema % could replace the functions of tickwheel-durable, and so act as %', place, current_user
            USING HINT = 'Apply this file as the owner of the schema, or take a schema of its own.';
    END IF;
    IF place ~ E'[$''\\\\]' THEN
        RAISE 'the name of the schema, %, has a character that is not allowed', place;
    END IF;
    IF to_regclass(place || '.tickwheel_schema') IS NOT NULL THEN
        RAISE 'there are tables of tickwheel-durable already';
    END IF;
    PERFORM set_config('search_path', place || ', pg_temp', true);
    -- Their bodies are whole after the last statement.
    PERFORM set_config('check_function_bodies', 'off', true);
END $check$;
DO $alone$
BEGIN
    IF coalesce(pg_catalog.current_setting('tickwheel.path', true), '') = '' THEN
        RAISE 'the statements of this file belong in one transaction: psql -1, or BEGIN before and COMMIT after it';
    END IF;
END $alone$;

-- | column | |
-- |---|---|
-- | `due`, `deadline`, `alive_until` | microseconds since the epoch |
-- | `period` | microseconds, or null |
-- | `loaded_by` | the id of an instance, or null |
-- | `early` | the transaction that left a row without a mark which was due well before, or null: loads look for such rows alone |
-- | `claimed_by` | the id of the instance that fired a row in flight, or null |
-- | `schedule` | the text of a row that repeats by one, or null |
-- | `error` | the last error of a row, or null |
-- | `died` | when a dead row died, in microseconds since the epoch |
-- | `codec` to `parts` | the charter of a namespace, `edition` its number, and `made` its first number |
-- | `lacks` | how many due rows an instance lacks |
-- | `near` | the instance hears of rows that are due within so many microseconds |
-- | `replaces` | the version that a waiting row had before it was last set or moved |
-- | `readable_by` | the oldest version of the schema whose programs can use these tables: others only settle |
--
-- | index | finds |
-- |---|---|
-- | `tickwheel_timers_pkey` | what is fired or settled |
-- | `tickwheel_waiting` | the one waiting row of a key |
-- | `tickwheel_in_flight` | the latest claim of a key |
-- | `tickwheel_due` | rows that no instance has loaded, by when they are due |
-- | `tickwheel_loaded` | rows that are loaded, by the instance |
-- | `tickwheel_early` | rows that have become due before the place at which loads begin, by the transaction |
-- | `tickwheel_dead_key` | the dead rows of a key |
-- | `tickwheel_dead_died` | the rows that died first |
--
-- Rows come and go all the time, so the table is vacuumed early.
CREATE TABLE tickwheel_schema (
    version int PRIMARY KEY,
    readable_by int NOT NULL,
    identity uuid NOT NULL DEFAULT gen_random_uuid()
);
INSERT INTO tickwheel_schema (version, readable_by) VALUES (1, 1);
CREATE SEQUENCE tickwheel_versions MAXVALUE 9007199254740991;
CREATE TABLE tickwheel_namespaces (
    id int PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    name text NOT NULL UNIQUE,
    codec text NOT NULL,
    no_overlap boolean NOT NULL,
    at_most_once boolean NOT NULL,
    parts int NOT NULL CHECK (parts > 0),
    made bigint NOT NULL,
    edition bigint NOT NULL
);
CREATE TABLE tickwheel_instances (
    id bigint PRIMARY KEY,
    alive_until bigint NOT NULL,
    lacks bigint NOT NULL,
    near bigint NOT NULL,
    namespace int NOT NULL,
    name text
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
    value bytea NOT NULL,
    error text,
    schedule text,
    claimed_by bigint,
    early xid8,
    CONSTRAINT tickwheel_sound CHECK (
        due BETWEEN 0 AND 9007199254740991 AND deadline BETWEEN 0 AND 9007199254740991
        AND attempt BETWEEN 0 AND 2147483646 AND (period IS NULL OR period BETWEEN 1 AND 9007199254740991)
        AND (period IS NULL OR schedule IS NULL)
    )
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX tickwheel_waiting ON tickwheel_timers (namespace, key) WHERE NOT in_flight;
CREATE INDEX tickwheel_in_flight ON tickwheel_timers (namespace, key, version) WHERE in_flight;
CREATE INDEX tickwheel_due ON tickwheel_timers (namespace, in_flight, due, version) WHERE loaded_by IS NULL;
CREATE INDEX tickwheel_loaded ON tickwheel_timers (namespace, loaded_by) WHERE loaded_by IS NOT NULL;
CREATE INDEX tickwheel_early ON tickwheel_timers (namespace, early) WHERE early IS NOT NULL;
CREATE TABLE tickwheel_dead (
    version bigint PRIMARY KEY,
    died bigint NOT NULL,
    deadline bigint NOT NULL,
    namespace int NOT NULL,
    attempt int NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    error text
);
CREATE INDEX tickwheel_dead_key ON tickwheel_dead (namespace, key, version);
CREATE INDEX tickwheel_dead_died ON tickwheel_dead (namespace, died, version);
-- Sends a hint of a row that is due at that time, if that helps. All statements do it by this function, and none fails for it.
--
-- | no hint | because |
-- |---|---|
-- | of what is due in more than two polls of each living instance | they find it |
-- | while the server's queue is nearly full, since a listener in any database does not read it | the commit would fail |
-- | while another transaction commits with a hint of the namespace | its hint comes when this one is seen, see below |
-- | after `SET tickwheel.hints = off` | |
--
-- Transactions with hints commit one after the other, in all databases of a server. So one of a namespace does at a time. It
-- holds the second of two advisory locks, and one that gives no hint for its sake holds the first, shared, which it takes
-- before. Both go when the transaction is visible, and before its hint is heard. So each load, before it looks at the rows, sees
-- by the first lock whether to come again soon. If a load is just looking, the hint is given.
--
-- The hint names a living instance that lacks rows, by chance one of them, and the others need not hurry. It is not the
-- instance that gives the hint.
CREATE OR REPLACE FUNCTION tickwheel_hint(its_space int, its_channel text, its_due bigint, its_own bigint) RETURNS boolean
LANGUAGE plpgsql AS $body$
DECLARE
    its_seed bigint := '@.tickwheel_timers'::regclass::oid::bigint << 32 # its_space;
    its_now bigint := (extract(epoch FROM clock_timestamp()) * 1000000)::bigint;
    its_near bigint;
    its_name bigint;
BEGIN
    IF its_channel IS NULL OR current_setting('tickwheel.hints', true) IN ('off', 'false', 'no', '0')
        OR current_setting('tickwheel.hinted', true) = its_channel THEN
        RETURN false;
    END IF;
    SELECT max(i.near), (array_agg(i.id ORDER BY random()) FILTER (WHERE i.lacks > 0 AND i.id IS DISTINCT FROM its_own))[1]
    INTO its_near, its_name
    FROM @.tickwheel_instances i WHERE i.namespace = its_space AND i.id > 0 AND i.alive_until >= its_now;
    IF its_due - its_now > its_near THEN
        RETURN false;
    END IF;
    IF pg_try_advisory_xact_lock_shared(hashtextextended('tickwheel unhinted', its_seed)) THEN
        IF NOT pg_try_advisory_xact_lock(hashtextextended('tickwheel hint', its_seed)) THEN
            RETURN false;
        END IF;
    END IF;
    IF pg_notification_queue_usage() > 0.9 THEN
        RETURN false;
    END IF;
    PERFORM pg_notify(its_channel, coalesce(its_name::text, '')), set_config('tickwheel.hinted', its_channel, true);
    RETURN true;
END $body$;
-- Sends the hints of a transaction of a user when it commits: only then it is known what is due soon.
CREATE OR REPLACE FUNCTION tickwheel_hint_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off
AS $body$
BEGIN
    PERFORM @.tickwheel_hint(NEW.namespace, 'tickwheel_' || replace(s.identity::text, '-', '') || '_' || NEW.namespace,
        NEW.due, NULL::bigint)
    FROM @.tickwheel_schema s;
    RETURN NULL;
END $body$;
GRANT EXECUTE ON FUNCTION tickwheel_hint(int, text, bigint, bigint) TO PUBLIC;
REVOKE ALL ON FUNCTION tickwheel_hint_at_commit() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER tickwheel_hint AFTER INSERT OR UPDATE ON tickwheel_timers DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
WHEN (current_setting('tickwheel.hint_at_commit', true) = 'on') EXECUTE FUNCTION tickwheel_hint_at_commit();
-- The functions for users, which have the version of the tables. They run the statements of the store's own calls, for one key.
--
-- This one encodes a key as the codec `json` does, without spaces. The order of an object's fields is lost in `jsonb`.
CREATE OR REPLACE FUNCTION tickwheel_compact(key jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    CASE jsonb_typeof(key)
    WHEN 'object' THEN
        RAISE 'tickwheel: an object cannot be a key, since jsonb does not keep the order of its fields: %', key
            USING ERRCODE = 'invalid_parameter_value';
    WHEN 'array' THEN
        RETURN '[' || coalesce((
            SELECT string_agg(@.tickwheel_compact(e.item), ',' ORDER BY e.number)
            FROM jsonb_array_elements(key) WITH ORDINALITY AS e(item, number)
        ), '') || ']';
    ELSE
        RETURN key::text;
    END CASE;
END $body$;
-- Does all that the functions for users do, with the rights of its caller.
--
-- A timer that is due within an hour of the call may be due soon when the transaction commits, which then looks again. The
-- statement itself gives no hint: no row is due within its window.
--
-- A transaction that looks at a snapshot, by REPEATABLE READ or SERIALIZABLE, may not decide by rows that were changed since.
-- What the snapshot has of a key is locked, which the server refuses for such rows by a serialization failure. It does not have
-- a row that waits under the key since: an insert that stands back for it fails likewise. Both are undone at once, since the
-- locks would delay acknowledgements. What the snapshot does not have, and does not wait now, is not seen: a timer that was set
-- since and has fired.
CREATE OR REPLACE FUNCTION tickwheel_write(its_name text, its_key bytea, its_value bytea, its_time timestamptz,
    its_action text, OUT its_result text, OUT its_removed bytea)
LANGUAGE plpgsql AS $body$
DECLARE
    its_keys bytea[] := ARRAY[its_key];
    its_due bigint[] := ARRAY[least(greatest(extract(epoch FROM its_time) * 1000000, 0), 9007199254740991)::bigint];
    its_space int;
    its_codec text;
    its_channel text;
    its_window bigint := -9007199254740991;
    its_row record;
BEGIN
    IF its_name IS NULL OR its_key IS NULL OR (its_value IS NULL AND its_action LIKE 'set%')
        OR (its_time IS NULL AND its_action <> 'remove') THEN
        RAISE 'tickwheel: %: an argument is null (namespace %, key %)', its_action, its_name, convert_from(its_key, 'UTF8')
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF length(its_key) > 1024 THEN
        RAISE 'tickwheel: the encoded key has % bytes; at most 1024 are allowed', length(its_key)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF length(its_value) > 1048576 THEN
        RAISE 'tickwheel: the encoded value has % bytes; at most 1048576 are allowed', length(its_value)
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    FOR its_space, its_codec, its_channel IN
SELECT id, codec, 'tickwheel_' || (SELECT replace(s.identity::text, '-', '') FROM @.tickwheel_schema s) || '_' || id
FROM @.tickwheel_namespaces WHERE name = its_name::text LOOP END LOOP;
    IF its_space IS NULL THEN
        RAISE 'tickwheel: namespace "%" was not opened', its_name
            USING ERRCODE = 'undefined_object', HINT = 'An instance opens it when it starts for the first time.';
    END IF;
    PERFORM set_config('tickwheel.hint_at_commit',
        CASE WHEN its_due[1] < (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 3600000000 THEN 'on' ELSE 'off' END, true);
    FOR its_row IN SELECT pg_advisory_xact_lock_shared(hashtextextended('tickwheel all transactions', ('@.tickwheel_timers'::regclass::oid::bigint << 32 # its_space::int))) LOOP END LOOP;
    FOR its_row IN SELECT pg_advisory_xact_lock_shared(hashtextextended('tickwheel transactions', ('@.tickwheel_timers'::regclass::oid::bigint << 32 # its_space::int)) # (hashtextextended(encode(its_key, 'hex'), 0) & 63)) LOOP END LOOP;
    IF its_codec <> 'json' THEN
        RAISE 'tickwheel: the timers of namespace "%" are encoded as "%", not as "json"', its_name, its_codec
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    FOR its_row IN SELECT pg_advisory_xact_lock(hashtextextended(encode(its_key, 'hex'), hashtextextended('tickwheel key', ('@.tickwheel_timers'::regclass::oid::bigint << 32 # its_space::int)))) LOOP END LOOP;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        BEGIN
            FOR its_row IN
WITH waiting AS MATERIALIZED (
    SELECT 1 FROM @.tickwheel_timers t
    WHERE t.namespace = its_space::int AND t.key = ANY(its_keys::bytea[]) AND NOT t.in_flight FOR UPDATE
), claimed AS MATERIALIZED (
    SELECT 1 FROM @.tickwheel_timers t
    WHERE t.namespace = its_space::int AND t.key = ANY(its_keys::bytea[]) AND t.in_flight FOR UPDATE
), dead AS MATERIALIZED (
    SELECT 1 FROM @.tickwheel_dead d WHERE d.namespace = its_space::int AND d.key BETWEEN its_key AND its_key FOR UPDATE
)
SELECT (SELECT count(*) FROM waiting), (SELECT count(*) FROM claimed), (SELECT count(*) FROM dead) LOOP END LOOP;
            INSERT INTO @.tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt)
            VALUES (nextval('@.tickwheel_versions'), its_space, its_key, '', false, 0, 0, 0)
            ON CONFLICT (namespace, key) WHERE NOT in_flight DO NOTHING;
            RAISE 'undone' USING ERRCODE = 'TWNDO';
        EXCEPTION WHEN SQLSTATE 'TWNDO' THEN NULL;
        END;
    END IF;
    CASE its_action
    WHEN 'set' THEN
        FOR its_row IN WITH clock AS MATERIALIZED (
            SELECT its_space::int AS namespace, t.now, t.now + its_window::bigint AS soon, (
                SELECT i.id FROM @.tickwheel_instances i
                WHERE i.id = NULL::bigint::bigint AND i.namespace = its_space AND i.alive_until >= t.now
            ) AS loader, pg_current_xact_id() AS xact, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000 AS lately
            FROM (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now) t
        ), i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[], ARRAY[its_value]::bytea[], its_due::bigint[], ARRAY[false]::bool[], ARRAY[NULL]::bigint[], '{}'::text[]) WITH ORDINALITY AS u(key, value, at, relative, period, schedule, number)), armed AS (INSERT INTO @.tickwheel_timers AS t
            (version, namespace, key, value, in_flight, due, deadline, attempt, period, schedule, loaded_by, early)
        SELECT nextval('@.tickwheel_versions'), i.namespace, i.key, i.value, false, d.due, d.due, 0, i.period, i.schedule,
            CASE WHEN d.due <= clock.soon THEN clock.loader END, CASE WHEN d.due < clock.lately THEN clock.xact END
        FROM clock, i, LATERAL (SELECT least(CASE WHEN i.relative THEN clock.now + i.at ELSE i.at END, 9007199254740991) AS due) d ON CONFLICT (namespace, key) WHERE NOT in_flight DO UPDATE SET
            version = nextval('@.tickwheel_versions'), value = excluded.value, attempt = 0, period = excluded.period,
            schedule = excluded.schedule, replaces = t.version, error = NULL,
            due = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991 THEN t.due ELSE excluded.due END,
            deadline = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991 THEN t.deadline ELSE excluded.deadline END,
            loaded_by = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991
                THEN (SELECT loader FROM clock WHERE t.due <= soon) ELSE excluded.loaded_by END,
            early = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991
                THEN (SELECT xact FROM clock WHERE t.due < lately) ELSE excluded.early END RETURNING t.key, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, t.replaces, t.namespace), outdated AS (
        DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
            SELECT d.version FROM armed k, LATERAL (
                SELECT version FROM @.tickwheel_dead
                WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key OFFSET 0
            ) d WHERE (SELECT true FROM @.tickwheel_dead WHERE namespace = its_space::int LIMIT 1)
        ))
    ), hint AS MATERIALIZED (
        SELECT @.tickwheel_hint(its_space::int, its_channel::text, min(armed.due), NULL::bigint) FROM armed, clock
        WHERE armed.due <= clock.soon AND NOT armed.loaded HAVING count(*) > 0
    )
    SELECT armed.*, (SELECT count(*) FROM hint) FROM armed LOOP
            its_result := CASE WHEN its_row.replaces IS NULL THEN 'set' ELSE 'replaced' END;
        END LOOP;
    WHEN 'set_if_absent' THEN
        FOR its_row IN WITH i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[]) WITH ORDINALITY AS u(key, number)) SELECT 1 FROM i, @.tickwheel_timers t
WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
FOR UPDATE OF t LOOP END LOOP;
        FOR its_row IN WITH clock AS MATERIALIZED (
            SELECT its_space::int AS namespace, t.now, t.now + its_window::bigint AS soon, (
                SELECT i.id FROM @.tickwheel_instances i
                WHERE i.id = NULL::bigint::bigint AND i.namespace = its_space AND i.alive_until >= t.now
            ) AS loader, pg_current_xact_id() AS xact, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000 AS lately
            FROM (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now) t
        ), i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[], ARRAY[its_value]::bytea[], its_due::bigint[], ARRAY[false]::bool[], ARRAY[NULL]::bigint[], '{}'::text[]) WITH ORDINALITY AS u(key, value, at, relative, period, schedule, number)), armed AS (INSERT INTO @.tickwheel_timers AS t
            (version, namespace, key, value, in_flight, due, deadline, attempt, period, schedule, loaded_by, early)
        SELECT nextval('@.tickwheel_versions'), i.namespace, i.key, i.value, false, d.due, d.due, 0, i.period, i.schedule,
            CASE WHEN d.due <= clock.soon THEN clock.loader END, CASE WHEN d.due < clock.lately THEN clock.xact END
        FROM clock, i, LATERAL (SELECT least(CASE WHEN i.relative THEN clock.now + i.at ELSE i.at END, 9007199254740991) AS due) d WHERE NOT EXISTS (
    SELECT FROM @.tickwheel_timers f WHERE f.namespace = i.namespace AND f.key = i.key AND f.in_flight
)
ON CONFLICT (namespace, key) WHERE NOT in_flight DO NOTHING RETURNING t.key, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, t.replaces, t.namespace), outdated AS (
        DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
            SELECT d.version FROM armed k, LATERAL (
                SELECT version FROM @.tickwheel_dead
                WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key OFFSET 0
            ) d WHERE (SELECT true FROM @.tickwheel_dead WHERE namespace = its_space::int LIMIT 1)
        ))
    ), hint AS MATERIALIZED (
        SELECT @.tickwheel_hint(its_space::int, its_channel::text, min(armed.due), NULL::bigint) FROM armed, clock
        WHERE armed.due <= clock.soon AND NOT armed.loaded HAVING count(*) > 0
    )
    SELECT armed.*, (SELECT count(*) FROM hint) FROM armed LOOP
            its_result := 'set';
        END LOOP;
    WHEN 'move' THEN
        FOR its_row IN WITH clock AS MATERIALIZED (
            SELECT its_space::int AS namespace, t.now, t.now + its_window::bigint AS soon, (
                SELECT i.id FROM @.tickwheel_instances i
                WHERE i.id = NULL::bigint::bigint AND i.namespace = its_space AND i.alive_until >= t.now
            ) AS loader, pg_current_xact_id() AS xact, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000 AS lately
            FROM (SELECT (extract(epoch FROM now()) * 1000000)::bigint AS now) t
        ), i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[], its_due::bigint[], ARRAY[false]::bool[]) WITH ORDINALITY AS u(key, at, relative, number)), armed AS (
    UPDATE @.tickwheel_timers t SET
        version = nextval('@.tickwheel_versions'), due = d.due, deadline = d.due,
        loaded_by = CASE WHEN d.due <= clock.soon THEN clock.loader END, replaces = t.version,
        early = CASE WHEN d.due < clock.lately THEN clock.xact END
    FROM clock, i, LATERAL (SELECT least(CASE WHEN i.relative THEN clock.now + i.at ELSE i.at END, 9007199254740991) AS due) d WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight RETURNING t.key, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, t.replaces, t.namespace), hint AS MATERIALIZED (
        SELECT @.tickwheel_hint(its_space::int, its_channel::text, min(armed.due), NULL::bigint) FROM armed, clock
        WHERE armed.due <= clock.soon AND NOT armed.loaded HAVING count(*) > 0
    )
    SELECT armed.*, (SELECT count(*) FROM hint) FROM armed LOOP
            its_result := 'moved';
        END LOOP;
    WHEN 'remove' THEN
        FOR its_row IN WITH i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[]) WITH ORDINALITY AS u(key, number)), removed AS (
    DELETE FROM @.tickwheel_timers t USING i
    WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
    RETURNING t.namespace, t.key, t.version, t.value
), outdated AS (
    DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
        SELECT d.version FROM removed k, LATERAL (
            SELECT version FROM @.tickwheel_dead
            WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key OFFSET 0
        ) d WHERE (SELECT true FROM @.tickwheel_dead WHERE namespace = its_space::int LIMIT 1)
    ))
)
SELECT key, version, value FROM removed LOOP
            its_result := 'removed';
            its_removed := its_row.value;
        END LOOP;
        IF its_result IS NULL THEN
            FOR its_row IN WITH i AS MATERIALIZED (SELECT its_space::int AS namespace, u.* FROM unnest(its_keys::bytea[]) WITH ORDINALITY AS u(key, number)), standing AS MATERIALIZED (
    SELECT i.namespace, i.key, (
        SELECT max(f.version) FROM @.tickwheel_timers f WHERE f.namespace = i.namespace AND f.key = i.key AND f.in_flight
    ) AS token FROM i
), dead AS (
    DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
        SELECT d.version FROM (SELECT namespace, key FROM standing WHERE token IS NULL) k, LATERAL (
            SELECT version FROM @.tickwheel_dead
            WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key OFFSET 0
        ) d WHERE (SELECT true FROM @.tickwheel_dead WHERE namespace = its_space::int LIMIT 1)
    )) RETURNING key, version, value
)
SELECT DISTINCT ON (key) key, version, value, token FROM (
    SELECT key, version, value, NULL::bigint AS token FROM dead
    UNION ALL
    SELECT key, NULL, NULL, token FROM standing
) u ORDER BY key, version DESC NULLS LAST LOOP
                its_result := CASE
                    WHEN its_row.version IS NOT NULL THEN 'removed'
                    WHEN its_row.token IS NULL THEN 'absent'
                    ELSE 'in_flight'
                END;
                its_removed := its_row.value;
            END LOOP;
        END IF;
    END CASE;
    IF its_result IS NULL THEN
        FOR its_row IN
SELECT i.key,
    (SELECT w.version FROM @.tickwheel_timers w WHERE w.namespace = its_space::int AND w.key = i.key AND NOT w.in_flight) IS NOT NULL AS waits,
    (SELECT max(f.version) FROM @.tickwheel_timers f WHERE f.namespace = its_space::int AND f.key = i.key AND f.in_flight) AS token
FROM unnest(its_keys::bytea[]) AS i(key) LOOP
            its_result := CASE
                WHEN its_action = 'set_if_absent' AND (its_row.waits OR its_row.token IS NULL) THEN 'present'
                WHEN its_row.token IS NULL THEN 'absent'
                ELSE 'in_flight'
            END;
        END LOOP;
    END IF;
END $body$;
-- The functions for users. Each has its owner's rights, so its callers need no other right. Its path has the built-in
-- functions, operators and types alone: no caller, and no role that may create in a schema, chooses what it runs. Where it
-- calls another of ours, the arguments have the exact types, so that no overload fits better. The settings have rows looked
-- up by indices, as those of the store's own connections do.
DO $users$
DECLARE
    its record;
BEGIN
    FOR its IN
        SELECT f.name, format('tickwheel_%s(namespace text, key %s%s)', f.name, k.type, f.parameters) AS signature, f.returns, k.bytes,
            f.value, f.due, f.result
        FROM (VALUES
            ('set', ', value jsonb, due timestamptz', ' RETURNS text', 'convert_to(value::text, ''UTF8'')', 'due',
                'RETURN its.its_result'),
            ('set_if_absent', ', value jsonb, due timestamptz', ' RETURNS text', 'convert_to(value::text, ''UTF8'')', 'due',
                'RETURN its.its_result'),
            ('move', ', due timestamptz', ' RETURNS text', 'NULL::bytea', 'due',
                'RETURN its.its_result'),
            ('remove', ', OUT result text, OUT value json', '', 'NULL::bytea', 'NULL::timestamptz',
                E'result := its.its_result;\n    value := convert_from(its.its_removed, ''UTF8'')::json')
        ) AS f(name, parameters, returns, value, due, result),
        (VALUES ('text', 'to_json(key)::text'), ('jsonb', '@.tickwheel_compact(key)')) AS k(type, bytes)
    LOOP
        EXECUTE format($sql$
CREATE OR REPLACE FUNCTION %s%s
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan SET jit = off SET row_security = off
AS $body$
DECLARE
    its record;
BEGIN
    its := @.tickwheel_write(namespace, convert_to(%s, 'UTF8'), %s, %s, %L::text);
    %s;
END $body$;
REVOKE ALL ON FUNCTION %s FROM PUBLIC;
        $sql$, its.signature, its.returns, its.bytes, its.value, its.due, its.name, its.result, its.signature);
    END LOOP;
END $users$;
REVOKE ALL ON FUNCTION tickwheel_compact(jsonb), tickwheel_write(text, bytea, bytea, timestamptz, text) FROM PUBLIC;
-- Names the schema in the functions, and puts the settings back.
DO $names$
DECLARE
    its record;
BEGIN
    FOR its IN
        SELECT pg_get_functiondef(p.oid) AS definition FROM pg_proc p, pg_namespace n
        WHERE n.oid = p.pronamespace AND n.nspname = current_schema() AND starts_with(p.proname::text, 'tickwheel_')
            AND strpos(p.prosrc, '@.') > 0
    LOOP
        EXECUTE replace(its.definition, '@.', quote_ident(current_schema()) || '.');
    END LOOP;
    PERFORM set_config('check_function_bodies', current_setting('tickwheel.bodies'), true);
    PERFORM set_config('search_path', current_setting('tickwheel.path'), true);
    PERFORM set_config('tickwheel.path', '', true);
END $names$;

//! Retries and discards of dead rows.

/// The first dead rows under the key `$2`, at most `$3`, after a version `$4`.
pub(in crate::postgres) const DEAD_OF_KEY: &str = "
    SELECT died, version FROM @.tickwheel_dead
    WHERE namespace = $1::int AND key <= $2::bytea AND (key, version) > ($2::bytea, $4::bigint)
    ORDER BY key, version LIMIT $3::bigint";

/// The first rows that died at the time `$2` or before, at most `$3`, after the version `$4` that
/// died at `$5`.
pub(in crate::postgres) const DEAD_UNTIL: &str = "
    SELECT died, version FROM @.tickwheel_dead
    WHERE namespace = $1::int AND died <= $2::bigint AND (died, version) > ($5::bigint, $4::bigint)
    ORDER BY died, version LIMIT $3::bigint";

/// Makes an array of dead versions due again, and gives a hint on the channel `$3`. The first row
/// of a key becomes its waiting row, if it has none.
pub(in crate::postgres) const RETRY: &str = concat!(
    "WITH ",
    free_tokens!("$2::bigint[]", "version"),
    ", retried AS (
        DELETE FROM @.tickwheel_dead d USING i WHERE d.version = i.version AND d.namespace + 0 = i.namespace
        RETURNING i.number, i.namespace, d.key, d.value, d.deadline, d.error
    ), ranked AS MATERIALIZED (
        SELECT r.*, row_number() OVER (PARTITION BY key ORDER BY number) = 1 AND (
                SELECT w.version FROM @.tickwheel_timers w
                WHERE w.namespace = r.namespace AND w.key = r.key AND NOT w.in_flight
            ) IS NULL AS arms
        FROM retried r
    ), due AS (
        INSERT INTO @.tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt, error, early)
        SELECT nextval('@.tickwheel_versions'), namespace, key, value, NOT arms, ",
    now!(),
    ", deadline, 0, error, pg_current_xact_id() FROM ranked ORDER BY number
    )
    SELECT count(*), CASE WHEN count(*) > 0 THEN @.tickwheel_hint($1::int, $3::text, 0::bigint, NULL::bigint) END FROM ranked"
);

/// Deletes those of an array of dead versions that are not locked.
pub(in crate::postgres) const DISCARD: &str = concat!(
    "WITH ",
    free_tokens!("$2::bigint[]", "version"),
    ", free AS MATERIALIZED (
        SELECT d.version FROM i, @.tickwheel_dead d WHERE d.version = i.version AND d.namespace + 0 = i.namespace
        FOR UPDATE OF d SKIP LOCKED
    ), discarded AS (
        DELETE FROM @.tickwheel_dead d USING free WHERE d.version = free.version RETURNING 1
    )
    SELECT count(*) FROM discarded"
);

//! The statements that settle claims.

use std::time::Duration;

use crate::store::micros;

/// From an array of tokens.
pub(in crate::postgres) const ACK: &str = concat!(
    "WITH ",
    free_tokens!("$2::bigint[]", "version"),
    " DELETE FROM @.tickwheel_timers t USING i
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    RETURNING t.version"
);

/// From arrays of tokens and errors. Of each key that has many dead rows, as many of the oldest go:
/// see [`MAX_DEAD_OF_KEY`](crate::store::MAX_DEAD_OF_KEY), the 100 below.
pub(in crate::postgres) const DIE: &str = concat!(
    "WITH ",
    free_tokens!("$2::bigint[], $3::text[]", "version, error"),
    ", gone AS (
        DELETE FROM @.tickwheel_timers t USING i
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
        RETURNING t.version, t.namespace, t.key, t.value, t.deadline, t.attempt, coalesce(i.error, t.error) AS error
    ), died AS (
        INSERT INTO @.tickwheel_dead (version, namespace, key, value, died, deadline, attempt, error)
        SELECT version, namespace, key, value, ",
    now!(),
    ", deadline, attempt, error FROM gone
    ), oldest AS (
        DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
            SELECT d.version FROM (SELECT namespace, key, count(*) AS died FROM gone GROUP BY namespace, key) k, LATERAL (
                SELECT version FROM @.tickwheel_dead
                WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key
                ORDER BY key DESC, version DESC OFFSET greatest(100 - k.died, 0)
            ) d WHERE (SELECT true FROM @.tickwheel_dead WHERE namespace = $1::int LIMIT 1)
        ))
    )
    SELECT version FROM gone"
);

/// From arrays of tokens, leases and errors.
pub(in crate::postgres) const EXTEND: &str = concat!(
    "WITH ",
    items!(
        "$2::bigint[], $3::bigint[], $4::text[]",
        "version, lease, error"
    ),
    " UPDATE @.tickwheel_timers t SET due = least(",
    now!(),
    " + i.lease, ",
    never!(),
    "), error = coalesce(i.error, t.error)
    FROM i WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    RETURNING t.version"
);

/// Stands for the delay of [`PUT_BACK`] where the firing is not to count, and the deadline stays:
/// it is less than zero.
pub(in crate::postgres) fn unfire(pause: Duration) -> i64 {
    -1 - micros(pause)
}

/// Makes the ids of `$2` live that mark rows which instances leave to others, each for its time in
/// `$3`, unless it does.
pub(in crate::postgres) const LEAVERS: &str = concat!(
    "WITH ",
    items!("$2::bigint[], $3::bigint[]", "id, alive"),
    "
    INSERT INTO @.tickwheel_instances AS old (id, namespace, alive_until, lacks, near)
    SELECT DISTINCT ON (i.id) i.id, i.namespace, least(",
    now!(),
    " + i.alive, ",
    never!(),
    "), 0, 0 FROM i ORDER BY i.id
    ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until WHERE old.alive_until < ",
    now!()
);

/// From arrays of tokens, delays, errors, and ids that mark what is left to other instances.
/// Without a delay the deadline stays. With one of [`unfire`] it does, too.
///
/// The first row of a key becomes its waiting row, if it has none. The others stay in flight, also
/// with new versions: no claim holds them any more.
pub(in crate::postgres) const PUT_BACK: &str = concat!(
    "WITH ", clock!(), ", ", free_tokens!(
        "$5::bigint[], $6::bigint[], $7::text[], $8::bigint[]", "version, delay, error, left_by"
    ), ", claim AS MATERIALIZED (
        SELECT i.number, i.delay, i.error, i.left_by, t.version, t.key
        FROM i, @.tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
        ORDER BY t.version
        FOR UPDATE OF t
    ), ranked AS MATERIALIZED (
        SELECT claim.*, row_number() OVER (PARTITION BY key ORDER BY number) = 1 AND (
                SELECT w.version FROM @.tickwheel_timers w
                WHERE w.namespace = clock.namespace AND w.key = claim.key AND NOT w.in_flight
            ) IS NULL AS arms,
            least(clock.now + greatest(delay, -1 - delay, 0), ", never!(), ") AS due
        FROM claim, clock
    ), armed AS (
        UPDATE @.tickwheel_timers t SET
            version = nextval('@.tickwheel_versions'),
            in_flight = NOT r.arms,
            due = r.due,
            deadline = CASE WHEN r.arms AND r.delay >= 0 THEN r.due ELSE t.deadline END,
            attempt = greatest(t.attempt - (coalesce(r.delay, 0) < 0)::int, 0),
            loaded_by = CASE WHEN r.left_by IS NOT NULL THEN r.left_by WHEN r.arms AND r.due <= clock.soon THEN clock.loader END,
            claimed_by = NULL,
            error = coalesce(r.error, t.error),
            early = CASE WHEN r.due < clock.lately THEN clock.xact END
        FROM clock, ranked r
        WHERE t.version = r.version
        RETURNING r.version AS token, t.version, t.due, coalesce(t.loaded_by > 0, false) AS loaded, r.arms
    )", armed!()
);

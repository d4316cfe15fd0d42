//! Purges.

/// Deletes rows that are not locked, at most `$2` in each state.
pub(in crate::postgres) const PURGE: &str = "
    WITH waiting AS MATERIALIZED (
        SELECT t.version FROM @.tickwheel_timers t WHERE t.namespace = $1::int AND NOT t.in_flight
        ORDER BY t.key LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ), in_flight AS MATERIALIZED (
        SELECT t.version FROM @.tickwheel_timers t WHERE t.namespace = $1 AND t.in_flight
        ORDER BY t.key, t.version LIMIT $2
        FOR UPDATE SKIP LOCKED
    ), dead AS MATERIALIZED (
        SELECT d.version FROM @.tickwheel_dead d WHERE d.namespace = $1
        ORDER BY d.died, d.version LIMIT $2
        FOR UPDATE SKIP LOCKED
    ), deleted AS (
        DELETE FROM @.tickwheel_timers t USING (SELECT * FROM waiting UNION ALL SELECT * FROM in_flight) p
        WHERE t.version = p.version RETURNING 1
    ), deleted_dead AS (
        DELETE FROM @.tickwheel_dead d USING dead WHERE d.version = dead.version RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM deleted_dead)";

/// Deletes one row, and waits until it is not locked. Returns nothing if there is none.
pub(in crate::postgres) const PURGE_LOCKED: &str = "
    WITH left_behind AS MATERIALIZED (
        SELECT coalesce(
            (SELECT version FROM @.tickwheel_timers WHERE namespace = $1::int AND NOT in_flight ORDER BY key LIMIT 1),
            (SELECT version FROM @.tickwheel_timers WHERE namespace = $1 AND in_flight ORDER BY key, version LIMIT 1),
            (SELECT version FROM @.tickwheel_dead WHERE namespace = $1 ORDER BY died, version LIMIT 1)
        ) AS version
    ), deleted AS (
        DELETE FROM @.tickwheel_timers t USING left_behind l WHERE t.version = l.version RETURNING 1
    ), deleted_dead AS (
        DELETE FROM @.tickwheel_dead d USING left_behind l WHERE d.version = l.version RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM deleted_dead)
    FROM left_behind WHERE version IS NOT NULL";

//! The SQL of calls that only read: of lists and of counts. `$1` is the id of the
//! namespace.

/// Rows in flight, or waiting, after a time and a version, until they have `$5` bytes. Those loaded
/// are few, and are sorted.
pub(in crate::postgres) const LIST: &str = concat!(
    "WITH page AS ((",
    stored!(),
    "WHERE namespace = $1::int AND in_flight = $6::bool AND loaded_by IS NULL
        AND (due, version) > ($2::bigint, $3::bigint) ORDER BY due, version LIMIT $4::bigint)
    UNION ALL
    (",
    stored!(),
    "WHERE namespace = $1 AND in_flight = $6 AND loaded_by IS NOT NULL
        AND (due, version) > ($2, $3) ORDER BY due, version LIMIT $4)
    ORDER BY due, version LIMIT $4)",
    sized_page!("$5::bigint", "due, version")
);

/// Dead rows after a time and a version, until they have `$5` bytes.
pub(in crate::postgres) const LIST_DEAD: &str = concat!(
    "WITH page AS (",
    stored_dead!(),
    "WHERE namespace = $1::int AND (died, version) > ($2::bigint, $3::bigint) ORDER BY died, version LIMIT $4::bigint)",
    sized_page!("$5::bigint", "due, version")
);

/// How many rows there are in each state, up to one more than `$2`, and when the earliest waiting
/// one is due.
pub(in crate::postgres) const COUNT: &str = concat!(
    "SELECT ", now!(), ",
        (SELECT count(*) FROM (
            SELECT FROM @.tickwheel_timers WHERE namespace = $1::int AND NOT in_flight LIMIT $2::bigint + 1) w),
        (SELECT count(*) FROM (
            SELECT FROM @.tickwheel_timers WHERE namespace = $1 AND in_flight LIMIT $2 + 1) f),
        least(
            (SELECT due FROM @.tickwheel_timers
                WHERE namespace = $1 AND NOT in_flight AND loaded_by IS NULL ORDER BY due, version LIMIT 1),
            (SELECT min(due) FROM @.tickwheel_timers WHERE namespace = $1 AND NOT in_flight AND loaded_by IS NOT NULL)),
        (SELECT count(*) FROM (SELECT FROM @.tickwheel_dead WHERE namespace = $1 LIMIT $2 + 1) d)"
);

/// Estimates how many rows there are in each state, from `$2` pages. The choice of pages depends
/// only on how many there are, so two results differ only by what has changed between them.
pub(in crate::postgres) const SAMPLE: &str = "
    WITH t AS MATERIALIZED (
        SELECT least(1, $2::bigint * current_setting('block_size')::float8
            / greatest(pg_relation_size('@.tickwheel_timers'::regclass), 1)) AS part
    )
    SELECT (count(*) FILTER (WHERE NOT in_flight) / (SELECT part FROM t))::bigint,
        (count(*) FILTER (WHERE in_flight) / (SELECT part FROM t))::bigint
    FROM @.tickwheel_timers TABLESAMPLE SYSTEM (100 * (SELECT part FROM t)) REPEATABLE (1)
    WHERE namespace = $1::int";

/// As [`SAMPLE`], of dead rows.
pub(in crate::postgres) const SAMPLE_DEAD: &str = "
    WITH t AS MATERIALIZED (
        SELECT least(1, $2::bigint * current_setting('block_size')::float8
            / greatest(pg_relation_size('@.tickwheel_dead'::regclass), 1)) AS part
    )
    SELECT (count(*) / (SELECT part FROM t))::bigint
    FROM @.tickwheel_dead TABLESAMPLE SYSTEM (100 * (SELECT part FROM t)) REPEATABLE (1)
    WHERE namespace = $1::int";

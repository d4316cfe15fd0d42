//! The SQL of what an operator reads. `$1` is the id of the namespace.

/// The instances of a namespace, and how many rows each has loaded.
pub(in crate::postgres) const INSTANCES: &str = "
    SELECT i.id, i.alive_until, i.lacks, (
        SELECT count(*) FROM @.tickwheel_timers t WHERE t.namespace = $1::int AND t.loaded_by = i.id
    ), i.name FROM @.tickwheel_instances i WHERE i.namespace = $1 AND i.id > 0 ORDER BY i.id";

/// The rows under the key `$2`, the latest `$3` in each state, until they have `$4` bytes.
pub(in crate::postgres) const ROWS_OF: &str = concat!(
    "WITH page AS ((",
    stored!(),
    "WHERE namespace = $1::int AND key = $2::bytea AND NOT in_flight)
    UNION ALL
    (",
    stored!(),
    "WHERE namespace = $1 AND key = $2 AND in_flight ORDER BY version DESC LIMIT $3::bigint)
    UNION ALL
    (",
    stored_dead!(),
    "WHERE namespace = $1 AND key BETWEEN $2 AND $2 ORDER BY key DESC, version DESC LIMIT $3))",
    sized_page!("$4::bigint", "dead, in_flight, version DESC")
);

/// A page of rows with keys less than `$2`, after the key `$3` and the version `$4`: at most
/// `$5`, until they have `$6` bytes.
macro_rules! prefix {
    ($($rows:tt)+) => {
        concat!(
            "WITH page AS (",
            $($rows)+,
            " AND key < $2::bytea AND (key, version) > ($3::bytea, $4::bigint)
            ORDER BY key, version LIMIT $5::bigint)",
            sized_page!("$6::bigint", "key, version")
        )
    };
}

pub(in crate::postgres) const PREFIX_WAITING: &str =
    prefix!(stored!(), "WHERE namespace = $1::int AND NOT in_flight");

pub(in crate::postgres) const PREFIX_IN_FLIGHT: &str =
    prefix!(stored!(), "WHERE namespace = $1::int AND in_flight");

pub(in crate::postgres) const PREFIX_DEAD: &str =
    prefix!(stored_dead!(), "WHERE namespace = $1::int");

/// How many rows wait that are due between each of the times `$2` and the next. It counts at most
/// `$3` of the rows that no instance has loaded. Loaded rows are few, and are read once.
pub(in crate::postgres) const COUNT_DUE: &str = "
    WITH span AS (
        SELECT u.number, u.since, lead(u.since) OVER (ORDER BY u.number) AS until
        FROM unnest($2::bigint[]) WITH ORDINALITY AS u(since, number)
    ), loaded AS MATERIALIZED (
        SELECT due FROM @.tickwheel_timers WHERE namespace = $1::int AND NOT in_flight AND loaded_by IS NOT NULL
    )
    SELECT (
        SELECT count(*) FROM (
            SELECT FROM @.tickwheel_timers t
            WHERE t.namespace = $1 AND NOT t.in_flight AND t.loaded_by IS NULL AND t.due >= span.since AND t.due < span.until
            LIMIT $3::bigint
        ) counted
    ) + (
        SELECT count(*) FROM loaded WHERE loaded.due >= span.since AND loaded.due < span.until
    )
    FROM span WHERE span.until IS NOT NULL ORDER BY span.number";

//! Sets, moves and removes.

use super::locks::{hold, is_free, key_hash, space_seed};

/// When an item of the arrays `at` and `relative` is due.
macro_rules! item_due {
    () => {
        concat!(
            "LATERAL (SELECT least(CASE WHEN i.relative THEN clock.now + i.at ELSE i.at END, ",
            never!(),
            ") AS due) d"
        )
    };
}

/// The columns of a row that is set, beside those that each version writes.
#[cfg(not(tickwheel_next_schema))]
macro_rules! added_columns {
    () => {
        ""
    };
    (values) => {
        ""
    };
}

#[cfg(tickwheel_next_schema)]
macro_rules! added_columns {
    () => {
        ", origin"
    };
    (values) => {
        ", 'next'"
    };
}

/// New waiting rows, from arrays of keys, values, times, whether these are relative, periods and
/// schedules. The last may be empty.
macro_rules! insert_waiting {
    () => {
        concat!(
            "INSERT INTO @.tickwheel_timers AS t
                (version, namespace, key, value, in_flight, due, deadline, attempt, period, schedule, loaded_by, early",
            added_columns!(),
            ")
            SELECT nextval('@.tickwheel_versions'), i.namespace, i.key, i.value, false, d.due, d.due, 0, i.period, i.schedule,
                CASE WHEN d.due <= clock.soon THEN clock.loader END, CASE WHEN d.due < clock.lately THEN clock.xact END",
            added_columns!(values),
            "
            FROM clock, i, ",
            item_due!()
        )
    };
}

/// The columns that are returned of a row that was armed under its key.
macro_rules! armed_row {
    () => {
        " RETURNING t.key, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, t.replaces, t.namespace"
    };
}

/// Whether the namespace has dead rows. While it has none, no key is looked for among them.
macro_rules! any_dead {
    () => {
        "(SELECT true FROM @.tickwheel_dead WHERE namespace = $1::int LIMIT 1)"
    };
}

/// Deletes the dead rows of the keys of a relation. It finds their versions key by key, in a
/// subquery of its own: a join reads all dead rows if few keys are known to have them.
macro_rules! delete_dead {
    ($keys:literal) => {
        concat!(
            "DELETE FROM @.tickwheel_dead WHERE version = ANY(ARRAY(
                SELECT d.version FROM ",
            $keys,
            " k, LATERAL (
                    SELECT version FROM @.tickwheel_dead
                    WHERE namespace = k.namespace AND key BETWEEN k.key AND k.key OFFSET 0
                ) d WHERE ",
            any_dead!(),
            "
            ))"
        )
    };
}

/// Discards the dead rows of the keys that are `armed`. One that appears after the statement has
/// begun died after the write.
macro_rules! outdated {
    () => {
        concat!(", outdated AS (", delete_dead!("armed"), ")")
    };
}

/// Sets the items that fulfil a condition. A row that is set to the schedule that it has keeps its
/// time.
macro_rules! set {
    ($items:expr, $condition:expr, $also:expr) => {
        concat!(
            "WITH ", clock!(), ", ", $items, ", armed AS (", insert_waiting!(), $condition,
            " ON CONFLICT (namespace, key) WHERE NOT in_flight DO UPDATE SET
                version = nextval('@.tickwheel_versions'), value = excluded.value, attempt = 0, period = excluded.period,
                schedule = excluded.schedule, replaces = t.version, error = NULL,
                due = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991 THEN t.due ELSE excluded.due END,
                deadline = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991 THEN t.deadline ELSE excluded.deadline END,
                loaded_by = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991
                    THEN (SELECT loader FROM clock WHERE t.due <= soon) ELSE excluded.loaded_by END,
                early = CASE WHEN t.schedule = excluded.schedule AND t.due < 9007199254740991
                    THEN (SELECT xact FROM clock WHERE t.due < lately) ELSE excluded.early END",
            armed_row!(), ")", outdated!(), armed!($also)
        )
    };
}

pub(in crate::postgres) const SET: &str = set!(
    free_keys!(
        "$5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[], $10::text[]",
        "key, value, at, relative, period, schedule"
    ),
    "",
    ""
);

/// Takes the locks of the keys itself, before the first row: a batch of sets alone is one
/// statement. It may have begun before it has the locks, since what it replaces is decided by the
/// index, not by what it saw. It returns nothing for keys that a transaction has locked. It
/// compares the time `$12` when it has whatever it has waited for, and the edition `$11` that it
/// saw when it began.
pub(in crate::postgres) const SET_ALONE: &str = set!(
    concat!(
        "i AS MATERIALIZED (SELECT $1::int AS namespace, u.*, ",
        key_hash!("u.key"),
        " AS hash
            FROM unnest($5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[], $10::text[])
            WITH ORDINALITY AS u(key, value, at, relative, period, schedule, number)
        ), ",
        hold!()
    ),
    concat!(" WHERE ", is_free!()),
    concat!(", ", terms!("$11", "$12"))
);

pub(in crate::postgres) const SET_IF_ABSENT: &str = concat!(
    "WITH ", clock!(), ", ", free_keys!("$5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[], $10::text[]", "key, value, at, relative, period, schedule"), ", armed AS (", insert_waiting!(),
    " WHERE NOT EXISTS (
        SELECT FROM @.tickwheel_timers f WHERE f.namespace = i.namespace AND f.key = i.key AND f.in_flight
    )
    ON CONFLICT (namespace, key) WHERE NOT in_flight DO NOTHING",
    armed_row!(), ")", outdated!(), armed!()
);

/// From arrays of keys, times, and whether these are relative.
pub(in crate::postgres) const MOVE: &str = concat!(
    "WITH ",
    clock!(),
    ", ",
    free_keys!("$5::bytea[], $6::bigint[], $7::bool[]", "key, at, relative"),
    ", armed AS (
        UPDATE @.tickwheel_timers t SET
            version = nextval('@.tickwheel_versions'), due = d.due, deadline = d.due,
            loaded_by = CASE WHEN d.due <= clock.soon THEN clock.loader END, replaces = t.version,
            early = CASE WHEN d.due < clock.lately THEN clock.xact END
        FROM clock, i, ",
    item_due!(),
    " WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight",
    armed_row!(),
    ")",
    armed!()
);

/// From an array of keys. Discards the dead rows of those that have a waiting row.
pub(in crate::postgres) const REMOVE: &str = concat!(
    "WITH ",
    free_keys!("$2::bytea[]", "key"),
    ", removed AS (
        DELETE FROM @.tickwheel_timers t USING i
        WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
        RETURNING t.namespace, t.key, t.version, t.value
    ), outdated AS (",
    delete_dead!("removed"),
    ")
    SELECT key, version, value FROM removed"
);

/// From an array of keys, after [`REMOVE`]. For each it returns the latest token, or the latest
/// dead row if none is in flight, which discards the dead rows.
///
/// All this is seen in one snapshot, which is later than whatever [`REMOVE`] has waited for. To
/// [`REMOVE`] itself, a timer that it has waited for, and that has fired, is neither waiting nor in
/// flight.
pub(in crate::postgres) const REMOVE_DEAD: &str = concat!(
    "WITH ",
    free_keys!("$2::bytea[]", "key"),
    ", standing AS MATERIALIZED (
        SELECT i.namespace, i.key, (
            SELECT max(f.version) FROM @.tickwheel_timers f WHERE f.namespace = i.namespace AND f.key = i.key AND f.in_flight
        ) AS token FROM i
    ), dead AS (
        ",
    delete_dead!("(SELECT namespace, key FROM standing WHERE token IS NULL)"),
    " RETURNING key, version, value
    )
    SELECT DISTINCT ON (key) key, version, value, token FROM (
        SELECT key, version, value, NULL::bigint AS token FROM dead
        UNION ALL
        SELECT key, NULL, NULL, token FROM standing
    ) u ORDER BY key, version DESC NULLS LAST"
);

/// For each of an array of keys: whether a row waits, and the latest token.
pub(in crate::postgres) const STANDING: &str = "
    SELECT i.key,
        (SELECT w.version FROM @.tickwheel_timers w WHERE w.namespace = $1::int AND w.key = i.key AND NOT w.in_flight) IS NOT NULL AS waits,
        (SELECT max(f.version) FROM @.tickwheel_timers f WHERE f.namespace = $1::int AND f.key = i.key AND f.in_flight) AS token
    FROM unnest($2::bytea[]) AS i(key)";

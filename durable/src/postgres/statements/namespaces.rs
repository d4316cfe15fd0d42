//! Namespaces, their charters, and how they are opened.

use super::locks::space_seed;

/// Makes a namespace with a charter, if it is new. Looks first: a conflict uses a number up too,
/// and there are two billion.
pub(in crate::postgres) const NAME: &str = "
    INSERT INTO @.tickwheel_namespaces (name, codec, no_overlap, at_most_once, parts, edition)
    SELECT $1::text, $2::text, $3::bool, $4::bool, $5::int, nextval('@.tickwheel_versions')
    WHERE NOT EXISTS (SELECT FROM @.tickwheel_namespaces n WHERE n.name = $1)
    ON CONFLICT (name) DO NOTHING";

/// The charter of a namespace.
macro_rules! charter {
    () => {
        "n.codec, n.no_overlap, n.at_most_once, n.parts"
    };
}

/// The charter of a namespace, and its edition.
pub(in crate::postgres) const CHARTER: &str = concat!(
    "SELECT ",
    charter!(),
    ", n.edition FROM @.tickwheel_namespaces n WHERE n.name = $1::text"
);

/// Tries to lock all keys of the namespace, if its codec is to change: a transaction that holds one
/// may have set a timer that nobody else sees yet.
pub(in crate::postgres) const HOLD_ALL: &str = concat!(
    "SELECT set_config('tickwheel.locked', (NOT bool_and(pg_try_advisory_xact_lock(
        hashtextextended('tickwheel transactions', ",
    space_seed!(),
    ") # b.bucket)))::text, true)
    FROM @.tickwheel_namespaces n, generate_series(0, 63) AS b (bucket) WHERE n.id = $1 AND n.codec <> $2::text"
);

/// Gives the namespace another charter and another edition, if it has the same parts, and the same
/// codec, or no rows and no key that a transaction holds. Returns the charter as it was, and
/// whether there are rows and such keys.
pub(in crate::postgres) const AMEND: &str = concat!(
    "WITH held AS MATERIALIZED (
        SELECT n.* FROM @.tickwheel_namespaces n WHERE n.id = $1::int FOR UPDATE
    ), rows AS MATERIALIZED (
        SELECT (SELECT true FROM @.tickwheel_timers WHERE namespace = $1 AND NOT in_flight LIMIT 1) IS NOT NULL
            OR (SELECT true FROM @.tickwheel_timers WHERE namespace = $1 AND in_flight LIMIT 1) IS NOT NULL
            OR (SELECT true FROM @.tickwheel_dead WHERE namespace = $1 LIMIT 1) IS NOT NULL AS has_rows,
            coalesce(current_setting('tickwheel.locked', true), '') = 'true' AS is_held
    ), amended AS (
        UPDATE @.tickwheel_namespaces n SET codec = $2::text, no_overlap = $3::bool, at_most_once = $4::bool, parts = $5::int,
            edition = nextval('@.tickwheel_versions')
        FROM held, rows
        WHERE n.id = held.id AND held.parts = $5 AND (held.codec = $2 OR NOT (rows.has_rows OR rows.is_held))
            AND (held.codec, held.no_overlap, held.at_most_once, held.parts) <> ($2, $3, $4, $5)
    )
    SELECT ",
    charter!(),
    ", rows.has_rows, rows.is_held FROM held n, rows"
);

/// The namespaces, by name.
pub(in crate::postgres) const NAMESPACES: &str = concat!(
    "SELECT n.name, ",
    charter!(),
    " FROM @.tickwheel_namespaces n ORDER BY n.name COLLATE \"C\""
);

/// The id, the codec and the channel of a namespace. A dump or a logical replica of the tables has
/// the same channels.
pub(in crate::postgres) const FIND: &str = "
    SELECT id, codec, 'tickwheel_' || (SELECT replace(s.identity::text, '-', '') FROM @.tickwheel_schema s) || '_' || id
    FROM @.tickwheel_namespaces WHERE name = $1::text";

/// The time, and a number for an instance.
pub(in crate::postgres) const OPEN: &str =
    concat!("SELECT ", now!(), ", nextval('@.tickwheel_versions')");

//! The locks of keys, and of rows that are written after that.

/// Stands for the namespace in the hashes of locks. Advisory locks are those of the whole database,
/// which may have tables of ours in several schemas: so it holds the number of the table, too.
macro_rules! space_seed {
    () => {
        "('@.tickwheel_timers'::regclass::oid::bigint << 32 # $1::int)"
    };
}

/// The hash that the locks of a key are chosen by.
macro_rules! key_hash {
    ($key:literal) => {
        concat!("hashtextextended(encode(", $key, ", 'hex'), 0)")
    };
}

/// Takes the lock of the namespace for batches and the locks of batches of the keys in `i`, in
/// their order, and then tries to take the locks of transactions, by which the keys are free.
///
/// A server has room for some thousands of locks, for all that use it
/// (`max_locks_per_transaction`), and a batch may have a thousand keys. So a batch of more than 32
/// keys takes the locks of the namespace alone: it would meet every other one anyway. The numbers
/// are spread over 64 bits, because programs have advisory locks of their own.
macro_rules! hold {
    () => {
        concat!(
            "size AS MATERIALIZED (
                SELECT count(*) > 32 AS is_large FROM i
            ), held AS MATERIALIZED (
                SELECT count(CASE WHEN o.is_shared THEN pg_advisory_xact_lock_shared(o.lock)::text
                    ELSE pg_advisory_xact_lock(o.lock)::text END) AS locks
                FROM (
                    SELECT 0 AS place, hashtextextended('tickwheel batches', ",
            space_seed!(),
            ") AS lock, NOT is_large AS is_shared FROM size
                    UNION ALL
                    SELECT DISTINCT 1, hashtextextended('tickwheel', ",
            space_seed!(),
            ") # (i.hash & 511), false FROM i, size WHERE NOT is_large
                    ORDER BY place, lock
                ) o
            ), all_free AS MATERIALIZED (
                SELECT CASE WHEN is_large THEN pg_try_advisory_xact_lock(hashtextextended('tickwheel all transactions', ",
            space_seed!(),
            ")) ELSE false END AS is_free FROM held, size WHERE held.locks > 0
            ), free AS MATERIALIZED (
                SELECT coalesce(bit_or(1::bigint << b.bucket) FILTER (WHERE b.is_free), 0) AS buckets FROM (
                    SELECT o.bucket, all_free.is_free OR pg_try_advisory_xact_lock(
                        hashtextextended('tickwheel transactions', ",
            space_seed!(),
            ") # (o.bucket & 63)
                    ) AS is_free
                    FROM all_free, (SELECT DISTINCT (i.hash & 63)::int AS bucket FROM i) o
                ) b
            )"
        )
    };
}

/// Whether the batch may write the key of an item of `i`, which it tries to lock if it has to. It
/// locks 64 single keys at most, as the server's room for locks is limited.
macro_rules! is_free {
    () => {
        concat!(
            "CASE WHEN ((SELECT buckets FROM free) >> (i.hash & 63)::int) & 1 = 1 THEN true
                WHEN i.number <= 64 THEN pg_try_advisory_xact_lock(
                    hashtextextended(encode(i.key, 'hex'), hashtextextended('tickwheel key', ",
            space_seed!(),
            "))
                ) ELSE false END"
        )
    };
}

/// Notes which items of `i` a transaction has locked, by their names, and returns a column of them.
macro_rules! note_locked {
    ($name:literal, $column:literal) => {
        concat!(
            ", locked AS MATERIALIZED (SELECT i.",
            $column,
            ", ",
            $name,
            " AS name FROM i WHERE NOT ",
            is_free!(),
            ") SELECT ",
            $column,
            ", set_config('tickwheel.locked', string_agg(name, ',') OVER (), true) FROM locked"
        )
    };
}

/// Takes the locks of an array of keys. Returns those that a transaction has locked.
pub(in crate::postgres) const HOLD: &str = concat!(
    "WITH i AS MATERIALIZED (SELECT u.*, ",
    key_hash!("u.key"),
    " AS hash FROM unnest($2::bytea[]) WITH ORDINALITY AS u(key, number)), ",
    hold!(),
    note_locked!("encode(i.key, 'hex')", "key")
);

/// Takes the locks of the keys of an array of versions, which are rows of a table. Returns those of
/// keys that a transaction has locked.
macro_rules! hold_rows {
    ($table:literal) => {
        concat!(
            "WITH chosen AS MATERIALIZED (SELECT $1::int AS namespace, u.*
                FROM unnest($2::bigint[]) WITH ORDINALITY AS u(version, number)
            ), i AS MATERIALIZED (SELECT t.version, t.key, chosen.number, ",
            key_hash!("t.key"),
            " AS hash FROM chosen, ",
            $table,
            " t WHERE t.version = chosen.version AND t.namespace + 0 = chosen.namespace
            ), ",
            hold!(),
            note_locked!("i.version::text", "version")
        )
    };
}

/// Locks the keys of claims, by their tokens.
pub(in crate::postgres) const HOLD_CLAIMED: &str = hold_rows!("@.tickwheel_timers");

/// Locks the keys of dead rows, by their tokens.
pub(in crate::postgres) const HOLD_DEAD: &str = hold_rows!("@.tickwheel_dead");

/// Locks the waiting rows under an array of keys.
pub(in crate::postgres) const LOCK: &str = concat!(
    "WITH ",
    free_keys!("$2::bytea[]", "key"),
    " SELECT 1 FROM i, @.tickwheel_timers t
    WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
    FOR UPDATE OF t"
);

/// Locks the claims with an array of tokens, in their order.
pub(in crate::postgres) const LOCK_CLAIMS: &str = concat!(
    "WITH ",
    free_tokens!("$2::bigint[]", "version"),
    " SELECT 1 FROM i, @.tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    ORDER BY t.version
    FOR UPDATE OF t"
);

pub(super) use {hold, is_free, key_hash, space_seed};

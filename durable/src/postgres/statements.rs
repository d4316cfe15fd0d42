//! The SQL of every call.
//!
//! | name | parameters |
//! |---|---|
//! | `$1` | the id of the namespace, everywhere |
//! | `$2`, `$3`, `$4` | of what arms rows: the window in microseconds, the loader or null, the channel for hints |
//!
//! Batches travel as arrays, one for each column. Each item names its namespace, as the planner sees it: so a row is
//! looked up by all that is known of it, and no plan walks through a namespace, whatever the statistics say. A row that
//! is looked up by its version has `namespace + 0` and `in_flight::int` compared, which no index has and from which no
//! partial index follows: one that was empty when the plan was made looks cheap, and would be read as a whole for each
//! row. Statements find out whether a row waits by `IS NULL`, since the server may evaluate `EXISTS` by reading all
//! rows into a hash table.
//!
//! # Concurrent statements
//!
//! The isolation is READ COMMITTED: a statement sees what was committed before it began, and a row that another transaction
//! has changed since is locked and looked at again. So a statement decides by what it has locked. A key without waiting row
//! has nothing to lock. Hence the *locks of keys*, which are advisory locks:
//!
//! 1. Each batch that makes a waiting row, or says that there is none, first takes the locks of its keys: writes by [`HOLD`] or
//!    in [`SET_ALONE`], put-backs by [`HOLD_CLAIMED`]. The statements after that see what was committed before.
//! 2. So while a batch holds the lock of a key, no other batch makes a waiting row under it. One that is there can still go:
//!    loads, fires and purges take no locks of keys. What goes has fired, or was purged.
//!
//! # Transactions of users
//!
//! The [`functions`](super::functions) change keys in transactions of users, which may last for minutes. No batch may wait for
//! one. So there are three locks for a key, each finer than the one before:
//!
//! | lock | how many | a batch | a transaction of a user |
//! |---|---|---|---|
//! | of batches | 512 for each namespace | waits for it | - |
//! | of transactions | 64 for each namespace | tries to take it alone | shares it |
//! | of the key itself | one for each key | tries to take it, if it has no lock of transactions | waits for it |
//!
//! 1. A batch writes a key only if it holds the key's lock of transactions, or the lock of the key itself. Otherwise it leaves
//!    the key out, and the caller tries again: [`WriteOutcome::Locked`](crate::store::WriteOutcome::Locked).
//! 2. A transaction that changes a key holds both until it ends. So no batch writes the key meanwhile, and no batch meets an
//!    uncommitted row.
//! 3. A batch waits for other batches only, and a transaction for batches, which are short, and for other transactions. So
//!    only transactions can wait for each other in a circle, as with rows of their own.
//!
//! While there are no transactions of users, a batch takes no lock of a single key. With them it takes 256
//! at most, and leaves the rest of its keys out.
//!
//! | result | why it is right |
//! |---|---|
//! | absent, in flight | [`MOVE`] and [`REMOVE`] have found no waiting row, and none appears after that. So what [`STANDING`] sees later is all there is: a claim, or nothing. A put-back waits for the lock. |
//! | set if absent | [`LOCK`] has locked the waiting row, which cannot fire then, or has found none, and none appears. So if [`SET_IF_ABSENT`] sees nothing in flight, there is nothing. Without [`LOCK`] a row that it sees waiting could fire before the index is asked. |
//! | put back | If [`PUT_BACK`] sees no waiting row, none appears before it makes one. |
//!
//! Manual statements take no locks of keys. Two waiting rows violate the unique index, and the batch runs again.
//!
//! # Waiting
//!
//! Two batches never wait for each other, because each takes what it can wait for in one order:
//!
//! 1. the locks of batches, by their numbers;
//! 2. claims, by their tokens: a batch that settles in several statements locks them all in one pass before, by
//!    [`LOCK_CLAIMS`];
//! 3. waiting rows, in any order: other batches have none of these keys, and loads, unloads and fires wait for no lock.
//!    They leave out rows that another transaction has locked. [`LEFT`] tells a row that is locked from one that is
//!    gone. A row that an unload leaves out stays marked by an id that has ended, and [`ALIVE`] unloads it later.
//!
//! A load writes the row of its own instance before it deletes those of dead instances, and leaves out the locked ones.
//! A purge leaves locked rows out too, until there are no others; then it takes one in a transaction.
//!
//! A column `replaces` has the version that a row had before it was last set or moved, because `RETURNING` gives new values
//! only.

/// The store's time, read once in a transaction, in microseconds.
macro_rules! now {
    () => {
        "(extract(epoch FROM now()) * 1000000)::bigint"
    };
}

/// The greatest time: [`StoreTime::NEVER`](crate::store::StoreTime::NEVER).
macro_rules! never {
    () => {
        "9007199254740991"
    };
}

/// The store's time, for what is not a statement of its own.
pub(super) const NOW: &str = now!();

/// The greatest time, likewise.
pub(super) const NEVER: &str = never!();

/// Until when rows are near, and which live instance loads them.
macro_rules! clock {
    () => {
        concat!(
            "clock AS MATERIALIZED (
                SELECT $1::int AS namespace, t.now, t.now + $2::bigint AS soon, (
                    SELECT i.id FROM tickwheel_instances i
                    WHERE i.id = $3::bigint AND i.namespace = $1 AND i.alive_until >= t.now
                ) AS loader
                FROM (SELECT ",
            now!(),
            " AS now) t
            )"
        )
    };
}

/// Gives a hint if `armed` has left a near row that no instance has loaded, and returns what is armed.
macro_rules! armed {
    () => {
        ", hint AS MATERIALIZED (
            SELECT pg_notify($4::text, '') FROM armed, clock
            WHERE armed.due <= clock.soon AND NOT armed.loaded LIMIT 1
        )
        SELECT armed.*, (SELECT count(*) FROM hint) FROM armed"
    };
}

/// Whether a row waits, is not loaded, and is due now; or, with an interval added, by then.
macro_rules! waiting {
    () => {
        "t.namespace = $1::int AND NOT t.in_flight AND t.loaded_by IS NULL AND t.due <= (SELECT now FROM clock)"
    };
}

/// Whether a row is in flight, is not loaded, and its lease has ended.
macro_rules! lapsed {
    () => {
        "t.namespace = $1::int AND t.in_flight AND t.loaded_by IS NULL AND t.due <= (SELECT now FROM clock)"
    };
}

/// The items of a batch, from arrays.
macro_rules! items {
    ($arrays:literal, $columns:literal) => {
        concat!(
            "i AS MATERIALIZED (SELECT $1::int AS namespace, u.* FROM unnest(",
            $arrays,
            ") WITH ORDINALITY AS u(",
            $columns,
            ", number))"
        )
    };
}

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

/// New waiting rows, from arrays of keys, values, times, whether these are relative, and periods.
macro_rules! insert_waiting {
    () => {
        concat!(
            "INSERT INTO tickwheel_timers AS t
                (version, namespace, key, value, in_flight, due, deadline, attempt, period, loaded_by)
            SELECT nextval('tickwheel_versions'), i.namespace, i.key, i.value, false, d.due, d.due, 0, i.period,
                CASE WHEN d.due <= clock.soon THEN clock.loader END
            FROM clock, i, ",
            item_due!()
        )
    };
}

/// The columns that are returned of a row that was armed under its key.
macro_rules! armed_row {
    () => {
        " RETURNING t.key, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, t.replaces"
    };
}

/// The hash that the locks of a key are chosen by.
macro_rules! key_hash {
    ($key:literal) => {
        concat!("hashtextextended(encode(", $key, ", 'hex'), 0)")
    };
}

/// One of 64 locks of transactions.
macro_rules! transactions_lock {
    ($bucket:expr) => {
        concat!(
            "hashtextextended('tickwheel transactions', $1::int) # (",
            $bucket,
            " & 63)"
        )
    };
}

/// The lock of the key itself.
macro_rules! key_lock {
    ($key:literal) => {
        concat!(
            "hashtextextended(encode(",
            $key,
            ", 'hex'), hashtextextended('tickwheel key', $1::int))"
        )
    };
}

/// Takes the locks of batches of the keys in `i`, in their order, and then tries to take their locks of transactions.
///
/// A server has room for some thousands of locks, for all that use it (`max_locks_per_transaction`), and a batch may have a
/// thousand keys. The numbers are spread over 64 bits, because programs have advisory locks of their own.
macro_rules! hold {
    () => {
        concat!(
            "held AS MATERIALIZED (
                SELECT count(pg_advisory_xact_lock(o.lock)) AS locks FROM (
                    SELECT DISTINCT hashtextextended('tickwheel', $1::int) # (i.hash & 511) AS lock FROM i ORDER BY lock
                ) o
            ), free AS MATERIALIZED (
                SELECT coalesce(bit_or(1::bigint << b.bucket) FILTER (WHERE b.is_free), 0) AS buckets FROM (
                    SELECT o.bucket, pg_try_advisory_xact_lock(",
            transactions_lock!("o.bucket"),
            ") AS is_free
                    FROM held, (SELECT DISTINCT (i.hash & 63)::int AS bucket FROM i) o
                    WHERE held.locks > 0
                ) b
            )"
        )
    };
}

/// Whether the batch may write the key of an item of `i`, which it tries to lock if it has to. It locks 256 single keys at
/// most, as the server's room for locks is limited.
macro_rules! is_free {
    () => {
        concat!(
            "CASE WHEN ((SELECT buckets FROM free) >> (i.hash & 63)::int) & 1 = 1 THEN true
                WHEN i.number <= 256 THEN pg_try_advisory_xact_lock(",
            key_lock!("i.key"),
            ") ELSE false END"
        )
    };
}

/// Sets the items that fulfil a condition.
macro_rules! set {
    ($items:expr, $condition:expr) => {
        concat!(
            "WITH ", clock!(), ", ", $items, ", armed AS (", insert_waiting!(), $condition,
            " ON CONFLICT (namespace, key) WHERE NOT in_flight DO UPDATE SET
                version = nextval('tickwheel_versions'), value = excluded.value, due = excluded.due, deadline = excluded.deadline,
                attempt = 0, period = excluded.period, loaded_by = excluded.loaded_by, replaces = t.version",
            armed_row!(), ")", armed!()
        )
    };
}

pub(super) const SET: &str = set!(
    items!(
        "$5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[]",
        "key, value, at, relative, period"
    ),
    ""
);

/// Takes the locks of the keys itself, before the first row: a batch of sets alone is one statement. It may have begun before
/// it has the locks, since what it replaces is decided by the index, not by what it saw. It returns nothing for keys that a
/// transaction has locked.
pub(super) const SET_ALONE: &str = set!(
    concat!(
        "i AS MATERIALIZED (SELECT $1::int AS namespace, u.*, ",
        key_hash!("u.key"),
        " AS hash
            FROM unnest($5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[])
            WITH ORDINALITY AS u(key, value, at, relative, period, number)
        ), ",
        hold!()
    ),
    concat!(" WHERE ", is_free!())
);

pub(super) const SET_IF_ABSENT: &str = concat!(
    "WITH ", clock!(), ", ", items!("$5::bytea[], $6::bytea[], $7::bigint[], $8::bool[], $9::bigint[]", "key, value, at, relative, period"), ", armed AS (", insert_waiting!(),
    " WHERE NOT EXISTS (
        SELECT FROM tickwheel_timers f WHERE f.namespace = i.namespace AND f.key = i.key AND f.in_flight
    )
    ON CONFLICT (namespace, key) WHERE NOT in_flight DO NOTHING",
    armed_row!(), ")", armed!()
);

/// From arrays of keys, times, and whether these are relative.
pub(super) const MOVE: &str = concat!(
    "WITH ",
    clock!(),
    ", ",
    items!("$5::bytea[], $6::bigint[], $7::bool[]", "key, at, relative"),
    ", armed AS (
        UPDATE tickwheel_timers t SET
            version = nextval('tickwheel_versions'), due = d.due, deadline = d.due,
            loaded_by = CASE WHEN d.due <= clock.soon THEN clock.loader END, replaces = t.version
        FROM clock, i, ",
    item_due!(),
    " WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight",
    armed_row!(),
    ")",
    armed!()
);

/// From an array of keys.
pub(super) const REMOVE: &str = concat!(
    "WITH ",
    items!("$2::bytea[]", "key"),
    " DELETE FROM tickwheel_timers t USING i
    WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
    RETURNING t.key, t.version, t.value"
);

/// Takes the locks of an array of keys. Returns those that a transaction has locked.
pub(super) const HOLD: &str = concat!(
    "WITH i AS MATERIALIZED (SELECT u.*, ",
    key_hash!("u.key"),
    " AS hash FROM unnest($2::bytea[]) WITH ORDINALITY AS u(key, number)), ",
    hold!(),
    " SELECT i.key FROM i WHERE NOT ",
    is_free!()
);

/// Takes the locks of the keys of an array of tokens. Returns the tokens of keys that a transaction has locked.
pub(super) const HOLD_CLAIMED: &str = concat!(
    "WITH claim AS MATERIALIZED (SELECT $1::int AS namespace, u.*
        FROM unnest($2::bigint[]) WITH ORDINALITY AS u(version, number)
    ), i AS MATERIALIZED (SELECT t.version, t.key, claim.number, ",
    key_hash!("t.key"),
    " AS hash FROM claim, tickwheel_timers t
        WHERE t.version = claim.version AND t.namespace + 0 = claim.namespace
    ), ",
    hold!(),
    " SELECT i.version FROM i WHERE NOT ",
    is_free!()
);

/// Shares the lock of transactions of the key `$2`, for a transaction of a user.
pub(super) const SHARE: &str = concat!(
    "SELECT pg_advisory_xact_lock_shared(",
    transactions_lock!(key_hash!("$2")),
    ")"
);

/// Takes the lock of the key `$2` itself, likewise.
pub(super) const TAKE: &str = concat!("SELECT pg_advisory_xact_lock(", key_lock!("$2"), ")");

/// Locks the waiting rows under an array of keys.
pub(super) const LOCK: &str = concat!(
    "WITH ",
    items!("$2::bytea[]", "key"),
    " SELECT 1 FROM i, tickwheel_timers t
    WHERE t.namespace = i.namespace AND t.key = i.key AND NOT t.in_flight
    FOR UPDATE OF t"
);

/// Locks the claims with an array of tokens, in their order.
pub(super) const LOCK_CLAIMS: &str = concat!(
    "WITH ",
    items!("$2::bigint[]", "version"),
    " SELECT 1 FROM i, tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    ORDER BY t.version
    FOR UPDATE OF t"
);

/// For each of an array of keys: whether a row waits, and the latest token.
pub(super) const STANDING: &str = "
    SELECT i.key,
        (SELECT w.version FROM tickwheel_timers w WHERE w.namespace = $1::int AND w.key = i.key AND NOT w.in_flight) IS NOT NULL AS waits,
        (SELECT max(f.version) FROM tickwheel_timers f WHERE f.namespace = $1::int AND f.key = i.key AND f.in_flight) AS token
    FROM unnest($2::bytea[]) AS i(key)";

/// From an array of versions, and `$9` rows that no instance has loaded; `$6` is the lease or null, `$7` the rule for
/// missed occurrences: 0 fires all, 1 one, 2 none. Once keys and values that are due have `$8` bytes, the rest has no
/// `room`, and stays as it is. To learn the length of a value that lies in a table of its own, the server need not read
/// it.
///
/// A row without period goes in flight, or goes. One with a period stays as its next occurrence, and a new row goes in flight.
pub(super) const FIRE: &str = concat!(
    "WITH ", clock!(), ", ", items!("$5::bigint[]", "version"), ", named AS MATERIALIZED (
        SELECT i.number, t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.loaded_by
        FROM i, tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace
        FOR UPDATE OF t SKIP LOCKED
    ), waiting AS MATERIALIZED (
        SELECT t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.loaded_by FROM tickwheel_timers t
        WHERE ", waiting!(), "
        ORDER BY t.due, t.version LIMIT $9::bigint
        FOR UPDATE SKIP LOCKED
    ), lapsed AS MATERIALIZED (
        SELECT t.version, t.key, t.value, t.due, t.deadline, t.attempt, t.period, t.loaded_by FROM tickwheel_timers t
        WHERE ", lapsed!(), "
        ORDER BY t.due, t.version LIMIT $9
        FOR UPDATE SKIP LOCKED
    ), unloaded AS MATERIALIZED (
        SELECT row_number() OVER (ORDER BY due, version) + cardinality($5::bigint[]) AS number, u.*
        FROM (SELECT * FROM waiting UNION ALL SELECT * FROM lapsed ORDER BY due, version LIMIT $9) u
        WHERE NOT EXISTS (SELECT FROM named WHERE named.version = u.version)
    ), locked AS MATERIALIZED (
        SELECT * FROM named UNION ALL SELECT * FROM unloaded
    ), sized AS (
        SELECT locked.*, coalesce(sum(octet_length(key) + octet_length(value)) FILTER (WHERE due <= clock.now) OVER (
                ORDER BY number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0) < $8::bigint AS room
        FROM locked, clock
    ), late AS (
        SELECT sized.*, sized.due <= clock.now AND room AS is_due,
            greatest(clock.now - sized.deadline, 0) / sized.period AS behind
        FROM sized, clock
    ), ruled AS (
        SELECT late.*, is_due AND (period IS NULL OR $7::int <> 2 OR behind = 0) AS fires,
            CASE WHEN is_due AND period IS NOT NULL THEN
                least(deadline + (CASE WHEN $7 = 0 THEN 1 ELSE behind + 1 END) * period, ", never!(), ")
            END AS next_due
        FROM late
    ), step AS MATERIALIZED (
        SELECT ruled.*, clock.soon,
            CASE WHEN fires THEN nextval('tickwheel_versions') END AS token,
            CASE WHEN next_due IS NOT NULL THEN nextval('tickwheel_versions') END AS next_version,
            CASE WHEN next_due <= clock.soon THEN clock.loader END AS next_loader,
            CASE WHEN $6::bigint IS NOT NULL THEN least(clock.now + $6, ", never!(), ") END AS lease_until
        FROM ruled, clock
    ), gone AS (
        DELETE FROM tickwheel_timers t USING step
        WHERE t.version = step.version AND step.fires AND step.period IS NULL AND step.lease_until IS NULL
    ), claimed AS (
        UPDATE tickwheel_timers t SET version = step.token, in_flight = true, due = step.lease_until,
            attempt = step.attempt + 1, loaded_by = NULL
        FROM step
        WHERE t.version = step.version AND step.fires AND step.period IS NULL AND step.lease_until IS NOT NULL
    ), repeated AS (
        UPDATE tickwheel_timers t SET version = step.next_version, due = step.next_due, deadline = step.next_due,
            attempt = 0, loaded_by = step.next_loader
        FROM step WHERE t.version = step.version AND step.next_version IS NOT NULL
    ), occurred AS (
        INSERT INTO tickwheel_timers (version, namespace, key, value, in_flight, due, deadline, attempt)
        SELECT token, $1, key, value, true, lease_until, deadline, attempt + 1
        FROM step WHERE fires AND period IS NOT NULL AND lease_until IS NOT NULL
    ), hint AS MATERIALIZED (
        SELECT pg_notify($4::text, '') FROM step WHERE next_due <= soon AND next_loader IS NULL LIMIT 1
    )
    SELECT clock.now, s.version, s.key, CASE WHEN s.fires THEN s.value END AS value, s.room, s.due, s.deadline, s.attempt,
        s.loaded_by IS NOT NULL AS loaded, s.fires,
        s.token, s.next_version, s.next_due, s.next_loader IS NOT NULL AS next_loaded,
        CASE WHEN $7 = 1 THEN coalesce(s.behind, 0) ELSE 0 END AS missed, (SELECT count(*) FROM hint),
        (SELECT count(*) FROM waiting) + (SELECT count(*) FROM lapsed) >= $9 AS more
    FROM clock LEFT JOIN step s ON true ORDER BY s.number"
);

/// Returns those of an array of versions that still exist, and when they are due.
pub(super) const LEFT: &str = concat!(
    "WITH ",
    items!("$2::bigint[]", "version"),
    " SELECT t.version, t.due, t.loaded_by IS NOT NULL FROM i, tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace"
);

/// From an array of tokens.
pub(super) const ACK: &str = concat!(
    "WITH ",
    items!("$2::bigint[]", "version"),
    " DELETE FROM tickwheel_timers t USING i
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    RETURNING t.version"
);

/// From arrays of tokens and leases.
pub(super) const EXTEND: &str = concat!(
    "WITH ",
    items!("$2::bigint[], $3::bigint[]", "version, lease"),
    " UPDATE tickwheel_timers t SET due = least(",
    now!(),
    " + i.lease, ",
    never!(),
    ")
    FROM i WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
    RETURNING t.version"
);

/// Stands for the delay of [`PUT_BACK`] where the firing is not to count.
pub(super) const UNFIRE: i64 = -1;

/// From arrays of tokens and delays; without a delay the deadline stays. [`UNFIRE`] is no delay either.
///
/// The first row of a key becomes its waiting row, if it has none.
pub(super) const PUT_BACK: &str = concat!(
    "WITH ", clock!(), ", ", items!("$5::bigint[], $6::bigint[]", "version, delay"), ", claim AS MATERIALIZED (
        SELECT i.number, i.delay, t.version, t.key
        FROM i, tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.in_flight::int = 1
        ORDER BY t.version
        FOR UPDATE OF t
    ), ranked AS MATERIALIZED (
        SELECT claim.*, row_number() OVER (PARTITION BY key ORDER BY number) = 1 AND (
                SELECT w.version FROM tickwheel_timers w
                WHERE w.namespace = clock.namespace AND w.key = claim.key AND NOT w.in_flight
            ) IS NULL AS arms,
            least(clock.now + greatest(delay, 0), ", never!(), ") AS due
        FROM claim, clock
    ), armed AS (
        UPDATE tickwheel_timers t SET
            version = CASE WHEN r.arms THEN nextval('tickwheel_versions') ELSE t.version END,
            in_flight = NOT r.arms,
            due = r.due,
            deadline = CASE WHEN r.arms AND r.delay >= 0 THEN r.due ELSE t.deadline END,
            attempt = greatest(t.attempt - (coalesce(r.delay, 0) < 0)::int, 0),
            loaded_by = CASE WHEN NOT r.arms THEN t.loaded_by WHEN r.due <= clock.soon THEN clock.loader END
        FROM clock, ranked r
        WHERE t.version = r.version
        RETURNING r.version AS token, t.version, t.due, t.loaded_by IS NOT NULL AS loaded, r.arms
    )", armed!()
);

/// Makes `$2`, whose window is `$5` microseconds, live for `$3` microseconds. Unloads the rows that are marked by ids that have ended.
///
/// One index look-up finds the rows of each ended id, so no row stays marked that no instance is going to fire. Among
/// them are ids that were unloaded while another transaction had locked a row, or while a statement ran that had begun
/// before.
pub(super) const ALIVE: &str = concat!(
    "WITH RECURSIVE clock AS MATERIALIZED (SELECT $1::int AS namespace, ", now!(), " AS now), alive AS (
        INSERT INTO tickwheel_instances (id, namespace, alive_until, lacks, load_window)
        SELECT $2::bigint, namespace, least(now + $3::bigint, ", never!(), "), 0, $5::bigint FROM clock
        ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until, load_window = excluded.load_window
        RETURNING id
    ), ended AS (
        DELETE FROM tickwheel_instances WHERE id IN (
            SELECT i.id FROM alive, tickwheel_instances i, clock
            WHERE i.namespace = clock.namespace AND i.alive_until < clock.now AND i.id <> alive.id
            FOR UPDATE OF i SKIP LOCKED
        )
    ), loader AS (
        (SELECT t.loaded_by FROM tickwheel_timers t
            WHERE t.namespace = $1 AND t.loaded_by IS NOT NULL ORDER BY t.loaded_by LIMIT 1)
        UNION ALL
        SELECT (SELECT t.loaded_by FROM tickwheel_timers t
            WHERE t.namespace = $1 AND t.loaded_by > loader.loaded_by ORDER BY t.loaded_by LIMIT 1)
        FROM loader WHERE loader.loaded_by IS NOT NULL
    ), dead AS MATERIALIZED (
        SELECT clock.namespace, loader.loaded_by FROM loader, clock
        WHERE loader.loaded_by <> $2 AND NOT EXISTS (
            SELECT FROM tickwheel_instances i WHERE i.id = loader.loaded_by AND i.alive_until >= clock.now
        )
    ), left_behind AS MATERIALIZED (
        SELECT t.version FROM dead, tickwheel_timers t
        WHERE t.namespace = dead.namespace AND t.loaded_by = dead.loaded_by
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE tickwheel_timers t SET loaded_by = NULL FROM left_behind l WHERE t.version = l.version
        RETURNING 1
    )
    SELECT CASE WHEN EXISTS (SELECT FROM unloaded) THEN pg_notify($4::text, '') END"
);

/// Loads for `$2` what falls due within `$3` microseconds, at most `$4` rows, and notes what it lacks of `$5` that are due. Each
/// row has the time, and what other living instances lack; the last has no version.
///
/// It locks no row that it does not load: a fire at the same moment would take a later row first.
pub(super) const LOAD: &str = concat!(
    "WITH clock AS MATERIALIZED (SELECT ", now!(), " AS now), waiting AS MATERIALIZED (
        SELECT t.version, t.due FROM tickwheel_timers t
        WHERE ", waiting!(), " + $3::bigint
        ORDER BY t.due, t.version LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ), lapsed AS MATERIALIZED (
        SELECT t.version, t.due FROM tickwheel_timers t
        WHERE ", lapsed!(), "
        ORDER BY t.due, t.version LIMIT $4::bigint
        FOR UPDATE SKIP LOCKED
    ), locked AS (
        SELECT (SELECT count(*) FROM waiting) + (SELECT count(*) FROM lapsed) AS rows
    ), near AS MATERIALIZED (
        SELECT * FROM waiting UNION ALL SELECT * FROM lapsed ORDER BY due, version LIMIT $4::bigint
    ), loaded AS (
        UPDATE tickwheel_timers t SET loaded_by = $2::bigint FROM near WHERE t.version = near.version
    ), lacking AS (
        SELECT greatest($5::bigint - count(*), 0) AS rows FROM near, clock WHERE near.due <= clock.now
    ), noted AS (
        UPDATE tickwheel_instances i SET lacks = lacking.rows FROM lacking WHERE i.id = $2 AND i.lacks <> lacking.rows
    )
    SELECT clock.now, CASE WHEN locked.rows <> $4 THEN locked.rows > $4 ELSE (
                SELECT count(*) FROM (
                    SELECT FROM tickwheel_timers t
                    WHERE ", waiting!(), " + $3
                    LIMIT $4 + 1
                ) seen
            ) + (
                SELECT count(*) FROM (
                    SELECT FROM tickwheel_timers t
                    WHERE ", lapsed!(), "
                    LIMIT $4 + 1
                ) seen
            ) > $4
        END AS more, (
            SELECT coalesce(sum(i.lacks), 0)::bigint FROM tickwheel_instances i
            WHERE i.namespace = $1 AND i.id <> $2 AND i.alive_until >= (SELECT now FROM clock)
        ) AS others_lack, near.version, near.due
    FROM clock, locked LEFT JOIN near ON true ORDER BY near.due, near.version"
);

/// Ends the id `$2`, and unloads what it has loaded but for rows that are locked. Returns another id.
pub(super) const UNLOAD: &str = "
    WITH ended AS (
        DELETE FROM tickwheel_instances WHERE id = $2::bigint
    ), mine AS MATERIALIZED (
        SELECT t.version FROM tickwheel_timers t WHERE t.namespace = $1::int AND t.loaded_by = $2
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE tickwheel_timers t SET loaded_by = NULL FROM mine WHERE t.version = mine.version RETURNING 1
    )
    SELECT nextval('tickwheel_versions'), CASE WHEN EXISTS (SELECT FROM unloaded) THEN pg_notify($3::text, '') END";

/// Takes the mark of `$2` off an array of versions, but for rows that are locked. Then no instance counts as lacking rows, but
/// for those that load just now.
pub(super) const UNMARK: &str = concat!(
    "WITH ",
    items!("$4::bigint[]", "version"),
    ", mine AS MATERIALIZED (
        SELECT t.version FROM i, tickwheel_timers t
        WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.loaded_by + 0 = $2::bigint
        FOR UPDATE OF t SKIP LOCKED
    ), unloaded AS (
        UPDATE tickwheel_timers t SET loaded_by = NULL FROM mine WHERE t.version = mine.version RETURNING 1
    ), lacking AS MATERIALIZED (
        SELECT o.id FROM tickwheel_instances o
        WHERE o.namespace = $1 AND o.lacks > 0 AND EXISTS (SELECT FROM unloaded)
        FOR UPDATE OF o SKIP LOCKED
    ), given AS (
        UPDATE tickwheel_instances o SET lacks = 0 FROM lacking l WHERE o.id = l.id
    )
    SELECT CASE WHEN EXISTS (SELECT FROM unloaded) THEN pg_notify($3::text, '') END"
);

/// Those of an array of versions that `$2` has still marked.
pub(super) const STILL_MARKED: &str = concat!(
    "WITH ",
    items!("$3::bigint[]", "version"),
    " SELECT t.version FROM i, tickwheel_timers t
    WHERE t.version = i.version AND t.namespace + 0 = i.namespace AND t.loaded_by + 0 = $2::bigint"
);

/// The columns of a row, as `read::stored` reads them.
macro_rules! stored {
    () => {
        "SELECT version, in_flight, key, value, due, deadline, attempt, period, loaded_by FROM tickwheel_timers "
    };
}

pub(super) const GET: &str = concat!(
    "(",
    stored!(),
    "WHERE namespace = $1::int AND key = $2::bytea AND NOT in_flight)
    UNION ALL
    (",
    stored!(),
    "WHERE namespace = $1 AND key = $2 AND in_flight ORDER BY version DESC LIMIT 1)
    ORDER BY in_flight LIMIT 1"
);

/// Rows in a state after a time and a version, until they have `$6` bytes. Those loaded are few, and are sorted.
pub(super) const LIST: &str = concat!(
    "WITH page AS ((",
    stored!(),
    "WHERE namespace = $1::int AND in_flight = $2::bool AND loaded_by IS NULL
        AND (due, version) > ($3::bigint, $4::bigint) ORDER BY due, version LIMIT $5::bigint)
    UNION ALL
    (",
    stored!(),
    "WHERE namespace = $1 AND in_flight = $2 AND loaded_by IS NOT NULL
        AND (due, version) > ($3, $4) ORDER BY due, version LIMIT $5)
    ORDER BY due, version LIMIT $5),
    sized AS (
        SELECT page.*, coalesce(sum(octet_length(key) + octet_length(value)) OVER (
            ORDER BY due, version ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before FROM page
    )
    SELECT * FROM sized WHERE before < $6::bigint ORDER BY due, version"
);

/// How many rows there are in each state, up to one more than `$2`, and when the earliest waiting one is due.
pub(super) const COUNT: &str = concat!(
    "SELECT ", now!(), ",
        (SELECT count(*) FROM (
            SELECT FROM tickwheel_timers WHERE namespace = $1::int AND NOT in_flight LIMIT $2::bigint + 1) w),
        (SELECT count(*) FROM (
            SELECT FROM tickwheel_timers WHERE namespace = $1 AND in_flight LIMIT $2 + 1) f),
        least(
            (SELECT due FROM tickwheel_timers
                WHERE namespace = $1 AND NOT in_flight AND loaded_by IS NULL ORDER BY due, version LIMIT 1),
            (SELECT min(due) FROM tickwheel_timers WHERE namespace = $1 AND NOT in_flight AND loaded_by IS NOT NULL))"
);

/// Estimates how many rows there are in each state, from `$2` pages. The choice of pages depends only on how many there
/// are, so two results differ only by what has changed between them.
pub(super) const SAMPLE: &str = "
    WITH t AS MATERIALIZED (
        SELECT least(1, $2::bigint * current_setting('block_size')::float8
            / greatest(pg_relation_size('tickwheel_timers'::regclass), 1)) AS part
    )
    SELECT (count(*) FILTER (WHERE NOT in_flight) / (SELECT part FROM t))::bigint,
        (count(*) FILTER (WHERE in_flight) / (SELECT part FROM t))::bigint
    FROM tickwheel_timers TABLESAMPLE SYSTEM (100 * (SELECT part FROM t)) REPEATABLE (1)
    WHERE namespace = $1::int";

/// Deletes rows that are not locked, at most `$2` of those that wait and as many in flight.
pub(super) const PURGE: &str = "
    WITH waiting AS MATERIALIZED (
        SELECT t.version FROM tickwheel_timers t WHERE t.namespace = $1::int AND NOT t.in_flight
        ORDER BY t.key LIMIT $2::bigint
        FOR UPDATE SKIP LOCKED
    ), in_flight AS MATERIALIZED (
        SELECT t.version FROM tickwheel_timers t WHERE t.namespace = $1 AND t.in_flight
        ORDER BY t.key, t.version LIMIT $2
        FOR UPDATE SKIP LOCKED
    )
    DELETE FROM tickwheel_timers t USING (SELECT * FROM waiting UNION ALL SELECT * FROM in_flight) p
    WHERE t.version = p.version";

/// Deletes one row, and waits until it is not locked. Returns nothing if there is none.
pub(super) const PURGE_LOCKED: &str = "
    WITH left_behind AS MATERIALIZED (
        SELECT coalesce(
            (SELECT version FROM tickwheel_timers WHERE namespace = $1::int AND NOT in_flight ORDER BY key LIMIT 1),
            (SELECT version FROM tickwheel_timers WHERE namespace = $1 AND in_flight ORDER BY key, version LIMIT 1)
        ) AS version
    ), deleted AS (
        DELETE FROM tickwheel_timers t USING left_behind l WHERE t.version = l.version RETURNING 1
    )
    SELECT (SELECT count(*) FROM deleted) FROM left_behind WHERE version IS NOT NULL";

/// Makes a namespace, if it is new.
pub(super) const NAME: &str = "INSERT INTO tickwheel_namespaces (name, codec) VALUES ($1::text, $2::text) ON CONFLICT (name) DO NOTHING";

/// The id, the codec and the channel of a namespace.
pub(super) const FIND: &str = "
    SELECT id, codec, 'tickwheel_' || 'tickwheel_timers'::regclass::oid || '_' || id
    FROM tickwheel_namespaces WHERE name = $1::text";

/// The time, and a number for an instance.
pub(super) const OPEN: &str = concat!("SELECT ", now!(), ", nextval('tickwheel_versions')");

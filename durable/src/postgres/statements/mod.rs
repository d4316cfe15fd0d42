//! The SQL of every call.
//!
//! | name | parameters |
//! |---|---|
//! | `$1` | the id of the namespace, everywhere |
//! | `$2`, `$3`, `$4` | of what arms rows: the window in microseconds, the loader or null, the channel for hints |
//!
//! `@.` stands for the schema of the tables: see [`schema`](super::schema).
//!
//! Batches travel as arrays, one for each column. Each item names its namespace, as the planner
//! sees it: so a row is looked up by all that is known of it, and no plan walks through a
//! namespace, whatever the statistics say. A row that is looked up by its version has
//! `namespace + 0` and `in_flight::int` compared, which no index has and from which no partial
//! index follows: one that was empty when the plan was made looks cheap, and would be read as a
//! whole for each row. Dead rows are looked up by a range of keys, and ordered by key and version.
//! Where few keys have very many dead rows, `key =` selects nothing by the statistics, and any
//! index that has the order would do. Statements find out whether a row waits by `IS NULL`, since
//! the server may evaluate `EXISTS` by reading all rows into a hash table.
//!
//! # Concurrent statements
//!
//! The isolation is READ COMMITTED: a statement sees what was committed before it began, and a row
//! that another transaction has changed since is locked and looked at again. So a statement decides
//! by what it has locked. A key without waiting row has nothing to lock. Hence the *locks of keys*,
//! which are advisory locks:
//!
//! 1. Each batch that makes a waiting row or a dead one, deletes a dead one, or says that there is
//!    none, first takes the locks of its keys: writes by [`HOLD`] or in [`SET_ALONE`], put-backs
//!    and what dies by [`HOLD_CLAIMED`], retries and discards of dead rows by [`HOLD_DEAD`]. The
//!    statements after that see what was committed before.
//! 2. So while a batch holds the lock of a key, no other batch makes a waiting row under it. One
//!    that is there can still go: loads, fires and purges take no locks of keys. What goes has
//!    fired, or was purged.
//!
//! # Transactions of users
//!
//! The functions for users change keys in transactions of users, which may last for
//! minutes. No batch may wait for one. So there are several locks for a key, each finer than the
//! one before:
//!
//! | lock | how many | a batch of up to 32 keys | a larger batch | a transaction of a user |
//! |---|---|---|---|---|
//! | of batches, all | one for each namespace | waits to share it | waits for it | - |
//! | of batches | 512 for each namespace | waits for it | - | - |
//! | of transactions, all | one for each namespace | - | tries to take it alone | shares it |
//! | of transactions | 64 for each namespace | tries to take it alone | likewise, if it has not that of all | shares it |
//! | of the key itself | one for each key | tries to take it, if it has no lock of transactions | likewise | waits for it |
//!
//! 1. A batch writes a key only if it holds the lock of all transactions, the key's lock of
//!    transactions, or the lock of the key itself. Otherwise it leaves the key out, and the caller
//!    tries again: [`WriteOutcome::Locked`](crate::store::WriteOutcome::Locked). The statement that
//!    takes the locks notes such keys or tokens in the setting `tickwheel.locked`, until the
//!    transaction ends, and those that follow leave them out. So all go out at once, and no lock
//!    waits for the process that has sent them.
//! 2. A transaction that changes a key holds all three until it ends. So no batch writes the key
//!    meanwhile, and no batch meets an uncommitted row.
//! 3. A batch waits for other batches only, and a transaction for batches, which are short, and for
//!    other transactions. So only transactions can wait for each other in a circle, as with rows of
//!    their own.
//!
//! So the room that batches take in the server's table of locks is bounded: while there are no
//! transactions of users, two locks for a large batch and 65 for another one, and with them 129 at
//! most. A hint takes two more. A batch takes 64 locks of single keys, and leaves the rest of its
//! keys out.
//!
//! | result | why it is right |
//! |---|---|
//! | absent, in flight | [`MOVE`] and [`REMOVE`] have found no waiting row, and none appears after that. So what [`STANDING`] and [`REMOVE_DEAD`] see later is all there is: claims, dead rows, or nothing. A put-back waits for the lock. The first two cannot say it themselves, since they may have waited for a fire that they do not see. |
//! | set if absent | [`LOCK`] has locked the waiting row, which cannot fire then, or has found none, and none appears. So if [`SET_IF_ABSENT`] sees nothing in flight, there is nothing. Without [`LOCK`] a row that it sees waiting could fire before the index is asked. |
//! | removed although dead | A claim dies, and a dead row is retried, with the lock of its key held. So [`REMOVE_DEAD`], by one snapshot, sees either the claim, which keeps the dead rows, or all that is dead. |
//! | put back | If [`PUT_BACK`] sees no waiting row, none appears before it makes one. |
//!
//! Manual statements take no locks of keys. Two waiting rows violate the unique index, and the
//! batch runs again.
//!
//! # Waiting
//!
//! Two batches wait for each other only in the case below, because each takes what it can wait for
//! in one order:
//!
//! 1. the lock of all batches, then the locks of batches, by their numbers;
//! 2. claims, by their tokens: a batch that settles in several statements locks them all in one
//!    pass before, by [`LOCK_CLAIMS`];
//! 3. waiting rows, in any order: other batches have none of these keys, and loads, unloads and
//!    fires wait for no lock. They leave out rows that another transaction has locked.
//!    [`STILL_THERE`] tells a row that is locked from one that is gone. A row that an unload leaves
//!    out stays marked by an id that has ended, and [`ALIVE`] unloads it later.
//!
//! The case: an instance settles two claims that another one has fired again meanwhile and settles
//! too. Each locks both rows before it sees which are its own, in the order of its own tokens. The
//! server ends one of the two after its `deadlock_timeout`, a second, and that batch runs again.
//!
//! A load writes the row of its own instance before it deletes those of dead instances, and leaves
//! out the locked ones. A purge leaves locked rows out too, until there are no others; then it
//! takes one in a transaction.
//!
//! A column `replaces` has the version that a row had before it was last set or moved, because
//! `RETURNING` gives new values only.

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

/// The version of the schema that these statements are for.
#[cfg(not(tickwheel_next_schema))]
macro_rules! schema {
    () => {
        "1"
    };
}

#[cfg(tickwheel_next_schema)]
macro_rules! schema {
    () => {
        "2"
    };
}

/// The id of the namespace, if these statements can use the tables, the namespace is there and its
/// charter has the edition, and it is not too late. Without an edition or a time these do not
/// matter. Otherwise the statement fails as a whole: a text that says why is no number.
/// [`Target::describe`](super::target::Target::describe) reads it.
///
/// Loads, fires and writes have terms. A settle has none: what an instance has fired it settles
/// also when the tables are not for it any more.
macro_rules! terms {
    ($edition:literal, $until:literal) => {
        concat!(
            "CASE
                WHEN (SELECT s.version FROM @.tickwheel_schema s
                        WHERE s.version >= ",
            schema!(),
            " AND s.readable_by <= ",
            schema!(),
            ") IS NULL
                    THEN (SELECT concat('tickwheel|schema|', s.version, ' ', s.readable_by, '|')
                        FROM @.tickwheel_schema s LIMIT 1)::int
                WHEN coalesce((SELECT n.edition FROM @.tickwheel_namespaces n WHERE n.id = $1::int), 0) <> ",
            $edition,
            "::bigint
                    THEN concat('tickwheel|amended|', (SELECT n.name FROM @.tickwheel_namespaces n WHERE n.id = $1::int), '|')::int
                WHEN (extract(epoch FROM clock_timestamp()) * 1000000)::bigint > ",
            $until,
            "::bigint
                    THEN ('tickwheel|late|' || (extract(epoch FROM clock_timestamp()) * 1000000)::bigint || '|')::int
                ELSE $1::int
            END"
        )
    };
}

/// Checks the edition `$2` and the time `$3`, in a transaction of several statements.
pub(super) const TERMS: &str = concat!("SELECT ", terms!("$2", "$3"));

/// Until when rows are near, which live instance loads them, and since when they are not
/// [early](super::place).
macro_rules! clock {
    () => {
        clock!("$1::int")
    };
    ($namespace:expr) => {
        concat!(
            "clock AS MATERIALIZED (
                SELECT ",
            $namespace,
            " AS namespace, t.now, t.now + $2::bigint AS soon, (
                    SELECT i.id FROM @.tickwheel_instances i
                    WHERE i.id = $3::bigint AND i.namespace = $1 AND i.alive_until >= t.now
                ) AS loader, pg_current_xact_id() AS xact, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 1000000 AS lately
                FROM (SELECT ",
            now!(),
            " AS now) t
            )"
        )
    };
}

/// Gives a hint if `armed` has left a near row that no instance has loaded, and returns what is
/// armed.
macro_rules! armed {
    () => {
        armed!("")
    };
    ($also:expr) => {
        concat!(
            ", hint AS MATERIALIZED (
            SELECT @.tickwheel_hint($1::int, $4::text, min(armed.due), NULL::bigint) FROM armed, clock
            WHERE armed.due <= clock.soon AND NOT armed.loaded HAVING count(*) > 0
        )
        SELECT armed.*, (SELECT count(*) FROM hint)",
            $also,
            " FROM armed"
        )
    };
}

/// [Where](super::place) a look for rows begins: a time, two deadlines, and the transaction from
/// which on rows may have come before them. The first row of the relation `clock` has the time now.
macro_rules! place {
    ($seen:literal, $waiting:literal, $lapsed:literal, $since:literal) => {
        place!($seen, $waiting, $lapsed, $since, "true")
    };
    ($seen:literal, $waiting:literal, $lapsed:literal, $since:literal, $holds:literal) => {
        concat!(
            "come AS MATERIALIZED (
                SELECT count(*) <= 1000 AND ",
            $holds,
            " AND (SELECT now FROM clock) >= ",
            $seen,
            "::bigint AS are_known,
                    min(e.due) FILTER (WHERE NOT e.in_flight) AS waiting, min(e.due) FILTER (WHERE e.in_flight) AS lapsed
                FROM (
                    SELECT t.due, t.in_flight FROM @.tickwheel_timers t
                    WHERE t.namespace = $1::int AND t.early >= ",
            $since,
            "::text::xid8 LIMIT 1001
                ) e
            ), place AS MATERIALIZED (
                SELECT CASE WHEN come.are_known THEN least(",
            $waiting,
            "::bigint, come.waiting) ELSE -9223372036854775808 END AS waiting,
                    CASE WHEN come.are_known THEN least(",
            $lapsed,
            "::bigint, come.lapsed) ELSE -9223372036854775808 END AS lapsed
                FROM come
            )"
        )
    };
}

/// Whether a row waits after the place, is not loaded, and is due now; or, with an interval added,
/// by then.
macro_rules! waiting {
    () => {
        "t.namespace = $1::int AND NOT t.in_flight AND t.loaded_by IS NULL AND t.due >= (SELECT waiting FROM place)
            AND t.due <= (SELECT now FROM clock)"
    };
}

/// Whether a row has no schedule, or none in an array of those that its instance does not know.
/// Null stands for all.
macro_rules! known {
    ($unknown:literal) => {
        concat!(
            "(t.schedule IS NULL OR t.schedule <> ALL(",
            $unknown,
            "::text[]))"
        )
    };
}

/// Whether a row is in flight after the place, is not loaded, and its lease has ended.
macro_rules! lapsed {
    () => {
        "t.namespace = $1::int AND t.in_flight AND t.loaded_by IS NULL AND t.due >= (SELECT lapsed FROM place)
            AND t.due <= (SELECT now FROM clock)"
    };
}

/// The items of a batch, from arrays.
macro_rules! items {
    ($arrays:literal, $columns:literal) => {
        items!($arrays, $columns, "$1::int")
    };
    ($arrays:literal, $columns:literal, $namespace:expr) => {
        concat!(
            "i AS MATERIALIZED (SELECT ",
            $namespace,
            " AS namespace, u.* FROM unnest(",
            $arrays,
            ") WITH ORDINALITY AS u(",
            $columns,
            ", number))"
        )
    };
}

/// Leaves out the items that `note_locked!` has noted in this transaction.
macro_rules! unless_locked {
    ($name:literal) => {
        concat!(
            " WHERE ",
            $name,
            " <> ALL (coalesce((SELECT string_to_array(current_setting('tickwheel.locked', true), ',')), '{}'))"
        )
    };
}

/// The items of a batch, from arrays, but for those that a transaction of a user has locked.
macro_rules! free_items {
    ($arrays:literal, $columns:literal, $name:literal, $namespace:expr) => {
        concat!(
            "i AS MATERIALIZED (SELECT ",
            $namespace,
            " AS namespace, u.* FROM unnest(",
            $arrays,
            ") WITH ORDINALITY AS u(",
            $columns,
            ", number)",
            unless_locked!($name),
            ")"
        )
    };
}

/// The items with a token.
macro_rules! free_tokens {
    ($arrays:literal, $columns:literal) => {
        free_tokens!($arrays, $columns, "$1::int")
    };
    ($arrays:literal, $columns:literal, $namespace:expr) => {
        free_items!($arrays, $columns, "u.version::text", $namespace)
    };
}

/// The items with a key.
macro_rules! free_keys {
    ($arrays:literal, $columns:literal) => {
        free_items!($arrays, $columns, "encode(u.key, 'hex')", "$1::int")
    };
}

/// The columns of a row, as `read::stored` reads them.
macro_rules! stored {
    () => {
        "SELECT version, in_flight, key, value, due, deadline, attempt, period, loaded_by, error, false AS dead,
            schedule, CASE WHEN in_flight THEN claimed_by END AS claimed_by
        FROM @.tickwheel_timers "
    };
}

/// A dead row, in the columns of the others.
macro_rules! stored_dead {
    () => {
        "SELECT version, false AS in_flight, key, value, died AS due, deadline, attempt, NULL::bigint AS period,
            NULL::bigint AS loaded_by, error, true AS dead, NULL::text AS schedule, NULL::bigint AS claimed_by
        FROM @.tickwheel_dead "
    };
}

/// The rows of a page until they have enough bytes.
macro_rules! sized_page {
    ($bytes:literal, $order:literal) => {
        concat!(
            ", sized AS (
        SELECT page.*, coalesce(sum(octet_length(key) + octet_length(value)) OVER (
            ORDER BY ",
            $order,
            " ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS before FROM page
    )
    SELECT * FROM sized WHERE before < ",
            $bytes,
            " ORDER BY ",
            $order
        )
    };
}

mod dead;
mod fire;
mod inspect;
mod loads;
mod locks;
mod looks;
mod namespaces;
mod purge;
mod settles;
#[cfg(test)]
mod tests;
mod writes;

pub(super) use dead::{DEAD_OF_KEY, DEAD_UNTIL, DISCARD, RETRY};
pub(super) use fire::{FIRE, STILL_THERE};
pub(super) use inspect::{
    COUNT_DUE, INSTANCES, PREFIX_DEAD, PREFIX_IN_FLIGHT, PREFIX_WAITING, ROWS_OF,
};
pub(super) use loads::{ALIVE, LOAD, PLACE, STILL_MARKED, UNLOAD, UNMARK};
pub(super) use locks::{HOLD, HOLD_CLAIMED, HOLD_DEAD, LOCK, LOCK_CLAIMS};
pub(super) use looks::{COUNT, LIST, LIST_DEAD, SAMPLE, SAMPLE_DEAD};
pub(super) use namespaces::{AMEND, CHARTER, FIND, NAME, NAMESPACES, OPEN};
pub(super) use purge::{PURGE, PURGE_LOCKED};
pub(super) use settles::{ACK, DIE, EXTEND, LEAVERS, PUT_BACK, unfire};
pub(super) use writes::{MOVE, REMOVE, REMOVE_DEAD, SET, SET_ALONE, SET_IF_ABSENT, STANDING};

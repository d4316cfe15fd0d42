//! The contract of stores: the trait [`Store`], and the rows that travel through it. With the
//! feature `unstable-store`: it may change in any version. What the crate exports at its root too
//! is stable, but for the methods that are for stores of your own.
//!
//! A store keeps the timers of any number of *namespaces*. An *instance* is one running copy of the
//! program that has opened a namespace. It loads under an id, and under a fresh one after each
//! [`unload`](Store::unload). Everything else the crate does with wheels, claims and leases is made
//! of the calls of this trait. [The protocol](crate::protocol) says how, and why they suffice.
//!
//! # A row and its states
//!
//! A row is a timer, or an occurrence of one that has fired. Its *version* names it in this state:
//! a number from one sequence for the whole store, given again whenever the row is set, moved,
//! fired or put back. No two rows ever have the same version, and one that has been replaced never
//! comes back. So a version is at once the generation that outdates what was loaded before, and
//! the fencing token of a claim.
//!
//! | state | meaning | `due` |
//! |---|---|---|
//! | waiting | armed under its key; a key has at most one such row | the deadline, or now if it was released |
//! | in flight | fired, and claimed until the lease ends; a key can have any number of them | the end of the lease |
//! | dead | failed for good, and kept to be looked at; a key has at most [`MAX_DEAD_OF_KEY`] of them | when it died |
//!
//! A dead row is neither loaded nor fired, and no other call than those below meets it:
//!
//! | call | on a key with dead rows |
//! |---|---|
//! | set, also if absent | a key that has only dead rows counts as absent; whatever sets the key discards its dead rows in the same step |
//! | move | as if there were none: they stay dead |
//! | remove | discards them, unless the answer is [`WriteOutcome::InFlight`]; without a waiting row the answer has the latest of them |
//!
//! A row in one of the other states may be *loaded*, which is a mark with the id of an instance.
//! That only shares the work: while the id counts as living it keeps others from loading the row,
//! and stops no call of another instance. The mark goes with the version.
//!
//! A waiting row may *repeat*: with a period, or by a schedule. A schedule is a text, such as a
//! cron expression in a time zone, which stores keep and compare, and only instances understand. So
//! the store tells it to the instance that has loaded the row, which computes a [`Plan`] of what
//! follows and brings it to the [`fire`](Store::fire). An instance may not know some
//! [schedules](Schedules), as one of an earlier version. The store does not give it their rows.
//!
//! # The contract
//!
//! 1. **Round trips.** A call is one round trip where the engine allows it, and atomic as a whole:
//!    either all of a batch has happened, or none of it, and what a crash leaves is one of the two.
//!    Items of a batch take effect in the order given. A batch that moves, removes or puts back
//!    rows of more than [`ANSWER_BYTES`], or that discards hundreds of dead rows, may be divided
//!    into several such steps, in order. A step is bounded: however many rows there are, and of one
//!    key, and of ids that have ended, it takes the store some milliseconds.
//! 2. **Durability.** When a call returns `Ok`, what it wrote survives a crash of this process. The
//!    store's documentation says what else it survives.
//! 3. **Order.** Calls that one instance makes one after the other take effect in this order, also
//!    when the future of an earlier one was dropped before it completed. A call whose future was
//!    dropped may have happened or not. A *look*, [`rows_of`](Store::rows_of),
//!    [`list`](Store::list) or [`count`](Store::count), sees what was answered before it was asked,
//!    and may pass by what was not. It delays no other call by more than a few milliseconds,
//!    however many rows there are.
//! 4. **Time** is the store's. Every `now`, every relative delay and every comparison with a
//!    deadline uses one clock, read once in a call. It should not step back; if it does, timers are
//!    late by as much and nothing else happens.
//! 5. **Versions** grow: a version that is given later is greater than all that were given before
//!    under the same key. They start at the store's time in microseconds, and catch up with it at
//!    least when the store is opened. So they grow also in a store that was restored, or that has
//!    lost commits.
//! 6. **Loading.** [`load`](Store::load) hands out the rows that no living id has loaded, earliest
//!    first. An id counts as living from a load until its [`alive`](Load::alive) has run out, or
//!    until it is [unloaded](Store::unload). An instance that asks for an id to be unloaded loads
//!    nothing under it any more, whether it has the answer or not. A mark of an id that does not
//!    live holds nothing: any load may hand the row out, or the first after whatever keeps the row,
//!    such as a transaction that has locked it. A store that takes such marks away does so in
//!    steps, earliest `due` first, and answers that there is [`more`](Loaded::more) until it has.
//! 7. **Firing** compares and sets: a row fires only if its version still exists and it is due by
//!    the store's clock. A row that no instance has loaded fires on request without being named, as
//!    if it were loaded and fired in one step.
//! 8. **Settling** looks at the token alone. While its row exists the claim is held, also after the
//!    lease has ended; once the row has fired again the token names nothing, and the answer is
//!    [`Settled::Lost`].
//! 9. **Near rows.** A waiting row that a call makes due within [`Terms::window`] is marked as
//!    loaded by [`Terms::loader`] in the same step, if that id counts as living. If it is not
//!    marked, the store sends a hint: [`hinted`](Store::hinted) of the instances returns. At most
//!    one a call. A hint may be lost.
//! 10. **The charter** of a namespace, and the [version](crate::SchemaVersion) of the schema, are
//!     compared in the same step as whatever a load, a write or a fire does. A settle, an unload
//!     and an unmark are compared with neither: what an instance has fired it settles, whatever
//!     another version has made of the store meanwhile.
//!     [`Terms::until`] is compared with the time at which the store begins a write, however
//!     long it waited before.
//! 11. **Returns.** A store may return to an earlier state while no call fails: another server
//!     takes over that lacks the last writes, or a file is restored. Each load leaves a
//!     [`Receipt`], and [tells](Loaded::continuity) by that of the last load under its id whether
//!     the store still has all that it has answered since. A namespace that is gone is
//!     [`StoreError::NotOpened`], and the next [`open`](Store::open) makes it again.
//! 12. **Errors** are [`StoreError`]s that name the value and the bound they concern, and never
//!     contain a password. A store that was away recovers by itself: the next call connects again.
//!     The caller sets a limit on the time of every call and drops the future when it is over, so a
//!     store needs no time limits beyond that.
//!
//! The crate `tickwheel-durable-conformance` holds a store to all of this.

mod answers;
mod charter;
mod error;
mod ids;
mod inspect;
mod missed;
mod occurrence;
mod prefix_change;
mod receipt;
mod requests;
pub(crate) mod rules;
mod schedule;
mod time;

use std::future::Future;
use std::pin::Pin;

pub use answers::{
    ANSWER_BYTES, Armed, ChangedRows, Counts, Damaged, FireReport, Fired, Loaded, Opened, Settled,
    Stored, WriteOutcome,
};
pub(crate) use answers::{AnswerSize, MAX_ATTEMPT};
pub use charter::{Charter, Edition};
pub use error::{BoxError, Cause, StoreError};
pub(crate) use error::{causes, write_causes};
pub use ids::{InstanceId, Namespace, NamespaceError, Version};
pub use inspect::{
    Inspect, MAX_DUE_COUNT, MAX_KEY_ROWS, PrefixCursor, PrefixRows, RowPage, StoredInstance,
    StoredNamespace,
};
pub(crate) use inspect::{KeyPlace, key_page, prefix_end};
pub use missed::{Missed, NextOccurrence};
pub(crate) use occurrence::Occurrence;
pub use prefix_change::{Change, PrefixChange};
pub use receipt::{Continuity, Receipt};
pub use requests::{
    Action, DeadChange, DeadRows, Due, Fire, LeftRow, List, Load, MAX_DEAD_OF_KEY, MAX_ERROR_BYTES,
    MAX_SCHEDULE_BYTES, Settle, Settlement, State, Terms, Write,
};
pub use schedule::{Plan, Scheduled, Schedules};
pub use time::{StoreTime, micros};

/// A future in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The future that a call of a [`Store`] returns. It borrows the store alone. It need not be cancel
/// safe: see rule 3 of [the contract](self#the-contract).
pub type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// Keeps timers: what [`Builder::start`](crate::Builder::start) takes. There is one for [SQLite,
/// PostgreSQL, Redis and memory](crate#stores-and-features).
///
/// The trait can be used as an object: `start` takes a `Box<dyn Store>` too, which was chosen at
/// run time.
///
/// Programs call no method of it. The methods are for a [store](crate::store) of your own, and may
/// change in any version.
///
/// # Examples
///
/// ```
/// # use tickwheel_durable::{Memory, Store, builder};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store: Box<dyn Store> = Box::new(Memory::new());
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, store).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Implementing it
///
/// [The module](self) says what every implementation promises. A method puts an async block into a
/// box. [`Memory`](crate::Memory) is the shortest complete store, and `Faulty` of the suite one
/// that stands before another.
pub trait Store: Send + Sync + 'static {
    /// Opens a namespace, and makes it with this charter if it is new. Returns the store's time,
    /// the first id of the instance, which is a version from the sequence, and the edition of the
    /// charter. An instance opens it again after [`StoreError::Amended`] and
    /// [`StoreError::NotOpened`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Charter`] when the namespace has another charter, and [`StoreError::Schema`]
    /// when the schema of the store is not for this version. Loads, fires and writes fail so, too,
    /// and a look may.
    fn open(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, Opened>;

    /// Gives an open namespace another charter, with another [edition](Edition). If it has this one
    /// already, nothing happens.
    ///
    /// # Errors
    ///
    /// [`StoreError::Refused`] by [`Charter::check_amendment`].
    fn amend(&self, namespace: &Namespace, charter: &Charter) -> Answer<'_, ()>;

    /// Sets, moves and removes waiting rows by their keys. One answer for each write, in their
    /// order.
    ///
    /// * Set: a waiting row under the key is replaced with everything it had. If it has the same
    ///   [schedule](Action::Set::schedule) as is set, `due` and deadline stay. With
    ///   [`if_absent`](Action::Set::if_absent) nothing happens when the key has a row in either
    ///   state: the answer is [`WriteOutcome::Present`] or [`WriteOutcome::InFlight`].
    /// * Move: the waiting row has another deadline and another version; value, period, schedule
    ///   and count of attempts stay.
    /// * Remove: the waiting row goes, and its value comes back.
    /// * Moving and removing a key without waiting row changes nothing: [`WriteOutcome::InFlight`]
    ///   with the latest token if the key has a row in flight, else [`WriteOutcome::Absent`].
    /// * A store with keys that transactions of others can lock does not wait for these:
    ///   [`WriteOutcome::Locked`].
    fn write(
        &self,
        namespace: &Namespace,
        writes: Vec<Write>,
        near: Terms,
    ) -> Answer<'_, Vec<WriteOutcome>>;

    /// Marks rows as loaded by the instance and returns them, earliest `due` first: the waiting
    /// ones due within the window, and those in flight whose lease has ended. At most `limit` of
    /// them, and none whose schedule the instance does not [know](Load::schedules): these are in
    /// the way of no other row. It [tells](Loaded::scheduled) their schedules.
    ///
    /// Rows that are due and that another instance has [left](Settlement::Leave) count as unloaded
    /// here, whether that one lives or not. If there are more than `limit`, it may return any of
    /// them.
    ///
    /// It is also the sign of life of the instance, which keeps what it has loaded until
    /// [`alive`](Load::alive) from now has run out. And it unloads what is marked by ids that do
    /// not live: because their [`alive`](Load::alive) has run out, or because an
    /// [`unload`](Store::unload) has left it.
    ///
    /// The store notes how many due rows the instance [lacks](Load::wanted), until its next load,
    /// its unload or the next [`unmark`](Store::unmark) by another one. The answer tells what
    /// [others lack](Loaded::others_lack).
    fn load(&self, namespace: &Namespace, request: Load) -> Answer<'_, Loaded>;

    /// Fires rows: for each version that still exists and is due, the row goes in flight with a new
    /// version, the token, and a lease that begins now; its count of attempts grows by one, but not
    /// beyond 2,147,483,646. What fired comes back in the order asked for. Without a lease the row
    /// is deleted instead.
    ///
    /// Then it fires up to [`Fire::unloaded`] due rows that no instance has loaded, the waiting
    /// ones and those whose lease has ended, earliest `due` first, but for those whose schedules
    /// the instance does not [know](Fire::schedules). [`FireReport::more`] says whether there may
    /// be others.
    ///
    /// A version that exists and is not due comes back in [`FireReport::later`], and stays as it
    /// is. One that does not exist is left out.
    ///
    /// With [`no_overlap`](Fire::no_overlap) a waiting row that repeats does not fire while its key
    /// has a row in flight, whether its lease has ended or not. It waits until the next time of its
    /// schedule, with a new version, and comes back in [`FireReport::later`]. That is the next of
    /// [`Missed::Skip`], or [`Plan::until`]. Its deadline stays, so that the rule applies to it as
    /// to any that is late, but under `Skip` it is that time.
    ///
    /// A waiting row that repeats leaves the next occurrence waiting in the same step, with a new
    /// version and no attempts. [`Missed::next`] says when, and whether this one fires at all. If
    /// it does not, the new waiting row comes back in [`FireReport::later`].
    ///
    /// A row with a schedule follows its [plan](Fire::plan) instead, if that [holds](Plan::holds)
    /// at the store's time. Without a plan that holds, a row that is due stays, with its version,
    /// and comes back in [`FireReport::later`]. If no instance has loaded it, the
    /// [loader](Terms::loader) of the call has now, if that id counts as living.
    /// [`FireReport::scheduled`] has the schedules of the rows that wait and are loaded.
    ///
    /// A row that holds what no store writes, such as a count of attempts below zero, does not
    /// fire. It is dead from now on, with the reason as its error, and comes back in
    /// [`FireReport::damaged`]. No such row keeps another one from firing, and setting its key
    /// replaces it. A look shows what can be read of it.
    ///
    /// Once what has fired has [`ANSWER_BYTES`], the rest of the batch is
    /// [left](FireReport::rest) as it is.
    fn fire(&self, namespace: &Namespace, request: Fire) -> Answer<'_, FireReport>;

    /// Settles rows in flight by their tokens. One answer for each, in their order.
    ///
    /// * [`Settlement::Ack`]: the row is deleted.
    /// * [`Settlement::Extend`]: the lease ends that long after now. The token stays.
    /// * [`Settlement::RetryAfter`]: if the key has no waiting row, this one becomes it, with a new
    ///   version, due that long after now. The count of attempts stays. If it has one, which is
    ///   then newer, this row stays in flight with a new version, which no claim names and no
    ///   instance has loaded, and its lease ends that long after now: it is delivered again beside
    ///   the newer one. Either way the token names nothing any more.
    /// * [`Settlement::Release`]: as `RetryAfter` without delay, but the deadline stays what it
    ///   was.
    /// * [`Settlement::Unfire`]: as `Release`, and the count of attempts is one less, unless it is
    ///   zero.
    /// * [`Settlement::Leave`]: as `Unfire`, but due after [a pause](LeftRow::pause), and for other
    ///   instances. There is a hint.
    /// * [`Settlement::Dead`]: the row is dead. It keeps its token, its deadline and its count of
    ///   attempts. If its key has [`MAX_DEAD_OF_KEY`] dead rows, the one with the least version is
    ///   deleted.
    ///
    /// A row that stays takes the [error](Settle::error) of its settle, if there is one. Moving
    /// keeps it, setting does not.
    fn settle(
        &self,
        namespace: &Namespace,
        settles: Vec<Settle>,
        near: Terms,
    ) -> Answer<'_, Vec<Settled>>;

    /// Ends the life of an id, takes away its marks, and sends a hint if there were any. Returns a
    /// fresh id, under which the instance goes on: a version from the sequence.
    ///
    /// Marks that cannot be taken away at once, because a transaction has locked the row, may stay:
    /// see rule 6. The call does not wait for them. It can be made again for the same id, when its
    /// answer was lost, and then returns another one.
    fn unload(&self, namespace: &Namespace, instance: InstanceId) -> Answer<'_, InstanceId>;

    /// Takes the mark of the instance off rows that it leaves to others, and sends a hint if there
    /// were any. Rows that are not marked by that id are left alone. If there were any, no instance
    /// counts as lacking rows until it loads again.
    ///
    /// Returns the versions that stay marked, because a transaction has locked the row. The call
    /// does not wait for them.
    fn unmark(
        &self,
        namespace: &Namespace,
        instance: InstanceId,
        versions: Vec<Version>,
    ) -> Answer<'_, Vec<Version>>;

    /// The rows under a key: the waiting one, then those in flight, then the dead ones, each from
    /// the latest on. At most `limit` in each state, and no more once they have [`ANSWER_BYTES`].
    fn rows_of(&self, namespace: &Namespace, key: Vec<u8>, limit: usize)
    -> Answer<'_, Vec<Stored>>;

    /// Rows in one state, by `due` and then by version. To read on, pass both of the last one. An
    /// answer has no more rows once it has [`ANSWER_BYTES`], and may have fewer than the limit for
    /// other reasons. When there are none, the list has ended.
    fn list(&self, namespace: &Namespace, request: List) -> Answer<'_, Vec<Stored>>;

    /// How many rows there are. Where counting them would take long it is [an
    /// estimate](Counts::is_estimate).
    fn count(&self, namespace: &Namespace) -> Answer<'_, Counts>;

    /// Deletes rows of the namespace in every state: as many as it can without delaying other calls
    /// by more than some milliseconds, and at least one if there are any. The caller goes on until
    /// there are no [`more`](ChangedRows::more).
    fn purge(&self, namespace: &Namespace) -> Answer<'_, ChangedRows>;

    /// How many parts each namespace has. The number is the same for all stores that reach the
    /// namespace, and never changes: the [charter](Charter::parts) has it. An instance opens a
    /// namespace for each part, `orders`, `orders/1` and so on, and knows which has a key.
    fn parts(&self) -> usize {
        1
    }

    /// Deletes dead rows, or gives them another start: each is due now, with a new version and no
    /// attempts. It becomes the waiting row of its key if there is none. Otherwise it goes in
    /// flight with a lease that has ended, so that it is delivered beside the newer one. Deadline
    /// and error stay. Nothing is loaded; if any row is due again there is a hint.
    ///
    /// One step changes as many rows as the store can without delaying other calls by more than
    /// some milliseconds, and at least one if there are any: those that died first before others,
    /// and of a key those with the least versions. The caller goes on until there are no
    /// [`more`](ChangedRows::more).
    ///
    /// A store with keys that transactions of others can lock leaves their rows out. The step that
    /// finds no others is the last, and says how many are [`locked`](ChangedRows::locked).
    fn change_dead(
        &self,
        namespace: &Namespace,
        which: DeadRows,
        change: DeadChange,
    ) -> Answer<'_, ChangedRows>;

    /// The reads of an operator.
    fn inspect(&self) -> &dyn Inspect;

    /// Returns when another instance may have left near rows that no instance has loaded: at a hint
    /// that comes while a caller waits. So an instance has one caller, which calls it again and
    /// again. Cancel safe.
    ///
    /// Where a hint reaches many instances, it may name one that lacks rows. That one loads at
    /// once, and the others need not hurry.
    fn hinted(&self, namespace: &Namespace) -> BoxFuture<'_, Option<InstanceId>>;

    /// Gives back what the store holds open between calls, such as a file. Calls work as before,
    /// and may take longer, until an instance loads again.
    /// [`shutdown`](crate::DurableTimers::shutdown) calls it. By default there is nothing to give
    /// back.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

impl<S: Store> From<S> for Box<dyn Store> {
    fn from(store: S) -> Self {
        Box::new(store)
    }
}

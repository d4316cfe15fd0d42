//! The pool: for each thread and wheel, the cancelled entries to reuse, and the thread's counts.
//!
//! A cancelled entry is still on the wheel, at the tick by which the actor is going to process it.
//! A new timeout whose deadline lies at that tick or after it can take the entry over: it writes
//! its deadline and waker, and is armed. It allocates nothing, sends no command, and writes no
//! cache line that another core writes.
//!
//! The pool is a stack: the entry pooled last is in the processor's cache. A timeout takes the last
//! one that is scheduled early enough. It looks at the last [`NEAR`] entries only:
//!
//! * Where timeouts have a constant length, the last entry fits.
//! * Where lengths are mixed, the timeout takes the last entry if none fits, and its arming sends a
//!   command. That schedules the entry earlier, so each entry soon fits almost every deadline,
//!   until the actor reaches it. Searching the whole pool for an entry that fits takes longer than
//!   such a command now and then.
//! * An entry that has fired is on no wheel, so its next use sends a command. A timeout leaves it
//!   alone where another one fits: a sleep that fires inside of a timeout that does not then sends
//!   one command, not two.
//! * A pool of fewer than [`NEAR`] entries gives away only those that fit, and a new entry is made.
//!   So a short and a long timeout in turn have an entry each.
//!
//! A thread keeps pools for the wheels that it used last. To make room it evicts the pool it has
//! not used for longest, and those of wheels that have ended. Entries for which there is no room,
//! those of an evicted pool, and those of a thread that ends leave
//! [stale](crate::shared::stale) nodes on the wheel, which the thread counts.
//!
//! A thread's counts of sleeps live beside its pool. Only the thread writes them, and a reader adds
//! up all threads.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;

use crate::clock::CAN_PAUSE;
use crate::metrics::{Event, OwnCounters};
use crate::shared::entry::{self, Entry, EntryArc};
use crate::shared::stale::STALE_BATCH;
use crate::shared::{Shared, SleepContext, SleepEntry};
use crate::sync::{IN_EXPLORER, thread_local};
use crate::tick::{NEVER, Rounded};

#[cfg(test)]
mod tests;

/// How many cancelled entries of one wheel a thread keeps.
const POOLED_ENTRIES: usize = if IN_EXPLORER { 3 } else { 128 };

/// How many of its last entries a pool checks.
const NEAR: usize = if IN_EXPLORER { 2 } else { 4 };

/// For how many wheels a thread keeps pools. A thread that uses more wheels in turn pays an
/// allocation, a command and about a microsecond for each timer. Sixteen full pools hold some 160
/// kB.
const POOLS_PER_THREAD: usize = 16;

/// One thread's cancelled entries and counts for one wheel.
struct Pool {
    shared: Arc<Shared>,
    /// The context of the entries, once there has been one.
    context: Option<Arc<SleepContext>>,
    counters: OwnCounters,
    entries: Entries,
    /// How many stale nodes the thread has left and not added up.
    stale: usize,
    /// The deadline that was last rounded to a tick.
    rounded: Rounded,
}

/// Cancelled entries, the one pooled last at the end.
#[derive(Default)]
struct Entries {
    /// There is room for as many; the first `filled` have an entry.
    pooled: Vec<Pooled>,
    filled: usize,
}

#[derive(Default)]
struct Pooled {
    /// The tick at which the entry was scheduled when it was cancelled; `NEVER` if it was not. Of a
    /// sleep that was never polled, its own tick: a guess. The entry itself decides whether arming
    /// it takes a command.
    scheduled: u64,
    entry: Option<EntryArc<SleepEntry>>,
}

impl Entries {
    /// Takes the last entry that is scheduled early enough, or the last one of several.
    #[inline]
    fn take(&mut self, deadline: u64) -> Option<EntryArc<SleepEntry>> {
        let last = self.filled.wrapping_sub(1);
        let pooled = self.pooled.get_mut(last)?;
        if pooled.scheduled > deadline {
            return self.take_other(deadline);
        }
        self.filled = last;
        pooled.entry.take()
    }

    /// Like [`take`](Self::take), if the very last entry does not fit.
    #[inline(never)]
    fn take_other(&mut self, deadline: u64) -> Option<EntryArc<SleepEntry>> {
        let near = &mut self.pooled[self.filled.saturating_sub(NEAR)..self.filled];
        // Using an entry that is on no wheel saves the allocation, not the command.
        let fitting = (near.iter())
            .rposition(|pooled| pooled.scheduled <= deadline)
            .or_else(|| near.iter().rposition(|pooled| pooled.scheduled == NEVER));
        match fitting {
            Some(fitting) => near.swap(fitting, near.len() - 1),
            None if near.len() < NEAR => return None,
            None => {}
        }
        self.pop()
    }

    fn pop(&mut self) -> Option<EntryArc<SleepEntry>> {
        let last = self.filled.checked_sub(1)?;
        self.filled = last;
        self.pooled[last].entry.take()
    }

    /// Keeps the entry unless the pool is full. Returns whether it does.
    #[inline]
    fn give(&mut self, scheduled: u64, entry: &mut Option<EntryArc<SleepEntry>>) -> bool {
        let Some(pooled) = self.pooled.get_mut(self.filled) else {
            return self.give_after_growing(scheduled, entry);
        };
        pooled.scheduled = scheduled;
        // It was empty, and `None` needs no drop.
        mem::forget(mem::replace(&mut pooled.entry, entry.take()));
        self.filled += 1;
        true
    }

    /// Keeps an entry, and first makes room.
    #[inline(never)]
    fn give_after_growing(
        &mut self,
        scheduled: u64,
        entry: &mut Option<EntryArc<SleepEntry>>,
    ) -> bool {
        if self.filled == POOLED_ENTRIES {
            return false;
        }
        let room = (2 * self.filled).clamp(NEAR, POOLED_ENTRIES);
        self.pooled.resize_with(room, Pooled::default);
        self.give(scheduled, entry)
    }
}

impl Pool {
    fn new(shared: &Arc<Shared>) -> Self {
        Pool {
            shared: Arc::clone(shared),
            context: None,
            counters: shared.metrics.0.register(),
            entries: Entries::default(),
            stale: 0,
            rounded: Rounded::new(&shared.ticks),
        }
    }

    #[inline]
    fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Whether it has entries with this context. That of an idle timer is its own.
    #[inline]
    fn has(&self, context: &Arc<SleepContext>) -> bool {
        (self.context.as_ref()).is_some_and(|own| Arc::ptr_eq(own, context))
    }

    /// Keeps the context of the wheel's entries, unless it is that of an idle timer.
    fn learn(&mut self, context: &Arc<SleepContext>) {
        if context.clock.is_none() {
            self.context.get_or_insert_with(|| Arc::clone(context));
        }
    }

    /// Whether an entry with this context can serve another sleep.
    #[inline]
    fn may_keep(&self, context: &Arc<SleepContext>) -> bool {
        self.has(context) && !self.shared.is_orphaned()
    }

    /// Drops a disarmed entry that is scheduled, and for which there is no room, and counts its
    /// stale node. Returns the wheel if the nodes may have to be [added up](add_up).
    #[inline(never)]
    fn drop_scheduled(&mut self, entry: Option<EntryArc<SleepEntry>>) -> Option<Arc<Shared>> {
        // It has no waker, and the pool has its context: no code of a user runs. W1: before it is
        // counted.
        if let Some(entry) = entry {
            entry::drop_scheduled(entry);
        }
        self.stale += 1;
        let may_be_enough = CAN_PAUSE || self.stale >= STALE_BATCH || self.shared.is_orphaned();
        may_be_enough.then(|| Arc::clone(&self.shared))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let entries = self.entries.pooled.drain(..);
        let released = entries
            .filter_map(|pooled| pooled.entry)
            .filter(|entry| entry.release());
        let stale = self.stale + released.count();
        if stale > 0 {
            self.shared.count_stale(stale);
        }
    }
}

thread_local! {
    /// The pools, the one used last first.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// A wheel's part of a new sleep: an entry, and the tick of its deadline.
///
/// Two words, so that it is passed in registers. Copying a whole sleep takes longer than finding
/// the wheel.
pub(crate) struct Reserved {
    pub(super) entry: EntryArc<SleepEntry>,
    pub(super) tick: u64,
}

impl Reserved {
    /// For a sleep until `deadline`; for one that never completes if there is none.
    #[inline]
    pub(crate) fn new(context: &Arc<SleepContext>, deadline: Option<Instant>) -> Self {
        let (entry, tick) = take(context, deadline);
        Reserved { entry, tick }
    }

    /// The instant to show for a sleep that never completes.
    #[cold]
    pub(super) fn never(&self) -> Instant {
        self.entry.context().shared.ticks.never()
    }
}

/// An entry for a new sleep due at `deadline`, or never, and its tick. It is a cancelled one if one
/// fits or the pool has several, else a new one.
#[inline]
fn take(context: &Arc<SleepContext>, deadline: Option<Instant>) -> (EntryArc<SleepEntry>, u64) {
    let found = with_first(|pool| {
        if !pool.has(context) {
            return None;
        }
        let tick = pool.rounded.round_up(&context.shared.ticks, deadline?);
        pool.counters.add(Event::SleepMade, 1);
        Some((pool.entries.take(tick), tick))
    });
    match found {
        Some((Some(entry), tick)) => (entry, tick),
        Some((None, tick)) => (make(context), tick),
        None => take_any(context, deadline),
    }
}

/// Like [`take`] if the wheel is not the one used last.
#[inline(never)]
fn take_any(context: &Arc<SleepContext>, deadline: Option<Instant>) -> (EntryArc<SleepEntry>, u64) {
    let shared = &context.shared;
    let tick = deadline.map_or(NEVER, |deadline| shared.ticks.round_up(deadline));
    count(shared, Event::SleepMade);
    let taken = with(shared, |pool| {
        pool.learn(context);
        pool.entries.take(tick)
    });
    (taken.flatten().unwrap_or_else(|| make(context)), tick)
}

#[inline(never)]
fn make(context: &Arc<SleepContext>) -> EntryArc<SleepEntry> {
    EntryArc::new(Entry::new(Arc::clone(context)))
}

/// The tick of a deadline: as [`Ticks::round_up`](crate::tick::Ticks::round_up) rounds it, and
/// faster if the deadline before had the same.
#[inline]
pub(crate) fn round_up(shared: &Arc<Shared>, deadline: Instant) -> u64 {
    let rounded = with_first(|pool| {
        pool.is_of(shared)
            .then(|| pool.rounded.round_up(&shared.ticks, deadline))
    });
    rounded.unwrap_or_else(|| shared.ticks.round_up(deadline))
}

/// Pools the entry of an armed sleep that is dropped, or leaves its node stale if there is no room.
/// Drops the waker.
#[inline]
pub(crate) fn give(entry: &mut Option<EntryArc<SleepEntry>>, scheduled: u64, waker: Option<Waker>) {
    let left = with_first(|pool| {
        if scheduled == NEVER || !pool.may_keep(entry.as_ref()?.context()) {
            return None;
        }
        pool.counters.add(Event::SleepCancelled, 1);
        if pool.entries.give(scheduled, entry) {
            return Some(None);
        }
        Some(pool.drop_scheduled(entry.take()))
    });
    match left {
        Some(None) => {}
        Some(Some(shared)) => add_up(&shared),
        None => give_any(entry, scheduled, true),
    }
    drop(waker);
}

/// Pools the entry of a sleep that is dropped, or releases it if there is no room. `is_cancelled`
/// says that the sleep had not fired.
#[inline(never)]
pub(crate) fn give_any(
    entry: &mut Option<EntryArc<SleepEntry>>,
    scheduled: u64,
    is_cancelled: bool,
) {
    let Some(there) = entry else { return };
    let context = there.context();
    if is_cancelled {
        count(&context.shared, Event::SleepCancelled);
    }
    with(&context.shared, |pool| pool.learn(context));
    // The pool is the first one now.
    let given = with_first(|pool| {
        let may_keep = pool.may_keep(entry.as_ref()?.context());
        (may_keep && pool.entries.give(scheduled, entry)).then_some(())
    });
    if given.is_none() {
        release(entry.take());
    }
}

/// Releases an entry for which there is no room, and counts the stale node that it leaves.
#[inline(never)]
fn release(entry: Option<EntryArc<SleepEntry>>) {
    let Some(entry) = entry.filter(|entry| entry.release()) else {
        return;
    };
    let shared = &entry.context().shared;
    match with_first(|pool| pool.is_of(shared).then(|| pool.stale += 1)) {
        Some(()) => add_up(shared),
        None => shared.count_stale(1),
    }
}

/// Adds up the stale nodes that this thread has counted, if they are enough.
fn add_up(shared: &Arc<Shared>) {
    // This may find a paused clock, and tell the actor.
    let batch = shared.stale_batch();
    let is_enough = |pool: &Pool| pool.is_of(shared) && pool.stale >= batch;
    let stale = with_first(|pool| is_enough(pool).then(|| mem::take(&mut pool.stale)));
    if let Some(stale) = stale {
        shared.count_stale(stale);
    }
}

/// Counts an event of this thread.
#[inline]
pub(crate) fn count(shared: &Arc<Shared>, event: Event) {
    if with(shared, |pool| pool.counters.add(event, 1)).is_none() {
        // The thread is ending and has no pool any more.
        shared.metrics.0.register().add(event, 1);
    }
}

/// Calls `f` with the pool that this thread used last. `None` if there is none, as when the thread
/// is ending.
///
/// Neither `f` nor anything it drops may call this again.
#[inline]
fn with_first<R>(f: impl FnOnce(&mut Pool) -> Option<R>) -> Option<R> {
    let result = POOLS.try_with(|pools| f(pools.try_borrow_mut().ok()?.first_mut()?));
    result.ok().flatten()
}

/// Calls `f` with this thread's pool for the wheel. `None` if the thread is ending and has no pools
/// any more.
///
/// Neither `f` nor anything it drops may call this again.
#[inline]
fn with<R>(shared: &Arc<Shared>, mut f: impl FnMut(&mut Pool) -> R) -> Option<R> {
    let mut in_first = || with_first(|pool| pool.is_of(shared).then(|| f(pool)));
    in_first().or_else(|| {
        bring_to_front(shared);
        in_first()
    })
}

/// Makes this thread's pool for the wheel the first. The others keep their order.
#[cold]
fn bring_to_front(shared: &Arc<Shared>) {
    // An error means that the thread is ending.
    let _ = POOLS.try_with(|all| {
        let at = all.borrow().iter().position(|pool| pool.is_of(shared));
        match at {
            Some(at) => all.borrow_mut()[..=at].rotate_right(1),
            None => open(all, shared),
        }
    });
}

/// Opens a pool for the wheel. Evicts the pool used longest ago if there are too many, and those of
/// wheels that have ended.
#[cold]
fn open(all: &RefCell<Vec<Pool>>, shared: &Arc<Shared>) {
    shared.check_clock();
    let mut pools = vec![Pool::new(shared)];
    let mut evicted = Vec::new();
    for old in all.take() {
        if pools.len() < POOLS_PER_THREAD && !old.shared.is_ended() {
            pools.push(old);
        } else {
            evicted.push(old);
        }
    }
    all.replace(pools);
    // Dropping pools sends commands, so it happens after the borrow has ended.
    drop(evicted);
}

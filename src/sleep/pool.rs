//! The pool: for each thread and wheel, the cancelled entries to reuse, and the thread's counts.
//!
//! A cancelled entry is still on the wheel, at the tick by which the actor is going to process it.
//! A new timeout whose deadline lies at that tick or later can take the entry over by writing
//! deadline and waker. It allocates nothing, sends no command, and writes no cache line that
//! another core writes. The timeout takes the entry scheduled latest among those that are scheduled
//! early enough, and so leaves the early ones to shorter timeouts. Where none is early enough and
//! the pool is full, it takes the latest one, which costs a command this once.
//!
//! The entries are in the order in which they are scheduled. Where timeouts have a constant length,
//! a dropped timeout pushes its entry to the end, and the next one pops it from there.
//!
//! A thread keeps pools for the wheels that it used last. To make room it evicts the pool it has
//! not used for longest, and those of wheels that have ended. The actor takes the entries of an
//! evicted pool off the wheel, as it does those of a thread that ends.
//!
//! A thread's counts of sleeps live beside its pool. Only the thread writes them, and a reader adds
//! up all threads.

use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::task::Waker;

use tokio::time::Instant;

use crate::metrics::{Event, OwnCounters};
use crate::shared::entry::Entry;
use crate::shared::{Shared, SleepContext, SleepEntry};
use crate::sync::{EXPLORED, thread_local};
use crate::tick::{NEVER, Rounded};

#[cfg(test)]
mod tests;

/// How many cancelled entries of one wheel a thread keeps.
const POOLED_ENTRIES: usize = if EXPLORED { 3 } else { 128 };

/// How many of its last entries a pool checks, and moves, one by one. It binary-searches the
/// others.
const NEAR: usize = 4;

/// For how many wheels a thread keeps pools. A thread that uses more wheels in turn pays an
/// allocation, a command and about a microsecond for each timer. Sixteen full pools hold some 150
/// kB.
const POOLS_PER_THREAD: usize = 16;

/// One thread's cancelled entries and counts for one wheel.
struct Pool {
    shared: Arc<Shared>,
    /// The context of the entries, once there has been one.
    context: Option<Arc<SleepContext>>,
    counters: OwnCounters,
    entries: Entries,
    /// The deadline that was last rounded to a tick.
    rounded: Rounded,
}

/// Cancelled entries in the order in which they are scheduled.
#[derive(Default)]
struct Entries {
    /// A place for each entry that there is room for; the first `filled` places have one.
    slots: Vec<Slot>,
    filled: usize,
}

#[derive(Default)]
struct Slot {
    /// The tick at which the entry was scheduled when it was cancelled.
    scheduled: u64,
    entry: Option<Arc<SleepEntry>>,
}

impl Entries {
    /// Takes the entry scheduled latest among those that are scheduled early enough.
    #[inline]
    fn take(&mut self, deadline: u64) -> Option<Arc<SleepEntry>> {
        let last = self.filled.wrapping_sub(1);
        let slot = self.slots.get_mut(last)?;
        if slot.scheduled > deadline {
            return self.take_earlier(deadline);
        }
        self.filled = last;
        slot.entry.take()
    }

    /// Like [`take`](Self::take) if the last one is too late.
    #[inline(never)]
    fn take_earlier(&mut self, deadline: u64) -> Option<Arc<SleepEntry>> {
        let taken = self.before(deadline).checked_sub(1)?;
        move_to_end(&mut self.slots[taken..self.filled]);
        self.filled -= 1;
        self.slots[self.filled].entry.take()
    }

    /// Takes the entry scheduled last if there is no room for another one. Arming it for an earlier
    /// deadline takes a command, and afterwards it serves such deadlines. Otherwise a pool full of
    /// long timeouts would never serve short ones.
    fn take_late(&mut self) -> Option<Arc<SleepEntry>> {
        if self.filled < POOLED_ENTRIES {
            return None;
        }
        self.take(NEVER)
    }

    /// Keeps the entry unless the pool is full. Returns whether it does.
    #[inline]
    fn give(&mut self, scheduled: u64, entry: &mut Option<Arc<SleepEntry>>) -> bool {
        let before = self.slots.get(self.filled.wrapping_sub(1));
        let is_latest = before.is_none_or(|before| before.scheduled <= scheduled);
        match self.slots.get_mut(self.filled) {
            Some(slot) if is_latest => {
                slot.scheduled = scheduled;
                // It was empty, and `None` needs no drop.
                mem::forget(mem::replace(&mut slot.entry, entry.take()));
                self.filled += 1;
                true
            }
            _ => self.give_earlier(scheduled, entry),
        }
    }

    /// Like [`give`](Self::give) if it is not the latest one, or there is no room yet.
    #[inline(never)]
    fn give_earlier(&mut self, scheduled: u64, entry: &mut Option<Arc<SleepEntry>>) -> bool {
        if self.filled == self.slots.len() {
            let room = (2 * self.filled).clamp(POOLED_ENTRIES.min(4), POOLED_ENTRIES);
            self.slots.resize_with(room, Slot::default);
        }
        let Some(slot) = self.slots.get_mut(self.filled) else {
            return false;
        };
        slot.scheduled = scheduled;
        slot.entry = entry.take();
        let before = self.before(scheduled);
        move_to_start(&mut self.slots[before..=self.filled]);
        self.filled += 1;
        true
    }

    /// How many of the entries are scheduled at this tick or before it.
    fn before(&self, tick: u64) -> usize {
        let mut before = self.filled;
        // Most often it is one of the last.
        while before > self.filled.saturating_sub(NEAR) {
            if self.slots[before - 1].scheduled <= tick {
                return before;
            }
            before -= 1;
        }
        self.slots[..before].partition_point(|slot| slot.scheduled <= tick)
    }
}

/// Moves the first entry to the end, and the others one forward.
fn move_to_end(slots: &mut [Slot]) {
    if slots.len() > NEAR {
        return slots.rotate_left(1);
    }
    // A rotation calls `memmove`, which is expensive for a few entries.
    for at in 1..slots.len() {
        slots.swap(at - 1, at);
    }
}

/// Moves the last entry to the start, and the others one back.
fn move_to_start(slots: &mut [Slot]) {
    if slots.len() > NEAR {
        return slots.rotate_right(1);
    }
    for at in (1..slots.len()).rev() {
        slots.swap(at - 1, at);
    }
}

impl Pool {
    fn new(shared: &Arc<Shared>) -> Self {
        Pool {
            shared: Arc::clone(shared),
            context: None,
            counters: shared.metrics.0.register(),
            entries: Entries::default(),
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
}

impl Drop for Pool {
    fn drop(&mut self) {
        for entry in self.entries.slots.drain(..).filter_map(|slot| slot.entry) {
            self.shared.release(&entry);
        }
    }
}

thread_local! {
    /// The pools, the one used last first.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// An entry for a new sleep due at `deadline`, or never, and its tick: a cancelled one if one fits
/// or the pool is full, else a new one.
#[inline]
pub(crate) fn take(
    context: &Arc<SleepContext>,
    deadline: Option<Instant>,
) -> (Arc<SleepEntry>, u64) {
    let taken = with_first(|pool| {
        if !pool.has(context) {
            return None;
        }
        let tick = pool.rounded.deadline(&context.shared.ticks, deadline?);
        let entry = pool.entries.take(tick)?;
        pool.counters.add(Event::SleepMade, 1);
        Some((entry, tick))
    });
    match taken {
        Some(taken) => taken,
        None => take_any(context, deadline),
    }
}

/// Like [`take`] if the wheel is not the one used last, or no entry fits.
#[inline(never)]
fn take_any(context: &Arc<SleepContext>, deadline: Option<Instant>) -> (Arc<SleepEntry>, u64) {
    let shared = &context.shared;
    let tick = deadline.map_or(NEVER, |deadline| shared.ticks.deadline(deadline));
    let taken = with(shared, |pool| {
        pool.counters.add(Event::SleepMade, 1);
        pool.learn(context);
        let fitting = pool.entries.take(tick);
        fitting.or_else(|| pool.entries.take_late())
    });
    if taken.is_none() {
        count_exiting(shared, Event::SleepMade);
    }
    let entry = taken.flatten();
    let entry = entry.unwrap_or_else(|| Arc::new(Entry::new(Arc::clone(context))));
    (entry, tick)
}

/// The tick of a deadline: as [`Ticks::deadline`](crate::tick::Ticks::deadline) rounds it, and
/// faster if the deadline before had the same.
#[inline]
pub(crate) fn tick(shared: &Arc<Shared>, deadline: Instant) -> u64 {
    let rounded = with_first(|pool| {
        pool.is_of(shared)
            .then(|| pool.rounded.deadline(&shared.ticks, deadline))
    });
    rounded.unwrap_or_else(|| shared.ticks.deadline(deadline))
}

/// Pools the entry of an armed sleep that is dropped, or releases it if there is no room. Drops the
/// waker.
#[inline]
pub(crate) fn give(entry: &mut Option<Arc<SleepEntry>>, scheduled: u64, waker: Option<Waker>) {
    let given = with_first(|pool| {
        let may_keep = scheduled != NEVER && pool.may_keep(entry.as_ref()?.context());
        if !may_keep || !pool.entries.give(scheduled, entry) {
            return None;
        }
        pool.counters.add(Event::SleepCancelled, 1);
        Some(())
    });
    if given.is_none() {
        give_any(entry, scheduled, true);
    }
    drop(waker);
}

/// Pools the entry of a sleep that is dropped, or releases it if there is no room. `is_cancelled`
/// says that the sleep had not fired.
#[inline(never)]
pub(crate) fn give_any(entry: &mut Option<Arc<SleepEntry>>, scheduled: u64, is_cancelled: bool) {
    let Some(there) = entry else { return };
    let context = there.context();
    let counted = with(&context.shared, |pool| {
        pool.learn(context);
        if is_cancelled {
            pool.counters.add(Event::SleepCancelled, 1);
        }
    });
    if counted.is_none() && is_cancelled {
        count_exiting(&context.shared, Event::SleepCancelled);
    }
    // An entry that is not scheduled fits any deadline. Using it again saves the allocation, not
    // the command.
    let scheduled = if scheduled == NEVER { 0 } else { scheduled };
    // The pool is the first one now.
    let given = with_first(|pool| {
        let may_keep = pool.may_keep(entry.as_ref()?.context());
        (may_keep && pool.entries.give(scheduled, entry)).then_some(())
    });
    if let (None, Some(entry)) = (given, entry.take()) {
        entry.context().shared.release(&entry);
    }
}

/// Counts an event of this thread.
#[inline]
pub(crate) fn count(shared: &Arc<Shared>, event: Event) {
    if with(shared, |pool| pool.counters.add(event, 1)).is_none() {
        count_exiting(shared, event);
    }
}

/// Counts an event of a thread that is ending and has no pool any more.
#[cold]
fn count_exiting(shared: &Arc<Shared>, event: Event) {
    shared.metrics.0.register().add(event, 1);
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

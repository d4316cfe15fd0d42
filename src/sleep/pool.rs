//! The pool: for each thread and wheel, the cancelled entries to use again, and what the thread has counted.
//!
//! A cancelled entry is still on the wheel, at the tick by which the actor is going to process it. A new timeout whose
//! deadline lies at that tick or after it can take the entry over: it writes its deadline and waker, and is armed. It
//! allocates nothing, sends no command, and writes no cache line that another core writes. Where timeouts have a constant
//! length, each one after the first finds such an entry. Where lengths are mixed, a timeout takes the entry that is
//! scheduled latest among the pooled entries that are scheduled early enough. So it leaves the early ones to shorter
//! timeouts.
//!
//! A thread keeps pools for the wheels that it used last. To make room for a new pool it evicts the one it has not used
//! for longest, and the pools of wheels that have ended. The entries of an evicted pool are released, as are those of a
//! thread that ends: the actor takes them off the wheel.
//!
//! A thread's counts of sleeps live beside its pool. Only the thread writes them, and reading adds up all threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::counts::Counts;
use crate::shared::entry::Entry;
use crate::shared::{Shared, SleepContext, SleepEntry};
use crate::sync::{EXPLORED, thread_local};
use crate::tick::NEVER;

#[cfg(test)]
mod tests;

/// How many cancelled entries of one wheel a thread keeps.
const POOLED_ENTRIES: usize = if EXPLORED { 3 } else { 128 };

/// How many of its last entries a pool searches for a new timeout.
const SEARCHED: usize = 8;

/// For how many wheels a thread keeps pools. A thread that uses more wheels in turn pays an allocation and a command for
/// each timer, and about a microsecond for opening the pool. Sixteen full pools hold some 150 kB.
const POOLS_PER_THREAD: usize = 16;

/// One thread's cancelled entries and counts for one wheel.
struct Pool {
    /// The wheel's id.
    id: u64,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// The entries, each with the tick at which it was scheduled when it was cancelled.
    entries: Vec<(u64, Arc<SleepEntry>)>,
}

impl Pool {
    fn new(shared: &Arc<Shared>) -> Self {
        let counts = Arc::<Counts>::default();
        shared.metrics.0.register(&counts);
        Pool {
            id: shared.id,
            shared: Arc::clone(shared),
            counts,
            entries: Vec::new(),
        }
    }

    /// The entry scheduled latest among those of the last few that are scheduled early enough.
    fn take(&mut self, deadline: u64) -> Option<Arc<SleepEntry>> {
        let first = self.entries.len().saturating_sub(SEARCHED);
        let mut best = None;
        for (at, &(scheduled, _)) in self.entries.iter().enumerate().skip(first) {
            if scheduled <= deadline && best.is_none_or(|(_, latest)| latest <= scheduled) {
                best = Some((at, scheduled));
            }
        }
        let (at, _) = best?;
        Some(self.entries.swap_remove(at).1)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for (_, entry) in self.entries.drain(..) {
            self.shared.release(&entry);
        }
    }
}

thread_local! {
    /// The pools, the one used last first.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// An entry for a new sleep due at `deadline`: a cancelled one if one fits, else a new one.
#[inline]
pub(crate) fn take(context: &Arc<SleepContext>, deadline: u64) -> Arc<SleepEntry> {
    let pooled = with(
        context,
        |context| &context.shared,
        |pool, _| {
            increment(&pool.counts.made);
            pool.take(deadline)
        },
    );
    match pooled {
        Ok(Some(entry)) => entry,
        Ok(None) => Arc::new(Entry::new(Arc::clone(context))),
        Err(_) => {
            let counts = context.shared.metrics.0.elsewhere();
            counts.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Entry::new(Arc::clone(context)))
        }
    }
}

/// Pools the entry of a sleep that was dropped, or gives it back if there is no room. `is_cancelled` says that the sleep
/// had not fired.
#[inline]
pub(crate) fn give(
    entry: Arc<SleepEntry>,
    scheduled: u64,
    is_cancelled: bool,
) -> Result<(), Arc<SleepEntry>> {
    let given = with(
        entry,
        |entry| &entry.context().shared,
        |pool, entry| {
            if is_cancelled {
                increment(&pool.counts.cancelled);
            }
            let usable = entry.context().clock.is_none() && !pool.shared.is_orphaned();
            if usable && pool.entries.len() < POOLED_ENTRIES {
                // An entry that is not scheduled fits any deadline. Using it again saves the allocation, not the command.
                let scheduled = if scheduled == NEVER { 0 } else { scheduled };
                pool.entries.push((scheduled, entry));
                Ok(())
            } else {
                Err(entry)
            }
        },
    );
    given.unwrap_or_else(|entry| {
        if is_cancelled {
            let counts = entry.context().shared.metrics.0.elsewhere();
            counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
        Err(entry)
    })
}

/// Adds one to a count of this thread.
pub(crate) fn count(shared: &Arc<Shared>, which: impl Fn(&Counts) -> &AtomicU64) {
    let counted = with(
        shared,
        |shared| shared,
        |pool, _| increment(which(&pool.counts)),
    );
    if counted.is_err() {
        which(shared.metrics.0.elsewhere()).fetch_add(1, Ordering::Relaxed);
    }
}

/// Adds one to a count. Only this thread writes it, so a load and a store are enough.
fn increment(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Runs `f` on this thread's pool for the wheel of `subject`. Gives the subject back when the thread is ending and has no
/// pools any more.
///
/// Neither `f` nor anything it drops may call this again.
#[inline]
fn with<T, R>(
    subject: T,
    context: impl Fn(&T) -> &Arc<Shared>,
    f: impl FnOnce(&mut Pool, T) -> R,
) -> Result<R, T> {
    let mut subject = Some(subject);
    let result = POOLS.try_with(|all| {
        let id = context(subject.as_ref()?).id;
        let mut pool = all.borrow_mut();
        if pool.first().is_none_or(|first| first.id != id) {
            drop(pool);
            bring_to_front(all, context(subject.as_ref()?));
            pool = all.borrow_mut();
        }
        Some(f(pool.first_mut()?, subject.take()?))
    });
    match (result, subject) {
        (Ok(Some(result)), _) => Ok(result),
        (_, Some(subject)) => Err(subject),
        (_, None) => unreachable!("the subject is taken only to be passed to `f`"),
    }
}

/// Makes this thread's pool for the wheel the first. The others keep their order.
#[cold]
fn bring_to_front(all: &RefCell<Vec<Pool>>, shared: &Arc<Shared>) {
    let at = all.borrow().iter().position(|pool| pool.id == shared.id);
    match at {
        Some(at) => all.borrow_mut()[..=at].rotate_right(1),
        None => open(all, shared),
    }
}

/// Opens a pool for the wheel. Evicts the pool used longest ago if there are too many, and those of wheels that have
/// ended.
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

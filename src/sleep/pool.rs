//! For each thread, the cancelled entries it may use again, and what it has counted.
//!
//! A cancelled entry is still on the wheel, at a tick at which the actor is going to look at it. A new timeout whose
//! deadline lies at that tick or after it can take the entry over: it writes its deadline and waker, and is armed. No
//! allocation, no message, no cache line that another core writes. Where timeouts have a constant length every one
//! after the first finds such an entry. Where lengths are mixed, the cache takes of the entries at hand the one that
//! is filed as late as the new deadline allows, and so leaves those that are filed soon to timeouts that are short.
//!
//! The counts of sleeps that were made and cancelled are kept here too. Only the thread writes its own; reading them
//! adds up all threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::shared::counts::Counts;
use crate::shared::entry::Entry;
use crate::shared::{Origin, Shared, SleepEntry};
use crate::tick::NEVER;

/// How many cancelled entries of one wheel a thread keeps.
const POOLED_ENTRIES: usize = 128;

/// How many of them a new timeout looks at.
const SEARCHED: usize = 8;

/// For how many wheels a thread keeps entries. Who uses more at once pays with an allocation and a message a timer.
const POOLS_PER_THREAD: usize = 4;

/// What one thread keeps for one wheel.
struct Pool {
    /// The wheel's.
    id: u64,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// With the tick each was filed at when it was cancelled.
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

    /// The entry filed latest of those that are filed soon enough, among the last few.
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
    /// The wheel used last comes first.
    static POOLS: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

/// An entry for a new sleep due at `deadline`: a cancelled one if there is any that fits, else a new one.
#[inline]
pub(crate) fn take(origin: &Arc<Origin>, deadline: u64) -> Arc<SleepEntry> {
    let spare = with(
        origin,
        |origin| &origin.shared,
        |pool, _| {
            increment(&pool.counts.made);
            pool.take(deadline)
        },
    );
    match spare {
        Ok(Some(entry)) => entry,
        Ok(None) => Arc::new(Entry::new(Arc::clone(origin))),
        Err(_) => {
            let counts = origin.shared.metrics.0.elsewhere();
            counts.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Entry::new(Arc::clone(origin)))
        }
    }
}

/// Keeps the entry of a sleep that was dropped, or gives it back when there is no room. `cancelled` when the sleep had
/// not fired.
#[inline]
pub(crate) fn give(
    entry: Arc<SleepEntry>,
    scheduled: u64,
    cancelled: bool,
) -> Result<(), Arc<SleepEntry>> {
    let given = with(
        entry,
        |entry| &entry.origin().shared,
        |pool, entry| {
            if cancelled {
                increment(&pool.counts.cancelled);
            }
            let usable = entry.origin().clock.is_none() && !pool.shared.is_orphaned();
            if usable && pool.entries.len() < POOLED_ENTRIES {
                // One that is not filed fits any deadline: that saves an allocation, if not the message.
                let scheduled = if scheduled == NEVER { 0 } else { scheduled };
                pool.entries.push((scheduled, entry));
                Ok(())
            } else {
                Err(entry)
            }
        },
    );
    given.unwrap_or_else(|entry| {
        if cancelled {
            let counts = entry.origin().shared.metrics.0.elsewhere();
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

/// Adds one to a count that this thread alone writes, so that a load and a store do.
fn increment(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Runs `f` on what this thread keeps for the wheel of `subject`. Gives the subject back when the thread is coming
/// down.
///
/// Neither `f` nor anything it drops may come back here.
#[inline]
fn with<T, R>(
    subject: T,
    origin: impl Fn(&T) -> &Arc<Shared>,
    f: impl FnOnce(&mut Pool, T) -> R,
) -> Result<R, T> {
    let mut subject = Some(subject);
    let result = POOLS.try_with(|all| {
        let id = origin(subject.as_ref()?).id;
        let mut pool = all.borrow_mut();
        if pool.first().is_none_or(|first| first.id != id) {
            drop(pool);
            bring_to_front(all, origin(subject.as_ref()?));
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

/// Makes what this thread keeps for the wheel the first of all.
#[cold]
fn bring_to_front(all: &RefCell<Vec<Pool>>, shared: &Arc<Shared>) {
    let at = all.borrow().iter().position(|pool| pool.id == shared.id);
    match at {
        Some(at) => all.borrow_mut().swap(0, at),
        None => open(all, shared),
    }
}

/// Begins to keep entries of this wheel, which may end it for a wheel that was used longer ago or has ended.
#[cold]
fn open(all: &RefCell<Vec<Pool>>, shared: &Arc<Shared>) {
    shared.check_clock();
    let mut pool = vec![Pool::new(shared)];
    let mut evicted = Vec::new();
    for old in all.take() {
        if pool.len() < POOLS_PER_THREAD && !old.shared.is_ended() {
            pool.push(old);
        } else {
            evicted.push(old);
        }
    }
    all.replace(pool);
    // Not while it is borrowed: what is dropped here sends messages.
    drop(evicted);
}

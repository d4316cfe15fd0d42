//! For each thread, the cancelled entries it may use again, and what it has counted.
//!
//! A cancelled entry is still on the wheel, at a tick at which the actor is going to look at it. A new timeout whose
//! deadline lies at that tick or after it can take the entry over: it writes its deadline and waker, and is armed. No
//! allocation, no message, no cache line that another core writes. Where timeouts have a constant length every one
//! after the first finds such an entry. Where lengths are mixed, the cache takes of the entries at hand the one that
//! is filed as late as the new deadline allows, and so leaves those that are filed soon to timeouts that are short.
//!
//! The counts of armed and cancelled sleeps are kept here too. Only the thread writes its own; reading them adds up
//! all threads.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::entry::Entry;
use crate::shared::{Shared, SleepEntry};

/// How many cancelled entries of one wheel a thread keeps.
const SPARE_ENTRIES: usize = 128;

/// How many of them a new timeout looks at.
const LOOKED_AT: usize = 8;

/// For how many wheels a thread keeps entries. Who uses more at once pays with an allocation and a message a timer.
const WHEELS: usize = 4;

/// What one thread has counted for one wheel. Written by that thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Sleeps that were armed.
    pub(crate) armed: AtomicU64,
    /// Armed sleeps that were dropped.
    pub(crate) cancelled: AtomicU64,
    /// Armed sleeps that saw by the clock that they were due, before the actor did.
    pub(crate) elapsed: AtomicU64,
    /// Armed sleeps that were given another deadline.
    pub(crate) moved: AtomicU64,
}

/// What one thread keeps for one wheel.
struct Spares {
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// With the tick each was filed at when it was cancelled.
    entries: Vec<(u64, Arc<SleepEntry>)>,
}

impl Spares {
    fn new(shared: &Arc<Shared>) -> Self {
        let counts = Arc::<Counts>::default();
        shared.metrics.register(&counts);
        Spares {
            shared: Arc::clone(shared),
            counts,
            entries: Vec::new(),
        }
    }

    /// The entry filed latest of those that are filed soon enough, among the last few.
    fn take(&mut self, deadline: u64) -> Option<Arc<SleepEntry>> {
        let first = self.entries.len().saturating_sub(LOOKED_AT);
        let mut best = None;
        for (at, &(filed, _)) in self.entries.iter().enumerate().skip(first) {
            if filed <= deadline && best.is_none_or(|(_, latest)| latest <= filed) {
                best = Some((at, filed));
            }
        }
        let (at, _) = best?;
        Some(self.entries.swap_remove(at).1)
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for (_, entry) in self.entries.drain(..) {
            self.shared.discard(&entry, false);
        }
    }
}

thread_local! {
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
    /// The wheel used last comes first.
    static SPARES: RefCell<Vec<Spares>> = const { RefCell::new(Vec::new()) };
}

/// A number for this thread, small and unlike that of its neighbours.
pub(crate) fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    THREAD
        .try_with(|thread| {
            if thread.get() == usize::MAX {
                thread.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            thread.get()
        })
        // The thread is coming down.
        .unwrap_or(0)
}

/// An entry for a timer due at `deadline`: a cancelled one if there is any that fits, else a new one.
pub(crate) fn take(shared: &Arc<Shared>, deadline: u64) -> Arc<SleepEntry> {
    let spare = with(shared, |spares| spares.take(deadline)).flatten();
    spare.unwrap_or_else(|| Arc::new(Entry::new(Arc::clone(shared))))
}

/// Keeps a cancelled entry for later, or gives it back when there is no room.
pub(crate) fn give(
    shared: &Arc<Shared>,
    entry: Arc<SleepEntry>,
    filed: u64,
) -> Option<Arc<SleepEntry>> {
    let mut entry = Some(entry);
    with(shared, |spares| {
        if spares.entries.len() < SPARE_ENTRIES {
            spares.entries.extend(entry.take().map(|e| (filed, e)));
        }
    });
    entry
}

/// Adds one to a count of this thread.
pub(crate) fn count(shared: &Arc<Shared>, which: impl Fn(&Counts) -> &AtomicU64) {
    let counted = with(shared, |spares| {
        // This thread alone writes it, so a load and a store do.
        let count = which(&spares.counts);
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    });
    if counted.is_none() {
        which(shared.metrics.elsewhere()).fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `f` on what this thread keeps for the wheel. `None` when the thread is coming down.
///
/// Neither `f` nor anything it drops may come back here.
fn with<R>(shared: &Arc<Shared>, f: impl FnOnce(&mut Spares) -> R) -> Option<R> {
    let find = |all: &mut Vec<Spares>| {
        if all.first()?.shared.id != shared.id {
            let at = all.iter().position(|s| s.shared.id == shared.id)?;
            all.swap(0, at);
        }
        Some(())
    };
    SPARES
        .try_with(|all| {
            if find(&mut *all.try_borrow_mut().ok()?).is_none() {
                open(all, shared);
            }
            all.try_borrow_mut().ok()?.first_mut().map(f)
        })
        .ok()
        .flatten()
}

/// Begins to keep entries of this wheel, which may end it for a wheel that was used longer ago or has ended.
#[cold]
fn open(all: &RefCell<Vec<Spares>>, shared: &Arc<Shared>) {
    let mut spares = vec![Spares::new(shared)];
    let mut evicted = Vec::new();
    for old in all.take() {
        if spares.len() < WHEELS && !old.shared.is_ended() {
            spares.push(old);
        } else {
            evicted.push(old);
        }
    }
    all.replace(spares);
    // Outside the borrow: what is dropped here sends messages.
    drop(evicted);
}

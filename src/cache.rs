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

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::entry::Entry;
use crate::shared::{Home, Shared, SleepEntry};
use crate::tick::NEVER;

/// How many cancelled entries of one wheel a thread keeps.
const SPARE_ENTRIES: usize = 128;

/// How many of them a new timeout looks at.
const LOOKED_AT: usize = 8;

/// For how many wheels a thread keeps entries. Who uses more at once pays with an allocation and a message a timer.
const WHEELS: usize = 4;

/// What one thread has counted for one wheel. Written by that thread alone.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Sleeps that were made, or armed again after they had fired.
    pub(crate) made: AtomicU64,
    /// Sleeps that were dropped before they fired.
    pub(crate) cancelled: AtomicU64,
    /// Sleeps that saw by the clock that they were due, before the actor did.
    pub(crate) elapsed: AtomicU64,
    /// Waiting sleeps that were given another deadline.
    pub(crate) moved: AtomicU64,
    /// Sleeps that went on with Tokio's timer.
    pub(crate) handed_over: AtomicU64,
}

/// What one thread keeps for one wheel.
struct Spares {
    /// The wheel's.
    id: u64,
    shared: Arc<Shared>,
    counts: Arc<Counts>,
    /// With the tick each was filed at when it was cancelled.
    entries: Vec<(u64, Arc<SleepEntry>)>,
}

impl Spares {
    fn new(shared: &Arc<Shared>) -> Self {
        let counts = Arc::<Counts>::default();
        shared.metrics.0.register(&counts);
        Spares {
            id: shared.id,
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
            self.shared.discard(&entry);
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

/// An entry for a new sleep due at `deadline`: a cancelled one if there is any that fits, else a new one.
#[inline]
pub(crate) fn take(home: &Arc<Home>, deadline: u64) -> Arc<SleepEntry> {
    let spare = with(
        home,
        |home| &home.shared,
        |spares, _| {
            increment(&spares.counts.made);
            spares.take(deadline)
        },
    );
    match spare {
        Ok(Some(entry)) => entry,
        Ok(None) => Arc::new(Entry::new(Arc::clone(home))),
        Err(_) => {
            let counts = home.shared.metrics.0.elsewhere();
            counts.made.fetch_add(1, Ordering::Relaxed);
            Arc::new(Entry::new(Arc::clone(home)))
        }
    }
}

/// Keeps the entry of a sleep that was dropped, or gives it back when there is no room. `cancelled` when the sleep had
/// not fired.
#[inline]
pub(crate) fn give(
    entry: Arc<SleepEntry>,
    filed: u64,
    cancelled: bool,
) -> Result<(), Arc<SleepEntry>> {
    let given = with(
        entry,
        |entry| &entry.home().shared,
        |spares, entry| {
            if cancelled {
                increment(&spares.counts.cancelled);
            }
            let usable = entry.home().clock.is_none() && !spares.shared.is_orphaned();
            if usable && spares.entries.len() < SPARE_ENTRIES {
                // One that is not filed fits any deadline: that saves an allocation, if not the message.
                let filed = if filed == NEVER { 0 } else { filed };
                spares.entries.push((filed, entry));
                Ok(())
            } else {
                Err(entry)
            }
        },
    );
    given.unwrap_or_else(|entry| {
        if cancelled {
            let counts = entry.home().shared.metrics.0.elsewhere();
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
        |spares, _| increment(which(&spares.counts)),
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
    home: impl Fn(&T) -> &Arc<Shared>,
    f: impl FnOnce(&mut Spares, T) -> R,
) -> Result<R, T> {
    let mut subject = Some(subject);
    let result = SPARES.try_with(|all| {
        let id = home(subject.as_ref()?).id;
        let mut spares = all.borrow_mut();
        if spares.first().is_none_or(|first| first.id != id) {
            drop(spares);
            bring_to_front(all, home(subject.as_ref()?));
            spares = all.borrow_mut();
        }
        Some(f(spares.first_mut()?, subject.take()?))
    });
    match (result, subject) {
        (Ok(Some(result)), _) => Ok(result),
        (_, Some(subject)) => Err(subject),
        (_, None) => unreachable!("the subject is taken only to be passed to `f`"),
    }
}

/// Makes what this thread keeps for the wheel the first of all.
#[cold]
fn bring_to_front(all: &RefCell<Vec<Spares>>, shared: &Arc<Shared>) {
    let at = all
        .borrow()
        .iter()
        .position(|spares| spares.id == shared.id);
    match at {
        Some(at) => all.borrow_mut().swap(0, at),
        None => open(all, shared),
    }
}

/// Begins to keep entries of this wheel, which may end it for a wheel that was used longer ago or has ended.
#[cold]
fn open(all: &RefCell<Vec<Spares>>, shared: &Arc<Shared>) {
    shared.check_clock();
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
    // Not while it is borrowed: what is dropped here sends messages.
    drop(evicted);
}

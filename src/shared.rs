//! What the handles of one wheel and its actor have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::cache;
use crate::command::{Command, Mailbox};
use crate::entry::{Entry, Tell};
use crate::keyed::AnySet;
use crate::metrics::Metrics;
use crate::tick::Ticks;

/// The entry of a sleeping future. It holds the way to its actor, so that a sleep made from a thread's cache touches
/// no count that another core touches.
pub(crate) type SleepEntry = Entry<Arc<Shared>>;

/// One wheel, as its handles, futures and actor see it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Unique among the wheels of this process.
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) ticks: Ticks,
    pub(crate) late_warning: Duration,
    pub(crate) mailbox: Mailbox,
    pub(crate) metrics: Metrics,
    pub(crate) runtime: tokio::runtime::Id,
    /// True once no handle is left: cancelled entries then leave the wheel instead of waiting to be reused.
    pub(crate) orphaned: AtomicBool,
    /// Becomes true when the actor has ended.
    ended: watch::Sender<bool>,
    max_pending: usize,
    /// Keyed timers that hold a place, over all sets.
    pending: AtomicUsize,
    sets: Mutex<Sets>,
}

/// Every set of keyed timers that was made and not dropped.
#[derive(Debug, Default)]
struct Sets {
    all: Vec<Weak<dyn AnySet>>,
    closed: bool,
}

/// What a [`Shared`] is made of.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) ticks: Ticks,
    pub(crate) late_warning: Duration,
    pub(crate) max_pending: usize,
    pub(crate) runtime: tokio::runtime::Id,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Shared {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            name: config.name,
            ticks: config.ticks,
            late_warning: config.late_warning,
            mailbox: Mailbox::new(cores, Notify::new()),
            metrics: Metrics::default(),
            runtime: config.runtime,
            orphaned: AtomicBool::new(false),
            ended: watch::Sender::new(false),
            max_pending: config.max_pending,
            pending: AtomicUsize::new(0),
            sets: Mutex::default(),
        }
    }

    // --- the actor's end ---

    pub(crate) fn is_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Says that the actor has ended.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until the actor has ended.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so this does not fail.
        let _ = ended.wait_for(|&ended| ended).await;
    }

    // --- sleeping futures ---

    /// Arms the entry. False when there is no actor any more; the entry is then closed.
    pub(crate) fn arm(self: &Arc<Self>, entry: &Arc<SleepEntry>, tick: u64, waker: Waker) -> bool {
        let armed = (entry.arm(tick, waker)).is_some_and(|tell| self.tell(entry, tell));
        if armed {
            cache::count(self, |counts| &counts.armed);
        }
        armed
    }

    /// Says to the actor what a change of the entry requires. False when there is none; the entry is then closed.
    pub(crate) fn tell(&self, entry: &Arc<SleepEntry>, tell: Tell) -> bool {
        match tell {
            Tell::Nothing => {}
            Tell::Sooner(tick) => self.mailbox.wake_by(tick),
            Tell::Queue(tick) => {
                let command = Command::Sleep(Arc::clone(entry));
                if self.submit(tick, command).is_err() {
                    // Whoever owns the waker is the one who calls.
                    drop(entry.close());
                    return false;
                }
            }
        }
        true
    }

    /// Takes back an entry whose future is gone. It goes to this thread's cache, or leaves the wheel.
    pub(crate) fn release(self: &Arc<Self>, entry: Arc<SleepEntry>, filed: u64) {
        let orphaned = self.orphaned.load(Ordering::Relaxed);
        let refused = if orphaned {
            Some(entry)
        } else {
            cache::give(self, entry, filed)
        };
        if let Some(entry) = refused {
            self.discard(&entry, orphaned);
        }
    }

    /// Gives the entry up: the actor takes it off the wheel, at once if it is `urgent`.
    pub(crate) fn discard(&self, entry: &Arc<SleepEntry>, urgent: bool) {
        let tell = match entry.abandon() {
            Tell::Queue(_) if urgent => Tell::Queue(0),
            tell => tell,
        };
        self.tell(entry, tell);
    }

    // --- keyed timers ---

    /// Takes a place for one more keyed timer; false when all are taken.
    pub(crate) fn reserve(&self) -> bool {
        if self.max_pending == usize::MAX {
            self.pending.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        self.pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |pending| {
                (pending < self.max_pending).then_some(pending + 1)
            })
            .is_ok()
    }

    /// Gives places back.
    pub(crate) fn free(&self, places: usize) {
        self.pending.fetch_sub(places, Ordering::Relaxed);
    }

    pub(crate) fn pending_keyed(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Remembers a new set. False when the actor has ended, which will not come by to close it.
    pub(crate) fn register(&self, set: Weak<dyn AnySet>) -> bool {
        let mut sets = self.lock_sets();
        if sets.closed {
            return false;
        }
        // Forget the dropped ones whenever the list would have to grow: amortised, it costs a step a set.
        if sets.all.len() == sets.all.capacity() {
            sets.all.retain(|set| set.strong_count() > 0);
        }
        sets.all.push(set);
        true
    }

    /// Every set there is.
    pub(crate) fn sets(&self) -> Vec<Arc<dyn AnySet>> {
        let sets = self.lock_sets();
        sets.all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Every set there is; later ones will not be [registered](Self::register).
    pub(crate) fn close_sets(&self) -> Vec<Arc<dyn AnySet>> {
        self.lock_sets().closed = true;
        self.sets()
    }

    fn lock_sets(&self) -> std::sync::MutexGuard<'_, Sets> {
        self.sets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- commands ---

    pub(crate) fn submit(&self, tick: u64, command: Command) -> Result<(), Command> {
        self.mailbox.push(cache::thread_number(), tick, command)
    }
}

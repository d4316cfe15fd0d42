//! The counters of a wheel, and the snapshot of them.

mod counts;
mod histogram;
mod keyed_counts;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use counts::Counts;
use histogram::AtomicHistogram;
pub use histogram::{DurationBucket, DurationHistogram};
pub(crate) use keyed_counts::{KeyedCounters, KeyedCounts, KeyedEvent};

/// The counters of one wheel.
///
/// Each thread counts its own sleeps, see [`counts`], and each set its own timers, see [`keyed_counts`]. The actor alone
/// writes everything else, so it adds with a load and a store.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    threads: Mutex<Threads>,
    /// The counts of threads that are ending, whose thread-local storage is gone.
    elsewhere: Counts,
    pub(crate) fired_sleeps: AtomicU64,
    pub(crate) rescheduled: AtomicU64,
    pub(crate) turns: AtomicU64,
    pub(crate) wake_ups: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) longest_turn: AtomicU64,
    pub(crate) lateness: AtomicHistogram,
}

#[derive(Debug, Default)]
struct Threads {
    alive: Vec<Arc<Counts>>,
    /// The sum over the threads that have ended.
    gone: Counts,
}

/// Adds to a counter that this thread alone writes.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
}

impl Metrics {
    /// Includes the counts of one more thread.
    pub(crate) fn register(&self, counts: &Arc<Counts>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Threads { alive, gone } = &mut *threads;
        alive.retain_mut(|counts| {
            // Unlike reading the number of references, this also synchronizes with the thread's last writes.
            match Arc::get_mut(counts) {
                Some(counts) => {
                    counts.add_to(gone);
                    false
                }
                None => true,
            }
        });
        alive.push(Arc::clone(counts));
    }

    /// The counts for a thread whose thread-local storage is gone.
    pub(crate) fn elsewhere(&self) -> &Counts {
        &self.elsewhere
    }

    /// The counts of all threads.
    fn threads(&self) -> Counts {
        let sum = Counts::default();
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.gone.add_to(&sum);
        for counts in &threads.alive {
            counts.add_to(&sum);
        }
        self.elsewhere.add_to(&sum);
        sum
    }

    /// A snapshot; `keyed` is the sum over all sets.
    pub(crate) fn read(&self, keyed: &KeyedCounts) -> WheelMetrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let sleeps = self.threads();
        let sleeps_fired = get(&self.fired_sleeps) + get(&sleeps.elapsed);
        let sleeps_cancelled = get(&sleeps.cancelled);
        let sleeps_made = get(&sleeps.made);
        let sleeps_handed_over = get(&sleeps.handed_over);
        WheelMetrics {
            sleeps_pending: sleeps_made
                .saturating_sub(sleeps_fired + sleeps_cancelled + sleeps_handed_over),
            sleeps_made,
            sleeps_fired,
            sleeps_cancelled,
            sleeps_handed_over,
            sleeps_moved: get(&sleeps.moved),
            keyed_pending: keyed.pending(),
            keyed_set: keyed.set(),
            keyed_fired: keyed.fired(),
            keyed_removed: keyed.get(KeyedEvent::Removed),
            keyed_replaced: keyed.get(KeyedEvent::Replaced),
            keyed_drained: keyed.get(KeyedEvent::Drained),
            keyed_moved: keyed.get(KeyedEvent::Moved),
            rescheduled: get(&self.rescheduled),
            commands: get(&self.commands),
            turns: get(&self.turns),
            wake_ups: get(&self.wake_ups),
            longest_turn: Duration::from_nanos(get(&self.longest_turn)),
            lateness: self.lateness.read(),
        }
    }
}

/// A snapshot of a wheel's counts since it started. Made by [`TimerWheel::metrics`](crate::TimerWheel::metrics).
///
/// Every count but `sleeps_pending` and `keyed_pending` only grows. The counters add up. The sum of keyed timers holds
/// in every snapshot. The sum of sleeps can be off by changes made during the snapshot; after
/// [`settle`](crate::TimerWheel::settle) on a quiet wheel it is exact:
///
/// ```text
/// sleeps_made = sleeps_pending + sleeps_fired + sleeps_cancelled + sleeps_handed_over
/// keyed_set   = keyed_pending + keyed_fired + keyed_removed + keyed_replaced + keyed_drained
/// ```
///
/// # Examples
///
/// ```
/// # use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// # let wheel = tickwheel::TimerWheel::new();
/// let (timers, _expirations) = wheel.keyed::<u32, ()>();
/// timers.set_timer(1, (), Duration::from_secs(5)).unwrap();
/// timers.set_timer(2, (), Duration::from_secs(5)).unwrap();
/// timers.remove_timer(&1).unwrap();
///
/// let metrics = wheel.metrics();
/// assert_eq!((metrics.keyed_set, metrics.keyed_removed, metrics.keyed_pending), (2, 1, 1));
/// # }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WheelMetrics {
    /// Sleeps that have not fired yet, polled or not, including those inside timeouts, intervals, idle timers and idle
    /// streams.
    pub sleeps_pending: u64,
    /// Sleeps that were made. A sleep that is reset after it fired counts again, as an interval's does at each tick.
    pub sleeps_made: u64,
    /// Sleeps that reached their deadline.
    pub sleeps_fired: u64,
    /// Sleeps that were dropped before their deadline, including those of timeouts whose future completed in time.
    pub sleeps_cancelled: u64,
    /// Sleeps that went on with Tokio's own timer, because the wheel had shut down or the clock is virtual.
    pub sleeps_handed_over: u64,
    /// How often a waiting sleep was given another deadline, by [`Sleep::reset`](crate::Sleep::reset), by an interval or
    /// by an idle timer.
    pub sleeps_moved: u64,
    /// Keyed timers that are pending now, over all sets. A watch of a [`Reaper`](crate::Reaper) counts as a keyed
    /// timer, here and below.
    pub keyed_pending: u64,
    /// Keyed timers that were set. A repeating timer counts again each time it fires.
    pub keyed_set: u64,
    /// Keyed timers that fired.
    pub keyed_fired: u64,
    /// Keyed timers that were removed.
    pub keyed_removed: u64,
    /// Keyed timers that were replaced because their key was set again.
    pub keyed_replaced: u64,
    /// Keyed timers that were drained, returned as unexpired, or dropped with their set.
    pub keyed_drained: u64,
    /// Calls that moved a keyed timer.
    pub keyed_moved: u64,
    /// Timers that the actor reached, found due later, and put on the wheel again.
    pub rescheduled: u64,
    /// Commands that the actor has applied. Most timers need none.
    pub commands: u64,
    /// Turns the actor has taken.
    pub turns: u64,
    /// How often the actor began to wait: its wake-ups, and a wait that goes on.
    pub wake_ups: u64,
    /// The longest turn, by the runtime's clock: zero under a paused one.
    pub longest_turn: Duration,
    /// How late the actor fired timers: keyed timers after their deadline, sleeps after the tick at which they were due. A
    /// timer whose deadline had passed when it was armed is late from then on.
    pub lateness: DurationHistogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_an_ended_thread_are_kept() {
        let metrics = Metrics::default();
        let counts = Arc::<Counts>::default();
        metrics.register(&counts);
        add(&counts.made, 3);
        drop(counts);
        metrics.register(&Arc::default());
        assert_eq!(metrics.threads().made.load(Ordering::Relaxed), 3);
    }
}

//! The counters of a wheel, and the snapshot of them.

mod counts;
mod histogram;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use counts::Total;
pub(crate) use counts::{Counters, Event, OwnCounters};
use histogram::AtomicHistogram;
pub use histogram::{DurationBucket, DurationHistogram};

/// The counters of one wheel.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// The actor's own.
    pub(crate) actor: Counters,
    /// Those of all threads and sets.
    total: Arc<Total>,
    /// In nanoseconds. Written by the actor alone.
    pub(crate) longest_turn: AtomicU64,
    pub(crate) lateness: AtomicHistogram,
}

impl Metrics {
    /// Counters for one more thread or set.
    pub(crate) fn register(&self) -> OwnCounters {
        OwnCounters::new(&self.total)
    }

    /// A snapshot.
    pub(crate) fn read(&self) -> WheelMetrics {
        let mut counts = self.total.read();
        counts.add(&self.actor.read());
        let get = |event| counts.get(event);
        let sleeps_made = get(Event::SleepMade);
        let sleeps_fired = get(Event::SleepFired);
        let sleeps_cancelled = get(Event::SleepCancelled);
        let sleeps_handed_over = get(Event::SleepHandedOver);
        WheelMetrics {
            sleeps_pending: sleeps_made
                .saturating_sub(sleeps_fired + sleeps_cancelled + sleeps_handed_over),
            sleeps_made,
            sleeps_fired,
            sleeps_cancelled,
            sleeps_handed_over,
            sleeps_moved: get(Event::SleepMoved),
            keyed_pending: counts.keyed_pending(),
            keyed_set: get(Event::KeyedAdded)
                + get(Event::KeyedReplaced)
                + get(Event::KeyedRepeated),
            keyed_fired: get(Event::KeyedFired) + get(Event::KeyedRepeated),
            keyed_removed: get(Event::KeyedRemoved),
            keyed_replaced: get(Event::KeyedReplaced),
            keyed_drained: get(Event::KeyedDrained),
            keyed_moved: get(Event::KeyedMoved),
            rescheduled: get(Event::Rescheduled),
            commands: get(Event::Command),
            turns: get(Event::Turn),
            wake_ups: get(Event::WakeUp),
            longest_turn: Duration::from_nanos(self.longest_turn.load(Ordering::Relaxed)),
            lateness: self.lateness.read(),
        }
    }
}

/// A snapshot of a wheel's counts since it started. Made by
/// [`TimerWheel::metrics`](crate::TimerWheel::metrics).
///
/// Every count but `sleeps_pending` and `keyed_pending` only grows. The counters add up: those of
/// keyed timers in every snapshot, those of sleeps except for changes made during the snapshot, so
/// exactly after [`settle`](crate::TimerWheel::settle) on a quiet wheel:
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
    /// Sleeps that have not fired yet, polled or not, including those inside timeouts, intervals,
    /// idle timers and idle streams.
    pub sleeps_pending: u64,
    /// Sleeps that were made. A sleep that is reset after it fired counts again, as an interval's
    /// does at each tick.
    pub sleeps_made: u64,
    /// Sleeps that reached their deadline.
    pub sleeps_fired: u64,
    /// Sleeps that were dropped before their deadline, including those of timeouts whose future
    /// completed in time.
    pub sleeps_cancelled: u64,
    /// Sleeps that went on with Tokio's own timer, because the wheel had shut down or the clock is
    /// virtual.
    pub sleeps_handed_over: u64,
    /// How often a waiting sleep got another deadline, by [`Sleep::reset`](crate::Sleep::reset), an
    /// interval or an idle timer.
    pub sleeps_moved: u64,
    /// Keyed timers that are pending now, over all sets. A watch of a [`Reaper`](crate::Reaper)
    /// counts as a keyed timer, here and below.
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
    /// How often the actor began to wait: one more than its wake-ups while it waits.
    pub wake_ups: u64,
    /// The longest turn, by the runtime's clock: zero under a paused one.
    pub longest_turn: Duration,
    /// How late the actor fired timers: keyed timers after their deadline, sleeps after the tick at
    /// which they were due. A timer that was armed after its deadline is late from then
    /// on.
    pub lateness: DurationHistogram,
}

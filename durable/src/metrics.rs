//! The counters of an instance.

use crate::lock::lock;
use std::fmt;
use std::ops::BitOrAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tickwheel::DurationHistogram;

/// A snapshot of an instance's counters since it started. Made by
/// [`DurableTimers::metrics`](crate::DurableTimers::metrics).
///
/// [`DurableTimers::counts`](crate::DurableTimers::counts) asks the store how many timers there
/// are, and when the earliest is due.
///
/// [`DurationHistogram`] shows how to export one of its histograms to Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DurableMetrics {
    /// Rows loaded from the store.
    pub loaded: u64,
    /// Rows on the wheel now.
    pub on_wheel: usize,
    /// Due rows that now wait here until the program asks for more.
    pub due: usize,
    /// Timers this instance has fired and claimed.
    pub claimed: u64,
    /// Claims delivered to the program.
    pub delivered: u64,
    /// Delivered claims of timers that had been claimed before and not acknowledged.
    pub redelivered: u64,
    /// Claims that turned out to be lost when they were settled or renewed.
    pub lost: u64,
    /// Claims that waited to be received until less than half of their lease was left. They were
    /// not delivered to the program, and do not count as attempts.
    pub lapsed: u64,
    /// Renewals of leases, while handlers ran or guards were held.
    pub renewed: u64,
    /// Handlers that ran for longer than a lease, which was renewed.
    pub slow_handlers: u64,
    /// Handlers that were cancelled after the [time limit](crate::Builder::handler_timeout).
    pub timed_out: u64,
    /// Claims that take up capacity now.
    pub unsettled: usize,
    /// Timers that died here: those that failed for good, and those that do not decode.
    pub dead: u64,
    /// Claims that did not decode here. Their timers were left to other instances, and died if none
    /// could decode them.
    pub undecoded: u64,
    /// Rows that came due here and were left to other instances that asked for them.
    pub left_to_others: u64,
    /// Calls of the store that failed or timed out.
    pub store_errors: u64,
    /// Which calls fail now.
    pub failing: Failing,
    /// Whether this instance neither loads, fires nor writes now, because it differs from the
    /// [charter](crate::Charter) of its namespace or the schema of the store.
    pub differs: bool,
    /// How many writes went to the store at once.
    pub write_batches: BatchSizes,
    /// How many rows were fired at once.
    pub fire_batches: BatchSizes,
    /// How many claims were settled at once.
    pub settle_batches: BatchSizes,
    /// How long the store took to respond to each call. A call that timed out counts with the time
    /// until then.
    pub store_latency: DurationHistogram,
    /// How late timers were claimed, by the store's clock. Redeliveries do not count.
    pub lateness: DurationHistogram,
    /// How long the handlers of [`dispatch`](crate::Claims::dispatch) ran, those that failed
    /// included.
    pub handler_time: DurationHistogram,
}

/// Which kinds of store calls fail now: the latest call of the kind has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is about one kind of call"
)]
#[non_exhaustive]
pub struct Failing {
    /// Loads: timers of others are not found.
    pub load: bool,
    /// Fires: nothing is delivered.
    pub fire: bool,
    /// Writes: nothing is set, moved or removed.
    pub write: bool,
    /// Settles: what is acknowledged will be delivered again.
    pub settle: bool,
}

impl BitOrAssign for Failing {
    fn bitor_assign(&mut self, other: Self) {
        self.load |= other.load;
        self.fire |= other.fire;
        self.write |= other.write;
        self.settle |= other.settle;
    }
}

/// How many batches there were, and how large they were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BatchSizes {
    /// The number of batches.
    pub count: u64,
    /// The items of all batches together.
    pub sum: u64,
    /// The items of the largest batch.
    pub max: u64,
}

impl BatchSizes {
    /// The mean size of a batch; zero if there was none.
    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (mean {}, max {})", self.count, self.mean(), self.max)
    }
}

/// A count that any task raises.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sizes of batches that any task adds to.
#[derive(Debug, Default)]
pub(crate) struct Batches {
    count: AtomicU64,
    sum: AtomicU64,
    max: AtomicU64,
}

impl Batches {
    pub(crate) fn add(&self, items: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(items, Ordering::Relaxed);
        self.max.fetch_max(items, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> BatchSizes {
        BatchSizes {
            count: self.count.load(Ordering::Relaxed),
            sum: self.sum.load(Ordering::Relaxed),
            max: self.max.load(Ordering::Relaxed),
        }
    }
}

/// A histogram that any task adds to.
#[derive(Debug, Default)]
pub(crate) struct Durations(Mutex<DurationHistogram>);

impl Durations {
    /// Adds all of them under one hold of the lock.
    pub(crate) fn add(&self, durations: impl IntoIterator<Item = Duration>) {
        let mut histogram = self.lock();
        for duration in durations {
            histogram.record(duration);
        }
    }

    pub(crate) fn get(&self) -> DurationHistogram {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, DurationHistogram> {
        lock(&self.0)
    }
}

/// The counters that the instance's tasks raise.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) loaded: Counter,
    pub(crate) claimed: Counter,
    pub(crate) delivered: Counter,
    pub(crate) redelivered: Counter,
    pub(crate) lost: Counter,
    pub(crate) lapsed: Counter,
    pub(crate) renewed: Counter,
    pub(crate) slow_handlers: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) dead: Counter,
    pub(crate) undecoded: Counter,
    pub(crate) left_to_others: Counter,
    pub(crate) store_errors: Counter,
    pub(crate) write_batches: Batches,
    pub(crate) fire_batches: Batches,
    pub(crate) settle_batches: Batches,
    pub(crate) store_latency: Durations,
    pub(crate) lateness: Durations,
    pub(crate) handler_time: Durations,
}

impl Metrics {
    pub(crate) fn read(
        &self,
        on_wheel: usize,
        due: usize,
        unsettled: usize,
        failing: Failing,
        differs: bool,
    ) -> DurableMetrics {
        DurableMetrics {
            loaded: self.loaded.get(),
            on_wheel,
            due,
            claimed: self.claimed.get(),
            delivered: self.delivered.get(),
            redelivered: self.redelivered.get(),
            lost: self.lost.get(),
            lapsed: self.lapsed.get(),
            renewed: self.renewed.get(),
            slow_handlers: self.slow_handlers.get(),
            timed_out: self.timed_out.get(),
            unsettled,
            dead: self.dead.get(),
            undecoded: self.undecoded.get(),
            left_to_others: self.left_to_others.get(),
            store_errors: self.store_errors.get(),
            failing,
            differs,
            write_batches: self.write_batches.get(),
            fire_batches: self.fire_batches.get(),
            settle_batches: self.settle_batches.get(),
            store_latency: self.store_latency.get(),
            lateness: self.lateness.get(),
            handler_time: self.handler_time.get(),
        }
    }
}

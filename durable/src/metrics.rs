//! The counters of an instance.

use std::fmt;
use std::ops::BitOrAssign;
use std::sync::Mutex;
use std::time::Duration;

use tickwheel::DurationHistogram;

use crate::lock::lock;

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
    /// Timers that died here: those that failed for good, those that do not decode, and those whose
    /// rows are damaged.
    pub dead: u64,
    /// Claims that did not decode here. Their timers were left to other instances, and died if none
    /// could decode them.
    pub undecoded: u64,
    /// Loaded rows that were left to other instances: because these asked for them, the wheel has
    /// no room, or their schedules are unknown here.
    pub left_to_others: u64,
    /// Calls of the store that failed or timed out.
    pub store_errors: u64,
    /// How often the store had returned to an earlier state: a server had taken over that lacked
    /// the last writes, or a file was restored. Each part of a namespace counts.
    pub store_returned: u64,
    /// How often the store had lost its data, and the namespace was opened again. Each part of a
    /// namespace counts.
    pub store_emptied: u64,
    /// Which calls fail now.
    pub failing: Failing,
    /// Whether this instance neither loads, fires nor writes now, because it differs from the
    /// [charter](crate::Charter) of its namespace or the schema of the store.
    pub differs: bool,
    /// How old the oldest snapshot or transaction in the database is, as seen within the last
    /// minute. It keeps the server from cleaning up after timers that are gone. Of
    /// [`Postgres`](crate::Postgres) alone, and as far as the role may see; else zero.
    pub oldest_snapshot: Duration,
    /// How many writes went to the store at once.
    pub write_batches: BatchSizes,
    /// How many rows were fired at once.
    pub fire_batches: BatchSizes,
    /// How many claims were settled at once.
    pub settle_batches: BatchSizes,
    /// How long the store took to respond to each call. A call that timed out counts with the time
    /// until then.
    pub store_latency: DurationHistogram,
    /// How late timers were claimed, by the store's clock. Redeliveries do not count. A dead timer
    /// that was retried counts from its deadline, and so does one that an operator has released.
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
    /// Settles: what is acknowledged is delivered again if this lasts longer than its lease.
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

    pub(crate) fn add(&mut self, items: usize) {
        self.count += 1;
        self.sum += items as u64;
        self.max = self.max.max(items as u64);
    }
}

impl fmt::Display for BatchSizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (mean {}, max {})", self.count, self.mean(), self.max)
    }
}

/// The counters of an instance, which its tasks raise.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<DurableMetrics>);

impl Metrics {
    pub(crate) fn update(&self, change: impl FnOnce(&mut DurableMetrics)) {
        change(&mut lock(&self.0));
    }

    pub(crate) fn read(&self) -> DurableMetrics {
        lock(&self.0).clone()
    }
}

//! Publishes what an instance counts through the `metrics` facade.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};
use tickwheel::DurationHistogram;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::instance::Cores;
use crate::metrics::DurableMetrics;
use crate::timers::DurableTimers;

type Gauge = (&'static str, &'static str, fn(&DurableMetrics) -> usize);
type Counter = (&'static str, &'static str, fn(&DurableMetrics) -> u64);
type Histogram = (
    &'static str,
    &'static str,
    fn(&DurableMetrics) -> &DurationHistogram,
);

/// Rows of a name, a text and what is read.
macro_rules! table {
    ($($name:literal, $text:literal, $read:expr;)*) => {
        [$((concat!("tickwheel_durable_", $name), $text, $read)),*]
    };
}

const GAUGES: [Gauge; 5] = table! {
    "on_wheel", "Timers that the instance has on its wheel.", |m| m.on_wheel;
    "due", "Due timers that wait until the program asks for more.", |m| m.due;
    "unsettled", "Claims that take up capacity.", |m| m.unsettled;
    "differs", "1 while the instance differs from the charter of its namespace and does nothing.", |m| usize::from(m.differs);
    "oldest_snapshot_seconds", "How old the oldest snapshot in the database of PostgreSQL is.", |m| usize::try_from(m.oldest_snapshot.as_secs()).unwrap_or(usize::MAX);
};

const COUNTERS: [Counter; 21] = table! {
    "loaded_total", "Timers that were loaded.", |m| m.loaded;
    "claimed_total", "Timers that the instance has fired and claimed.", |m| m.claimed;
    "delivered_total", "Claims that the program has received.", |m| m.delivered;
    "redelivered_total", "Claims of timers that had been claimed before and not acknowledged.", |m| m.redelivered;
    "lost_total", "Claims that were found to be lost.", |m| m.lost;
    "lapsed_total", "Claims that waited to be received for too long.", |m| m.lapsed;
    "renewed_total", "Renewals of leases.", |m| m.renewed;
    "slow_handlers_total", "Handlers that ran for longer than a lease.", |m| m.slow_handlers;
    "timed_out_total", "Handlers that were cancelled after their time limit.", |m| m.timed_out;
    "dead_total", "Timers that died: they failed for good, do not decode, or are damaged.", |m| m.dead;
    "undecoded_total", "Claims that did not decode.", |m| m.undecoded;
    "left_to_others_total", "Loaded timers that were left to other instances.", |m| m.left_to_others;
    "store_errors_total", "Calls of the store that failed.", |m| m.store_errors;
    "store_returned_total", "Times the store had returned to an earlier state.", |m| m.store_returned;
    "store_emptied_total", "Times the store had lost its data.", |m| m.store_emptied;
    "write_batches_total", "Calls that wrote.", |m| m.write_batches.count;
    "writes_total", "Writes of all these calls.", |m| m.write_batches.sum;
    "fire_batches_total", "Calls that fired.", |m| m.fire_batches.count;
    "fires_total", "Timers of all these calls.", |m| m.fire_batches.sum;
    "settle_batches_total", "Calls that settled claims.", |m| m.settle_batches.count;
    "settles_total", "Claims of all these calls.", |m| m.settle_batches.sum;
};

const HISTOGRAMS: [Histogram; 3] = table! {
    "lateness_seconds", "How late timers were claimed, by the store's clock.", |m| &m.lateness;
    "handler_seconds", "How long handlers ran.", |m| &m.handler_time;
    "store_seconds", "How long calls of the store took.", |m| &m.store_latency;
};

const FAILING: &str = "tickwheel_durable_failing";

/// Publishes what an instance counts through the `metrics` facade, with the feature `metrics`.
///
/// Timers publish nothing themselves: the reporter reads [`DurableTimers::metrics`]. Every metric
/// has the label `namespace`, so a process needs one reporter for each namespace.
///
/// | metric | kind | of [`DurableMetrics`] |
/// |---|---|---|
/// | `tickwheel_durable_on_wheel` | gauge | `on_wheel` |
/// | `tickwheel_durable_due` | gauge | `due` |
/// | `tickwheel_durable_unsettled` | gauge | `unsettled` |
/// | `tickwheel_durable_differs` | gauge, 0 or 1 | `differs` |
/// | `tickwheel_durable_oldest_snapshot_seconds` | gauge, seconds | `oldest_snapshot` |
/// | `tickwheel_durable_failing` | gauge, 0 or 1, with the label `call`: `load`, `fire`, `write`, `settle` | `failing` |
/// | `tickwheel_durable_loaded_total` | counter | `loaded` |
/// | `tickwheel_durable_claimed_total` | counter | `claimed` |
/// | `tickwheel_durable_delivered_total` | counter | `delivered` |
/// | `tickwheel_durable_redelivered_total` | counter | `redelivered` |
/// | `tickwheel_durable_lost_total` | counter | `lost` |
/// | `tickwheel_durable_lapsed_total` | counter | `lapsed` |
/// | `tickwheel_durable_renewed_total` | counter | `renewed` |
/// | `tickwheel_durable_slow_handlers_total` | counter | `slow_handlers` |
/// | `tickwheel_durable_timed_out_total` | counter | `timed_out` |
/// | `tickwheel_durable_dead_total` | counter | `dead` |
/// | `tickwheel_durable_undecoded_total` | counter | `undecoded` |
/// | `tickwheel_durable_left_to_others_total` | counter | `left_to_others` |
/// | `tickwheel_durable_store_errors_total` | counter | `store_errors` |
/// | `tickwheel_durable_store_returned_total` | counter | `store_returned` |
/// | `tickwheel_durable_store_emptied_total` | counter | `store_emptied` |
/// | `tickwheel_durable_write_batches_total`, `_writes_total` | counters | `write_batches` |
/// | `tickwheel_durable_fire_batches_total`, `_fires_total` | counters | `fire_batches` |
/// | `tickwheel_durable_settle_batches_total`, `_settles_total` | counters | `settle_batches` |
/// | `tickwheel_durable_lateness_seconds` | histogram, seconds | `lateness` |
/// | `tickwheel_durable_handler_seconds` | histogram, seconds | `handler_time` |
/// | `tickwheel_durable_store_seconds` | histogram, seconds | `store_latency` |
///
/// A histogram records a duration as the largest that its bucket counts: never too low, and at most
/// an eighth too high. With the Prometheus exporter, `set_buckets_for_metric` makes a histogram of
/// it; without that it is a summary.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::{Memory, Reporter, builder};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let wheel = tickwheel::TimerWheel::new();
/// let (timers, claims) = builder::<String, u32>("orders").start(&wheel, Memory::new()).await?;
/// // The exporter's recorder is installed before this.
/// let reporting = tokio::spawn(Reporter::new(&timers).run(Duration::from_secs(10)));
/// // ... the program ...
/// drop((timers, claims));
/// # reporting.await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a reporter publishes when `report` is called or `run` is awaited"]
pub struct Reporter {
    cores: Weak<Cores>,
    label: Label,
    /// How many durations have been recorded of each bucket of each histogram, by the bucket's end.
    recorded: [HashMap<Duration, u64>; HISTOGRAMS.len()],
}

impl Reporter {
    /// A reporter of the instance of this handle. It publishes nothing yet, and does not keep the
    /// instance running.
    pub fn new<K, V>(timers: &DurableTimers<K, V>) -> Self {
        let cores = &timers.cores;
        Reporter {
            cores: Arc::downgrade(cores),
            label: Label::new("namespace", cores.namespace().as_str().to_owned()),
            recorded: Default::default(),
        }
    }

    /// Publishes at once, then every `period`, until all handles and the claims of the instance are
    /// dropped.
    ///
    /// Without an installed recorder, counters are lost until the next time, and values of
    /// histograms for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the reports. A report is published whole or not at all.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero.
    pub async fn run(mut self, period: Duration) {
        assert!(!period.is_zero(), "`period` must be non-zero");
        with_recorder(describe);
        let mut interval = interval_at(Instant::now(), period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            if !self.report() {
                return;
            }
        }
    }

    /// Publishes once, without descriptions: for a program that has its own interval, and for the
    /// last figures before it ends. Returns `false`, and publishes nothing, if the instance is
    /// gone.
    pub fn report(&mut self) -> bool {
        let Some(cores) = self.cores.upgrade() else {
            return false;
        };
        let metrics = cores.read_metrics();
        drop(cores);
        with_recorder(|recorder| self.publish(recorder, &metrics));
        true
    }

    fn publish(&mut self, recorder: &dyn Recorder, metrics: &DurableMetrics) {
        for (name, _, read) in GAUGES {
            let gauge = recorder.register_gauge(&self.key(name), &METADATA);
            #[expect(clippy::cast_precision_loss, reason = "they are fewer than 2^52")]
            gauge.set(read(metrics) as f64);
        }
        let failing = metrics.failing;
        for (call, is_failing) in [
            ("load", failing.load),
            ("fire", failing.fire),
            ("write", failing.write),
            ("settle", failing.settle),
        ] {
            let labels = vec![self.label.clone(), Label::from_static_parts("call", call)];
            let key = Key::from_parts(FAILING, labels);
            let gauge = recorder.register_gauge(&key, &METADATA);
            gauge.set(f64::from(u8::from(is_failing)));
        }
        for (name, _, read) in COUNTERS {
            let counter = recorder.register_counter(&self.key(name), &METADATA);
            counter.absolute(read(metrics));
        }
        for (number, (name, _, read)) in HISTOGRAMS.into_iter().enumerate() {
            let (durations, key) = (read(metrics), self.key(name));
            let histogram = recorder.register_histogram(&key, &METADATA);
            for bucket in durations.buckets() {
                let end = *bucket.bounds.end();
                let recorded = self.recorded[number].insert(end, bucket.count);
                let new = bucket.count - recorded.unwrap_or(0);
                let new = usize::try_from(new).unwrap_or(usize::MAX);
                histogram.record_many(end.min(durations.max()), new);
            }
        }
    }

    fn key(&self, name: &'static str) -> Key {
        Key::from_parts(name, vec![self.label.clone()])
    }
}

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), Level::INFO, Some(module_path!()));

/// Tells the recorder the units and meanings.
fn describe(recorder: &dyn Recorder) {
    for (name, description, _) in GAUGES {
        let unit = if name.ends_with("_seconds") {
            Unit::Seconds
        } else {
            Unit::Count
        };
        recorder.describe_gauge(KeyName::from(name), Some(unit), description.into());
    }
    let failing = "Whether the latest call of a kind has failed.";
    recorder.describe_gauge(KeyName::from(FAILING), None, failing.into());
    for (name, description, _) in COUNTERS {
        recorder.describe_counter(KeyName::from(name), Some(Unit::Count), description.into());
    }
    for (name, description, _) in HISTOGRAMS {
        recorder.describe_histogram(KeyName::from(name), Some(Unit::Seconds), description.into());
    }
}

opaque!(Reporter, |reporter| label: reporter.label);

#[cfg(test)]
mod tests;

//! A reporter that publishes what a wheel has counted through the [`metrics`] facade, at an
//! interval.
//!
//! Making and firing a timer publishes nothing: the reporter reads [`TimerWheel::metrics`]. Every
//! metric has the label `wheel`, with the [name](tickwheel::Builder::name) of the wheel, so wheels
//! of one process need different names.
//!
//! | metric | kind | unit | of [`WheelMetrics`] |
//! |---|---|---|---|
//! | `tickwheel_sleeps_pending` | gauge | | `sleeps_pending` |
//! | `tickwheel_keyed_pending` | gauge | | `keyed_pending` |
//! | `tickwheel_longest_turn_seconds` | gauge | seconds | `longest_turn` |
//! | `tickwheel_sleeps_made_total` | counter | | `sleeps_made` |
//! | `tickwheel_sleeps_fired_total` | counter | | `sleeps_fired` |
//! | `tickwheel_sleeps_cancelled_total` | counter | | `sleeps_cancelled` |
//! | `tickwheel_sleeps_handed_over_total` | counter | | `sleeps_handed_over` |
//! | `tickwheel_sleeps_moved_total` | counter | | `sleeps_moved` |
//! | `tickwheel_keyed_set_total` | counter | | `keyed_set` |
//! | `tickwheel_keyed_fired_total` | counter | | `keyed_fired` |
//! | `tickwheel_keyed_removed_total` | counter | | `keyed_removed` |
//! | `tickwheel_keyed_replaced_total` | counter | | `keyed_replaced` |
//! | `tickwheel_keyed_drained_total` | counter | | `keyed_drained` |
//! | `tickwheel_keyed_moved_total` | counter | | `keyed_moved` |
//! | `tickwheel_rescheduled_total` | counter | | `rescheduled` |
//! | `tickwheel_commands_total` | counter | | `commands` |
//! | `tickwheel_turns_total` | counter | | `turns` |
//! | `tickwheel_wake_ups_total` | counter | | `wake_ups` |
//! | `tickwheel_lateness_seconds` | histogram | seconds | `lateness` |
//!
//! The histogram records a timer with the largest lateness that its bucket counts: never too low,
//! and at most an eighth too high. The exporter chooses its own buckets. With the Prometheus
//! exporter, `set_buckets_for_metric` makes a histogram of it; without that it is a summary.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use tickwheel::TimerWheel;
//! use tickwheel_adapters::metrics::Reporter;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tickwheel::BuildError> {
//! // The exporter's recorder is installed before this.
//! let wheel = TimerWheel::builder().name("requests").start()?;
//! let reporting = tokio::spawn(Reporter::new(&wheel).run(Duration::from_secs(10)));
//! // ... the program ...
//! wheel.shutdown().await;
//! # reporting.await.unwrap();
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::future::Future;
use std::time::Duration;

use ::metrics::{Key, KeyName, Label, Level, Metadata, Recorder, Unit, with_recorder};
use tickwheel::{DurationHistogram, TimerWheel, WeakTimerWheel, WheelMetrics};
use tokio::time::timeout;

type Gauge = (&'static str, Unit, &'static str, fn(&WheelMetrics) -> f64);
type Counter = (&'static str, &'static str, fn(&WheelMetrics) -> u64);

#[allow(clippy::cast_precision_loss)] // more than 2^52 timers are not pending
const GAUGES: [Gauge; 3] = [
    (
        "tickwheel_sleeps_pending",
        Unit::Count,
        "Sleeps that have not fired yet, those of timeouts and intervals included.",
        |m| m.sleeps_pending as f64,
    ),
    (
        "tickwheel_keyed_pending",
        Unit::Count,
        "Keyed timers and watched connections that are pending.",
        |m| m.keyed_pending as f64,
    ),
    (
        "tickwheel_longest_turn_seconds",
        Unit::Seconds,
        "The longest turn of the wheel's actor since it started.",
        |m| m.longest_turn.as_secs_f64(),
    ),
];

const COUNTERS: [Counter; 15] = [
    (
        "tickwheel_sleeps_made_total",
        "Sleeps that were made.",
        |m| m.sleeps_made,
    ),
    (
        "tickwheel_sleeps_fired_total",
        "Sleeps that reached their deadline.",
        |m| m.sleeps_fired,
    ),
    (
        "tickwheel_sleeps_cancelled_total",
        "Sleeps that were dropped before their deadline.",
        |m| m.sleeps_cancelled,
    ),
    (
        "tickwheel_sleeps_handed_over_total",
        "Sleeps that went on with Tokio's timer, because the wheel had shut down or the clock is virtual.",
        |m| m.sleeps_handed_over,
    ),
    (
        "tickwheel_sleeps_moved_total",
        "Resets of pending sleeps.",
        |m| m.sleeps_moved,
    ),
    (
        "tickwheel_keyed_set_total",
        "Keyed timers that were set.",
        |m| m.keyed_set,
    ),
    (
        "tickwheel_keyed_fired_total",
        "Keyed timers that fired.",
        |m| m.keyed_fired,
    ),
    (
        "tickwheel_keyed_removed_total",
        "Keyed timers that were removed.",
        |m| m.keyed_removed,
    ),
    (
        "tickwheel_keyed_replaced_total",
        "Keyed timers that were replaced because their key was set again.",
        |m| m.keyed_replaced,
    ),
    (
        "tickwheel_keyed_drained_total",
        "Keyed timers that were drained, returned as unexpired, or dropped with their set.",
        |m| m.keyed_drained,
    ),
    (
        "tickwheel_keyed_moved_total",
        "Calls that moved a keyed timer.",
        |m| m.keyed_moved,
    ),
    (
        "tickwheel_rescheduled_total",
        "Timers that the actor reached, found due later, and put on the wheel again.",
        |m| m.rescheduled,
    ),
    (
        "tickwheel_commands_total",
        "Commands that the actor has applied.",
        |m| m.commands,
    ),
    ("tickwheel_turns_total", "Turns the actor has taken.", |m| {
        m.turns
    }),
    (
        "tickwheel_wake_ups_total",
        "How often the actor began to wait.",
        |m| m.wake_ups,
    ),
];

const LATENESS: &str = "tickwheel_lateness_seconds";

/// Publishes what one wheel has counted, see the [module](self).
///
/// It keeps no wheel alive: the wheel ends with its last handle elsewhere.
#[derive(Debug)]
#[must_use = "a reporter publishes when `report` is called or `run` is awaited"]
pub struct Reporter {
    wheel: WeakTimerWheel,
    label: Label,
    /// How many timers have been recorded of each bucket of lateness, by the bucket's end.
    recorded: HashMap<Duration, u64>,
}

impl Reporter {
    /// A reporter of `wheel`. It publishes nothing yet.
    pub fn new(wheel: &TimerWheel) -> Self {
        Reporter {
            wheel: wheel.downgrade(),
            label: Label::new("wheel", wheel.name().to_owned()),
            recorded: HashMap::new(),
        }
    }

    /// Publishes at once, then every `period`, and a last time when the wheel has
    /// [ended](WeakTimerWheel::closed). Then it completes.
    ///
    /// It waits on Tokio's timer, so that it keeps no wheel running. With a period too long to be
    /// represented it publishes the first and the last time only. Without an installed recorder,
    /// counters are lost until the next time, and histogram values for good.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the reports. A report is published whole or not at all.
    ///
    /// # Panics
    ///
    /// Panics if `period` is zero, when it is called. The future panics in a runtime without a time
    /// driver.
    #[track_caller]
    pub fn run(mut self, period: Duration) -> impl Future<Output = ()> + Send + 'static {
        assert!(!period.is_zero(), "`period` must be non-zero");
        async move {
            with_recorder(describe);
            loop {
                self.report();
                if timeout(period, self.wheel.closed()).await.is_ok() {
                    return self.report();
                }
            }
        }
    }

    /// Publishes once, without descriptions: for a program that has its own interval, or a recorder
    /// for each thread.
    pub fn report(&mut self) {
        let metrics = self.wheel.metrics();
        with_recorder(|recorder| {
            for (name, _, _, read) in GAUGES {
                let gauge = recorder.register_gauge(&self.key(name), &METADATA);
                gauge.set(read(&metrics));
            }
            for (name, _, read) in COUNTERS {
                let counter = recorder.register_counter(&self.key(name), &METADATA);
                counter.absolute(read(&metrics));
            }
            self.record(recorder, &metrics.lateness);
        });
    }

    /// Records the timers that have fired since the last time.
    fn record(&mut self, recorder: &dyn Recorder, lateness: &DurationHistogram) {
        let histogram = recorder.register_histogram(&self.key(LATENESS), &METADATA);
        for bucket in lateness.buckets() {
            let end = *bucket.bounds.end();
            let recorded = self.recorded.insert(end, bucket.count).unwrap_or(0);
            let new = usize::try_from(bucket.count - recorded).unwrap_or(usize::MAX);
            histogram.record_many(end.min(lateness.max()), new);
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
    for (name, unit, description, _) in GAUGES {
        recorder.describe_gauge(KeyName::from(name), Some(unit), description.into());
    }
    for (name, description, _) in COUNTERS {
        recorder.describe_counter(KeyName::from(name), Some(Unit::Count), description.into());
    }
    recorder.describe_histogram(
        KeyName::from(LATENESS),
        Some(Unit::Seconds),
        "How late timers fired.".into(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A snapshot in which no two counts are the same.
    fn distinct() -> WheelMetrics {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().expect("a runtime");
        let wheel = TimerWheel::builder().runtime(runtime.handle().clone());
        let mut metrics = wheel.start().expect("a wheel").metrics();
        let WheelMetrics {
            sleeps_pending,
            sleeps_made,
            sleeps_fired,
            sleeps_cancelled,
            sleeps_handed_over,
            sleeps_moved,
            keyed_pending,
            keyed_set,
            keyed_fired,
            keyed_removed,
            keyed_replaced,
            keyed_drained,
            keyed_moved,
            rescheduled,
            commands,
            turns,
            wake_ups,
            longest_turn,
            ..
        } = &mut metrics;
        let counts = [
            sleeps_pending,
            sleeps_made,
            sleeps_fired,
            sleeps_cancelled,
            sleeps_handed_over,
            sleeps_moved,
            keyed_pending,
            keyed_set,
            keyed_fired,
            keyed_removed,
            keyed_replaced,
            keyed_drained,
            keyed_moved,
            rescheduled,
            commands,
            turns,
            wake_ups,
        ];
        for (count, value) in counts.into_iter().zip(101..) {
            *count = value;
        }
        *longest_turn = Duration::from_secs(99);
        metrics
    }

    // Each metric is named after the field that it shows. Four of the counters could read another
    // one unnoticed.
    #[test]
    fn each_metric_shows_the_field_in_its_name() {
        let metrics = distinct();
        let fields = format!("{metrics:?}");
        let (counts, _lateness) = fields.split_once(" lateness: ").expect("it is the last");
        let published = COUNTERS.len() + GAUGES.len();
        assert_eq!(counts.matches(": ").count(), published, "{counts}");
        let counters = COUNTERS.map(|(name, _, read)| (name, "_total", read(&metrics)));
        let [sleeps, keyed, longest_turn] = GAUGES.map(|(name, _, _, read)| (name, read(&metrics)));
        for (name, suffix, value) in counters {
            let field = name.strip_prefix("tickwheel_");
            let field = field.and_then(|name| name.strip_suffix(suffix));
            let field = field.expect("all are named like this");
            let shown = format!(" {field}: {value},");
            assert!(fields.contains(&shown), "{name}: no {shown} in {fields}");
        }
        assert_eq!(sleeps, ("tickwheel_sleeps_pending", 101.0));
        assert_eq!(keyed, ("tickwheel_keyed_pending", 107.0));
        assert_eq!(longest_turn, ("tickwheel_longest_turn_seconds", 99.0));
    }
}

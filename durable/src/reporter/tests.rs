use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ::metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, SharedString, with_local_recorder,
};
use tickwheel::TimerWheel;

use super::*;
use crate::{Claims, Failing, Memory, builder};

/// The latest values of gauges and counters, and all of histograms, by name and labels.
#[derive(Debug, Default)]
struct Seen(Arc<Mutex<BTreeMap<String, Vec<f64>>>>, Units);

/// The units that metrics were described with.
type Units = Mutex<BTreeMap<String, Option<Unit>>>;

/// The cell that one metric is published to.
struct Slot {
    name: String,
    all: Arc<Mutex<BTreeMap<String, Vec<f64>>>>,
}

impl Slot {
    fn change(&self, change: impl FnOnce(&mut Vec<f64>)) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        change(all.entry(self.name.clone()).or_default());
    }
}

impl CounterFn for Slot {
    fn increment(&self, _: u64) {
        panic!("counters are absolute");
    }
    fn absolute(&self, value: u64) {
        let value = u32::try_from(value).expect("it is small");
        self.change(|values| *values = vec![value.into()]);
    }
}

impl GaugeFn for Slot {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }
    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }
    fn set(&self, value: f64) {
        self.change(|values| *values = vec![value]);
    }
}

impl HistogramFn for Slot {
    fn record(&self, value: f64) {
        self.change(|values| values.push(value));
    }
}

impl Seen {
    fn slot(&self, key: &Key) -> Arc<Slot> {
        let labels = key
            .labels()
            .map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        let all = Arc::clone(&self.0);
        let slot = Slot { name, all };
        // Known, even if nothing is published.
        slot.change(|_| {});
        Arc::new(slot)
    }

    fn values(&self, name: &str) -> Vec<f64> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&format!("tickwheel_durable_{name}"));
        found
            .unwrap_or_else(|| panic!("no {name} in {all:?}"))
            .clone()
    }

    fn describe(&self, name: &KeyName, unit: Option<Unit>) {
        let mut units = self.1.lock().unwrap_or_else(PoisonError::into_inner);
        units.insert(name.as_str().to_owned(), unit);
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, _: SharedString) {
        self.describe(&name, unit);
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.slot(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.slot(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.slot(key))
    }
}

/// Handles one timer, for 20 ms.
async fn handle_one(claims: &mut Claims<String, u32>) {
    let handling = claims.dispatch(1, |_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Ok(())
    });
    // Nothing else comes.
    let _ = tokio::time::timeout(Duration::from_secs(5), handling).await;
}

#[tokio::test(start_paused = true)]
async fn reporter_publishes_what_an_instance_counts() {
    let wheel = TimerWheel::new();
    let starting = builder::<String, u32>("orders").start(&wheel, Memory::new());
    let (timers, mut claims) = starting.await.expect("it starts");
    let (mut reporter, seen) = (Reporter::new(&timers), Seen::default());
    for round in [1.0, 2.0] {
        let set = timers.set_timer("a", &1, Duration::from_secs(1));
        set.await.expect("it is set");
        handle_one(&mut claims).await;
        assert!(with_local_recorder(&seen, || reporter.report()));
        assert_eq!(seen.values("delivered_total namespace=orders"), [round]);
        assert_eq!(seen.values("writes_total namespace=orders"), [round]);
        assert_eq!(seen.values("unsettled namespace=orders"), [0.0]);
        let failing = "failing namespace=orders call=write";
        assert_eq!(seen.values(failing), [0.0]);
    }
    // Each duration is recorded once.
    let handled = seen.values("handler_seconds namespace=orders");
    assert_eq!(handled.len(), 2, "{handled:?}");
    assert!(
        handled.iter().all(|time| (0.020..0.0235).contains(time)),
        "{handled:?}"
    );
    assert_eq!(seen.values("lateness_seconds namespace=orders").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn reporter_ends_with_its_instance() {
    let wheel = TimerWheel::new();
    let starting = builder::<String, u32>("orders").start(&wheel, Memory::new());
    let (timers, claims) = starting.await.expect("it starts");
    let reporting = tokio::spawn(Reporter::new(&timers).run(Duration::from_secs(1)));
    tokio::time::sleep(Duration::from_secs(10)).await;
    drop(claims);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(!reporting.is_finished(), "a handle is left");
    drop(timers);
    let ended = tokio::time::timeout(Duration::from_secs(10), reporting).await;
    ended.expect("it ends").expect("it does not panic");
}

/// `run` describes each metric that it publishes, and those named after seconds count seconds.
#[tokio::test(start_paused = true)]
async fn each_metric_is_described_with_its_unit() {
    let wheel = TimerWheel::new();
    let starting = builder::<String, u32>("orders").start(&wheel, Memory::new());
    let (timers, claims) = starting.await.expect("it starts");
    let reporter = Reporter::new(&timers);
    drop((timers, claims));
    let seen = Seen::default();
    let mut run = Box::pin(reporter.run(Duration::from_secs(1)));
    std::future::poll_fn(|cx| with_local_recorder(&seen, || run.as_mut().poll(cx))).await;
    drop(run);
    let published = published(&DurableMetrics::default());
    let names = published.0.lock().unwrap_or_else(PoisonError::into_inner);
    let units = seen.1.lock().unwrap_or_else(PoisonError::into_inner);
    for name in names.keys().filter_map(|name| name.split(' ').next()) {
        let unit = units.get(name).unwrap_or_else(|| panic!("no {name}"));
        let expected = match name {
            FAILING => None,
            name if name.ends_with("_seconds") => Some(Unit::Seconds),
            _ => Some(Unit::Count),
        };
        assert_eq!(*unit, expected, "{name}");
    }
}

// Each metric is named after the field that it shows.
#[test]
fn each_counter_shows_the_field_in_its_name() {
    let mut metrics = DurableMetrics::default();
    let DurableMetrics {
        loaded,
        claimed,
        delivered,
        redelivered,
        lost,
        lapsed,
        renewed,
        slow_handlers,
        timed_out,
        dead,
        undecoded,
        left_to_others,
        store_errors,
        store_returned,
        store_emptied,
        // Published under other names.
        on_wheel: _,
        due: _,
        unsettled: _,
        failing: _,
        differs: _,
        oldest_snapshot: _,
        write_batches: _,
        fire_batches: _,
        settle_batches: _,
        store_latency: _,
        lateness: _,
        handler_time: _,
    } = &mut metrics;
    let counts = [
        loaded,
        claimed,
        delivered,
        redelivered,
        lost,
        lapsed,
        renewed,
        slow_handlers,
        timed_out,
        dead,
        undecoded,
        left_to_others,
        store_errors,
        store_returned,
        store_emptied,
    ];
    let named = counts.len();
    for (count, value) in counts.into_iter().zip(101..) {
        *count = value;
    }
    let fields = format!("{metrics:?}");
    for (name, _, read) in &COUNTERS[..named] {
        let field = name
            .strip_prefix("tickwheel_durable_")
            .expect("all are named like this");
        let field = field
            .strip_suffix("_total")
            .expect("all are named like this");
        let shown = format!(" {field}: {},", read(&metrics));
        assert!(fields.contains(&shown), "{name}: no {shown} in {fields}");
    }
}

/// What a reporter publishes of these metrics.
fn published(metrics: &DurableMetrics) -> Seen {
    let mut reporter = Reporter {
        cores: Weak::new(),
        label: Label::new("namespace", "orders"),
        recorded: Default::default(),
    };
    let seen = Seen::default();
    reporter.publish(&seen, metrics);
    seen
}

/// The compiler does not notice when two figures of one type are exchanged.
#[test]
fn each_figure_is_published_under_its_own_name() {
    let mut counted = DurableMetrics {
        on_wheel: 11,
        due: 12,
        unsettled: 13,
        differs: true,
        oldest_snapshot: Duration::from_secs(90),
        ..DurableMetrics::default()
    };
    for (batches, count, items) in [
        (&mut counted.write_batches, 3, 10),
        (&mut counted.fire_batches, 5, 100),
        (&mut counted.settle_batches, 7, 1_000),
    ] {
        (0..count).for_each(|_| batches.add(items));
    }
    let second = Duration::from_secs(1);
    for (histogram, seconds, times) in [
        (&mut counted.store_latency, second, 1),
        (&mut counted.handler_time, second * 60, 2),
        (&mut counted.lateness, second * 3_600, 3),
    ] {
        (0..times).for_each(|_| histogram.record(seconds));
    }
    let seen = published(&counted);
    for (name, figure) in [
        ("on_wheel", 11.0),
        ("due", 12.0),
        ("unsettled", 13.0),
        ("differs", 1.0),
        ("oldest_snapshot_seconds", 90.0),
        ("write_batches_total", 3.0),
        ("writes_total", 30.0),
        ("fire_batches_total", 5.0),
        ("fires_total", 500.0),
        ("settle_batches_total", 7.0),
        ("settles_total", 7_000.0),
    ] {
        let values = seen.values(&format!("{name} namespace=orders"));
        assert_eq!(values, [figure], "{name}");
    }
    for (name, seconds, times) in [
        ("store_seconds", 1.0, 1),
        ("handler_seconds", 60.0, 2),
        ("lateness_seconds", 3_600.0, 3),
    ] {
        // The largest is exact.
        let values = seen.values(&format!("{name} namespace=orders"));
        assert_eq!(values, vec![seconds; times], "{name}");
    }
}

#[test]
fn failing_shows_the_call_that_fails() {
    for failing in ["load", "fire", "write", "settle"] {
        let seen = published(&DurableMetrics {
            failing: Failing {
                load: failing == "load",
                fire: failing == "fire",
                write: failing == "write",
                settle: failing == "settle",
            },
            ..DurableMetrics::default()
        });
        for call in ["load", "fire", "write", "settle"] {
            let values = seen.values(&format!("failing namespace=orders call={call}"));
            let expected = f64::from(u8::from(call == failing));
            assert_eq!(values, [expected], "{call} while {failing} fails");
        }
    }
}

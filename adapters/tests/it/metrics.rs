//! The reporter, through the exporter for Prometheus.

use std::collections::HashSet;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusRecorder};
use tickwheel::TimerWheel;
use tickwheel_adapters::metrics::Reporter;
use tokio::time;

/// A recorder that makes a histogram of the lateness.
fn recorder() -> PrometheusRecorder {
    let lateness = Matcher::Full("tickwheel_lateness_seconds".to_owned());
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(lateness, &[0.001, 0.01, 1.0]);
    builder.expect("there are buckets").build_recorder()
}

fn wheel() -> TimerWheel {
    let builder = TimerWheel::builder().sleeps_on_wheel().name("requests");
    builder.start().expect("within a runtime")
}

/// The value of a metric of the wheel on a page for Prometheus; `labels` are those after the
/// wheel's.
fn value(page: &str, name: &str, labels: &str) -> Option<f64> {
    let start = format!("{name}{{wheel=\"requests\"{labels}}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&start));
    line?.parse().ok()
}

#[tokio::test(start_paused = true)]
async fn publishes_what_the_wheel_has_counted() {
    let recorder = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let wheel = wheel();
    let (timers, _expirations) = wheel.keyed::<u32, ()>();
    for key in 0..7 {
        timers
            .set_timer(key, (), Duration::from_secs(3600))
            .unwrap();
    }
    timers.remove_timer(&0).unwrap();
    wheel.sleep(Duration::from_millis(3)).await;
    drop(wheel.sleep(Duration::from_secs(1)));

    Reporter::new(&wheel).report();
    let page = recorder.handle().render();
    for (name, expected) in [
        ("tickwheel_sleeps_made_total", 2.0),
        ("tickwheel_sleeps_fired_total", 1.0),
        ("tickwheel_sleeps_cancelled_total", 1.0),
        ("tickwheel_sleeps_pending", 0.0),
        ("tickwheel_keyed_set_total", 7.0),
        ("tickwheel_keyed_removed_total", 1.0),
        ("tickwheel_keyed_pending", 6.0),
        ("tickwheel_lateness_seconds_count", 1.0),
        ("tickwheel_lateness_seconds_sum", 0.0),
    ] {
        assert_eq!(value(&page, name, ""), Some(expected), "{name}\n{page}");
    }
    let bucket = "tickwheel_lateness_seconds_bucket";
    assert_eq!(value(&page, bucket, ",le=\"0.001\""), Some(1.0), "{page}");
}

#[tokio::test(start_paused = true)]
async fn records_how_late_each_timer_fired_once() {
    let recorder = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let wheel = wheel();
    let mut reporter = Reporter::new(&wheel);
    for late in [0, 5, 500] {
        let (timers, mut expirations) = wheel.keyed::<u32, ()>();
        timers.set_timer(1, (), Duration::from_millis(10)).unwrap();
        // The clock passes the deadline before the actor can run.
        time::advance(Duration::from_millis(10 + late)).await;
        wheel.settle().await;
        expirations.try_recv().expect("it is due");
        reporter.report();
        reporter.report();
    }
    let page = recorder.handle().render();
    let bucket = |le: &str| {
        let labels = format!(",le=\"{le}\"");
        value(&page, "tickwheel_lateness_seconds_bucket", &labels)
    };
    let seen = ["0.001", "0.01", "1", "+Inf"].map(bucket);
    assert_eq!(seen, [1.0, 2.0, 3.0, 3.0].map(Some), "{page}");
    let sum = value(&page, "tickwheel_lateness_seconds_sum", "").unwrap();
    // The latest one is exact, the other at most an eighth too high.
    assert!((0.505..0.506).contains(&sum), "{sum}");
}

#[tokio::test(start_paused = true)]
async fn publishes_at_once_then_periodically_and_at_the_end() {
    let recorder = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let wheel = wheel();
    let reporting = tokio::spawn(Reporter::new(&wheel).run(Duration::from_secs(10)));
    let cancelled = || {
        let page = recorder.handle().render();
        value(&page, "tickwheel_sleeps_cancelled_total", "")
    };
    time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cancelled(), Some(0.0));
    drop(wheel.sleep(Duration::from_secs(1)));
    time::sleep(Duration::from_secs(8)).await;
    assert_eq!(cancelled(), Some(0.0), "not yet");
    time::sleep(Duration::from_secs(2)).await;
    assert_eq!(cancelled(), Some(1.0));
    drop(wheel.sleep(Duration::from_secs(1)));
    wheel.shutdown().await;
    reporting.await.expect("it completes");
    assert_eq!(cancelled(), Some(2.0));
}

// A wheel ran for as long as its reporter.
#[tokio::test(start_paused = true)]
async fn reporter_ends_with_the_last_handle_of_its_wheel() {
    let recorder = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let wheel = wheel();
    let reporting = tokio::spawn(Reporter::new(&wheel).run(Duration::from_secs(10)));
    time::sleep(Duration::from_secs(1)).await;
    drop(wheel.sleep(Duration::from_secs(1)));
    drop(wheel);
    reporting.await.expect("it completes");
    let page = recorder.handle().render();
    assert_eq!(
        value(&page, "tickwheel_sleeps_cancelled_total", ""),
        Some(1.0)
    );
}

#[tokio::test(start_paused = true)]
async fn documents_each_metric_it_publishes() {
    let recorder = recorder();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let wheel = wheel();
    let reporting = tokio::spawn(Reporter::new(&wheel).run(Duration::MAX));
    wheel.sleep(Duration::from_millis(1)).await;
    wheel.shutdown().await;
    reporting.await.expect("it completes");

    let page = recorder.handle().render();
    let published = |comment: &'static str| {
        let lines = page
            .lines()
            .filter_map(move |line| line.strip_prefix(comment));
        lines.map(|line| line.split_once(' ').expect("a name and more"))
    };
    let described: HashSet<&str> = published("# HELP ").map(|(name, _)| name).collect();
    let mut kinds: Vec<(&str, &str)> = published("# TYPE ").collect();
    kinds.sort_unstable();

    let module = include_str!("../../src/metrics.rs");
    let rows = module
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `"));
    let mut table: Vec<(&str, &str)> = rows
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            Some((name, rest.split_once(" |")?.0))
        })
        .collect();
    table.sort_unstable();
    assert_eq!(kinds, table);
    assert_eq!(described, table.iter().map(|(name, _)| *name).collect());
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "`period` must be non-zero")]
async fn refuses_a_period_of_zero_when_called() {
    drop(Reporter::new(&wheel()).run(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn does_nothing_without_a_recorder() {
    let wheel = wheel();
    let mut reporter = Reporter::new(&wheel);
    reporter.report();
    assert_eq!(wheel.metrics().sleeps_made, 0);
}

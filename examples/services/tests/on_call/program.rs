//! A program with a wheel and durable timers, under a paused clock, and its metrics.

use std::time::Duration;

use metrics::with_local_recorder;
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tickwheel::TimerWheel;
use tickwheel_adapters::metrics::Reporter as WheelReporter;
use tickwheel_durable::{Claims, DurableTimers, Reporter, Retry, Store, builder};
pub(crate) use tickwheel_durable_conformance::Faulty;
use tokio::sync::watch;
use tokio::time::{advance, sleep};

use crate::promtool::Scrapes;

pub(crate) const NAMESPACE: &str = "orders";

/// How often the program is scraped.
pub(crate) const INTERVAL: Duration = Duration::from_secs(15);

/// Rounds of scraping: while all is well, with the cause of an alert, and after that.
pub(crate) const HEALTHY: usize = 40;
pub(crate) const FIRED: usize = 100;
pub(crate) const RECOVERED: usize = 140;
pub(crate) const ROUNDS: usize = HEALTHY + FIRED + RECOVERED;

const LEASE: Duration = Duration::from_secs(30);

/// One of the handlers hangs that often.
const HANGING: u32 = 20;

/// What handlers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Quick,
    /// They take three leases.
    Slow,
    Fails,
    SometimesHangs,
}

/// How the program takes its timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    Dispatch,
    /// Each on a task that does not renew the lease.
    Receive,
}

pub(crate) fn scrape_rounds(time: Duration) -> usize {
    usize::try_from(time.as_secs() / INTERVAL.as_secs()).expect("they are few")
}

pub(crate) struct Program {
    pub(crate) wheel: TimerWheel,
    pub(crate) timers: DurableTimers<String, u32>,
    pub(crate) scrapes: Scrapes,
    recorder: PrometheusRecorder,
    page: PrometheusHandle,
    reporters: (WheelReporter, Reporter),
}

impl Program {
    /// A timer of its wheel fires each second, and it sets a durable one each five seconds.
    pub(crate) async fn start(
        store: impl Into<Box<dyn Store>>,
        consumer: Consumer,
        mode: watch::Receiver<Mode>,
    ) -> Self {
        let builder = TimerWheel::builder().name("requests");
        let wheel = builder.start().expect("there is a runtime");
        let builder = builder_of_orders();
        let (timers, claims) = builder.start(&wheel, store).await.expect("it starts");
        tokio::spawn(consume(claims, consumer, mode));
        tokio::spawn(set_timers(timers.clone()));
        tokio::spawn(beat(wheel.clone()));
        let recorder = recorder();
        Program {
            page: recorder.handle(),
            reporters: (WheelReporter::new(&wheel), Reporter::new(&timers)),
            scrapes: Scrapes::default(),
            wheel,
            timers,
            recorder,
        }
    }

    pub(crate) async fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            sleep(INTERVAL).await;
            self.scrape();
        }
    }

    /// The clock steps over each round at once.
    pub(crate) async fn run_in_jumps(&mut self, rounds: usize) {
        for _ in 0..rounds {
            advance(INTERVAL).await;
            // What came due meanwhile fires.
            sleep(Duration::from_millis(10)).await;
            self.scrape();
        }
    }

    fn scrape(&mut self) {
        let (wheel, durable) = &mut self.reporters;
        with_local_recorder(&self.recorder, || {
            wheel.report();
            durable.report();
        });
        self.scrapes.add(&self.page.render());
    }
}

fn builder_of_orders() -> tickwheel_durable::Builder<String, u32> {
    builder(NAMESPACE)
        .lease(LEASE)
        .handler_timeout(4 * LEASE)
        .call_timeout(Duration::from_secs(5))
}

/// With the buckets that the page for those on call recommends.
fn recorder() -> PrometheusRecorder {
    let buckets = [
        0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
    ];
    let durations = Matcher::Suffix("_seconds".to_owned());
    let builder = PrometheusBuilder::new().set_buckets_for_metric(durations, &buckets);
    builder.expect("there are buckets").build_recorder()
}

/// Not by sleeps, which use Tokio's timer while the clock is paused.
async fn beat(wheel: TimerWheel) {
    let (timers, mut beats) = wheel.keyed();
    let set = timers.set_interval("beat", (), Duration::from_secs(1));
    set.expect("the wheel runs");
    while beats.recv().await.is_some() {}
}

async fn set_timers(timers: DurableTimers<String, u32>) {
    for number in 0_u32.. {
        // While the store is unreachable that fails.
        let key = format!("order {number}");
        let _ = timers
            .set_timer(&key, &number, Duration::from_secs(10))
            .await;
        sleep(Duration::from_secs(5)).await;
    }
}

async fn consume(mut claims: Claims<String, u32>, consumer: Consumer, mode: watch::Receiver<Mode>) {
    if consumer == Consumer::Dispatch {
        let handler = |claim: tickwheel_durable::Claim<String, u32>| {
            let mode = *mode.borrow();
            async move {
                match mode {
                    Mode::Slow => sleep(3 * LEASE).await,
                    Mode::Fails => return Err(Retry::never("no such customer")),
                    Mode::SometimesHangs if claim.value % HANGING == 0 && claim.attempt == 1 => {
                        sleep(Duration::from_secs(86_400)).await;
                    }
                    Mode::Quick | Mode::SometimesHangs => {}
                }
                Ok(())
            }
        };
        return claims.dispatch(8, handler).await;
    }
    while let Some(claim) = claims.recv().await {
        let mode = *mode.borrow();
        tokio::spawn(async move {
            if mode == Mode::Slow && claim.attempt == 1 {
                sleep(3 * LEASE).await;
            }
            // A claim that was held for longer than its lease is lost.
            let _ = claim.ack().await;
        });
    }
}

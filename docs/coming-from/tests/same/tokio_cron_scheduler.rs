//! `tokio-cron-scheduler` against durable timers. Its clock is the real one.

use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_coming_from::tokio_cron_scheduler::{after, before};
use tickwheel_durable::Memory;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::support::ms;

/// Waits for three reports and the welcome. Returns how often the welcome came.
async fn three_reports(ran: &mut UnboundedReceiver<&'static str>) -> usize {
    let (mut reports, mut welcomes) = (0, 0);
    while reports < 3 || welcomes < 1 {
        match tokio::time::timeout(ms(60_000), ran.recv()).await {
            Ok(Some("report")) => reports += 1,
            Ok(Some("welcome")) => welcomes += 1,
            other => panic!("{other:?} after {reports} reports and {welcomes} welcomes"),
        }
    }
    welcomes
}

/// Nothing runs in a second and a half, once what has begun is done.
async fn is_silent(ran: &mut UnboundedReceiver<&'static str>) -> bool {
    tokio::time::sleep(ms(1000)).await;
    while ran.try_recv().is_ok() {}
    tokio::time::timeout(ms(1500), ran.recv()).await.is_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_repeat_one_job_and_run_the_other_once() {
    let (ran, mut before_ran) = mpsc::unbounded_channel();
    let mut before = before::start(ran).await.expect("it starts");
    let wheel = TimerWheel::new();
    let (ran, mut after_ran) = mpsc::unbounded_channel();
    let after = after::start(&wheel, Memory::new().into(), ran)
        .await
        .expect("it starts");

    assert_eq!(three_reports(&mut before_ran).await, 1);
    assert_eq!(three_reports(&mut after_ran).await, 1);

    before.shutdown().await.expect("it runs");
    let _removed = after.remove_timer("report").await.expect("it is open");
    assert!(is_silent(&mut before_ran).await);
    assert!(is_silent(&mut after_ran).await);
}

#[tokio::test(start_paused = true)]
async fn cadence_holds_under_the_paused_clock() {
    let wheel = TimerWheel::new();
    let (ran, mut reports) = mpsc::unbounded_channel();
    let start = tokio::time::Instant::now();
    let timers = after::start(&wheel, Memory::new().into(), ran)
        .await
        .expect("it starts");
    let mut count = 0;
    while count < 3600 {
        count += usize::from(reports.recv().await == Some("report"));
    }
    let took = start.elapsed();
    assert!(
        took >= Duration::from_hours(1) && took < Duration::from_secs(3602),
        "{took:?}"
    );
    drop(timers);
}

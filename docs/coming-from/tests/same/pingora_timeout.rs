//! `pingora-timeout` against `tickwheel::time`. Its clock is the real one, so outcomes are
//! compared, not instants.

use std::future::pending;
use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use tickwheel_coming_from::pingora_timeout::{after, before};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::support::ms;

/// The answer of a request that is there at once, after a while, or never.
async fn request(after: Option<Duration>) -> u32 {
    match after {
        Some(after) if after.is_zero() => 17,
        Some(after) => {
            tokio::time::sleep(after).await;
            18
        }
        None => pending().await,
    }
}

/// Limits and requests, far enough apart for a busy machine.
fn script() -> Vec<(Duration, Option<Duration>)> {
    let minute = ms(60_000);
    vec![
        (minute, Some(Duration::ZERO)),
        (minute, Some(ms(5))),
        (ms(20), None),
        (ms(1), None),
        (ms(25), Some(minute)),
        // Beyond the fifteen minutes after which pingora-timeout hands over to Tokio.
        (Duration::MAX, Some(ms(5))),
    ]
}

#[tokio::test]
async fn same_requests_time_out() {
    let before = script()
        .into_iter()
        .map(|(limit, work)| before::fetch(limit, request(work)));
    let before = join_all(before).await;
    let after = script()
        .into_iter()
        .map(|(limit, work)| after::fetch(limit, request(work)));
    let after = join_all(after).await;
    let kinds = |outcome: &std::io::Result<u32>| {
        outcome
            .as_ref()
            .map(|answer| *answer)
            .map_err(std::io::Error::kind)
    };
    let before: Vec<_> = before.iter().map(kinds).collect();
    assert_eq!(before, after.iter().map(kinds).collect::<Vec<_>>());
    assert_eq!(before[2], Err(ErrorKind::TimedOut));
}

#[tokio::test]
async fn sleepers_wake_in_the_same_order() {
    let lengths = [300, 50, 200, 100];
    // Each on a task: a busy machine wakes one at a time, in the order of their deadlines.
    let (woke, mut before) = mpsc::unbounded_channel();
    let sleepers = lengths.map(|length| {
        let woke = woke.clone();
        tokio::spawn(before::pause(ms(length)).map(move |()| woke.send(length)))
    });
    join_all(sleepers).await;
    let (woke, mut after) = mpsc::unbounded_channel();
    let sleepers = lengths.map(|length| {
        let woke = woke.clone();
        tokio::spawn(after::pause(ms(length)).map(move |()| woke.send(length)))
    });
    join_all(sleepers).await;
    for _ in lengths {
        assert_eq!(before.recv().await, after.recv().await);
    }
}

#[tokio::test(start_paused = true)]
async fn paused_clock_holds_here_only() {
    let start = Instant::now();
    before::pause(ms(30)).await;
    assert_eq!(
        start.elapsed(),
        Duration::ZERO,
        "its thread waited, the clock stood"
    );

    after::pause(ms(3_600_000)).await;
    assert_eq!(start.elapsed(), ms(3_600_000));
}

#[tokio::test(start_paused = true)]
async fn endless_sleep_panics_there_and_is_never_here() {
    let there = AssertUnwindSafe(before::pause(Duration::MAX))
        .catch_unwind()
        .await;
    assert!(there.is_err());

    let here = tokio::time::timeout(ms(1000), after::pause(Duration::MAX)).await;
    assert!(here.is_err(), "it waits");
}

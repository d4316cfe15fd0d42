//! The names and types of `tokio::time`, as code that is switched uses them.

use std::io;
use std::pin::{Pin, pin};

use crate::support::ms;
use futures::{Stream, StreamExt};
use tickwheel::time::{
    self, Duration, Instant, Interval, IntervalStream, MissedTickBehavior, Sleep, Timeout, error,
    ext::FutureExt, interval, interval_at, sleep, sleep_until, timeout, timeout_at,
};

/// A struct as people write them around Tokio's types.
struct Held {
    sleep: Pin<Box<Sleep>>,
    ticks: Interval,
    limited: Pin<Box<Timeout<std::future::Pending<()>>>>,
}

#[tokio::test(start_paused = true)]
async fn code_written_for_tokio_compiles_and_runs() {
    let start = Instant::now();
    let mut held = Held {
        sleep: Box::pin(sleep(ms(10))),
        ticks: interval(ms(7)),
        limited: Box::pin(timeout(ms(30), std::future::pending())),
    };
    held.ticks
        .set_missed_tick_behavior(MissedTickBehavior::Skip);
    held.sleep.as_mut().reset(start + ms(20));
    let mut ticks = 0;
    loop {
        tokio::select! {
            () = held.sleep.as_mut() => break,
            _ = held.ticks.tick() => ticks += 1,
        }
    }
    assert_eq!((ticks, start.elapsed()), (3, ms(20)));
    let elapsed: error::Elapsed = held.limited.await.unwrap_err();
    assert_eq!(elapsed.to_string(), "deadline has elapsed");

    let mut pinned = pin!(sleep_until(start + ms(40)));
    pinned.as_mut().await;
    pinned.as_mut().reset(start + ms(50));
    assert!(!pinned.is_elapsed());
    assert_eq!(pinned.deadline(), start + ms(50));
    pinned.await;
    assert_eq!(start.elapsed(), ms(50));
    let first = interval_at(start + ms(60), ms(1)).tick().await;
    assert_eq!(first, start + ms(60));
    assert_eq!(timeout_at(start, async { 5 }).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn limits_futures_by_methods() {
    let start = Instant::now();
    let stuck = std::future::pending::<()>;
    assert!(stuck().timeout(ms(5)).await.is_err());
    assert!(stuck().timeout_at(start + ms(9)).await.is_err());
    assert_eq!(start.elapsed(), ms(9));
    assert_eq!(async { 5 }.timeout(ms(5)).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn streams_the_ticks_of_an_interval() {
    let start = Instant::now();
    let mut stream = IntervalStream::new(interval(ms(10)));
    assert_eq!(stream.size_hint(), (usize::MAX, None));
    assert_eq!(stream.as_ref().period(), ms(10));
    stream.as_mut().reset();
    let ticks: Vec<Duration> = stream
        .by_ref()
        .take(3)
        .map(|tick| tick - start)
        .collect()
        .await;
    assert_eq!(ticks, [ms(10), ms(20), ms(30)]);
    assert_eq!(stream.into_inner().tick().await, start + ms(40));
}

#[tokio::test(start_paused = true)]
async fn takes_tokio_timeouts_in_one_error() {
    async fn either(tokio_first: bool) -> Result<(), error::Elapsed> {
        let stuck = std::future::pending::<()>;
        if tokio_first {
            tokio::time::timeout(ms(1), stuck()).await?;
        }
        time::timeout(ms(1), stuck()).await
    }
    assert_eq!(either(true).await, either(false).await);
    let error = io::Error::from(either(true).await.unwrap_err());
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    // The error of Tokio's own timer is there under its name.
    let _: Option<error::Error> = None::<tokio::time::error::Error>;
}

#[tokio::test(start_paused = true)]
async fn never_fires_what_is_too_far() {
    tokio::select! {
        biased;
        () = sleep(Duration::MAX) => unreachable!("it never is"),
        () = tokio::time::sleep(Duration::from_secs(365 * 86_400)) => {}
    }
}

#[cfg(feature = "test-util")]
#[tokio::test]
async fn pauses_advances_and_resumes() {
    time::pause();
    let start = Instant::now();
    let mut ours = tokio_test::task::spawn(sleep(ms(10)));
    let mut tokios = tokio_test::task::spawn(tokio::time::sleep(ms(10)));
    assert!(ours.poll().is_pending() && tokios.poll().is_pending());
    // Tokio rounds the deadline up to its own milliseconds, which the clock was not paused at.
    for (by, is_over) in [(9, Some(false)), (1, None), (1, Some(true))] {
        time::advance(ms(by)).await;
        assert_eq!(ours.is_woken(), tokios.is_woken());
        assert_eq!(ours.is_woken(), is_over.unwrap_or(ours.is_woken()));
    }
    assert!(ours.poll().is_ready());
    assert_eq!(start.elapsed(), ms(11));
    time::resume();
    time::sleep(ms(2)).await;
    assert!(start.elapsed() >= ms(13));
}

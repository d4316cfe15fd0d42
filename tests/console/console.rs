//! The timers as `tokio-console` shows them, read over its protocol.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use console_api::field::Value;
use console_api::resources::Resource;
use console_api::resources::resource::Kind;
use console_api::resources::resource::kind::{self, Known};
use tickwheel::TimerWheel;
use tickwheel::time::ext::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::watch::{Seen, Watch};

mod watch;

const HOUR: Duration = Duration::from_secs(3600);

fn timer() -> Option<Kind> {
    let kind = kind::Kind::Known(Known::Timer as i32);
    Some(Kind { kind: Some(kind) })
}

/// The milliseconds to the deadline of a timer, when it got that.
fn duration(seen: &Seen, resource: &Resource) -> Option<u64> {
    let (duration, unit) = seen.state(resource, "duration")?;
    assert_eq!(unit, "ms");
    match duration {
        Value::U64Val(duration) => Some(duration),
        other => panic!("the duration is {other:?}"),
    }
}

/// Waits for the state, and checks that it is about an hour: Tokio rounds up.
async fn assert_an_hour(watch: &mut Watch, resource: &Resource) {
    let duration = watch.until("a duration", |seen| duration(seen, resource));
    let duration = duration.await;
    assert!((3_000_000..=3_600_002).contains(&duration), "{duration}");
}

#[tokio::test]
async fn sleep_appears_as_tokios_does() {
    let mut watch = Watch::start().await;
    let (line, ours) = (line!(), tickwheel::time::sleep(HOUR));
    let (line_of_tokios, tokios) = (line!(), tokio::time::sleep(HOUR));
    let both = tokio::spawn(async { tokio::join!(ours, tokios) });

    let ours = watch.resource(line).await;
    let tokios = watch.resource(line_of_tokios).await;
    assert_eq!(ours.concrete_type, "Sleep");
    assert_eq!(ours.kind, timer());
    assert_eq!(ours.parent_resource_id, None);
    for resource in [&ours, &tokios] {
        assert_an_hour(&mut watch, resource).await;
    }
    let file = |resource: &Resource| resource.location.clone().unwrap().file;
    assert_eq!(file(&ours), file(&tokios));
    assert_eq!(
        (&ours.concrete_type, &ours.kind, ours.is_internal),
        (&tokios.concrete_type, &tokios.kind, tokios.is_internal)
    );

    let polled = watch.until("a poll", |seen| {
        let polled = seen.polls(&ours).first() == Some(&("poll_elapsed", false));
        (polled && seen.sources(&ours) == ["TimerWheel::sleep"]).then_some(())
    });
    polled.await;
    both.abort();
    for resource in [&ours, &tokios] {
        let dropped = watch.until("the drop", |seen| seen.is_dropped(resource).then_some(()));
        dropped.await;
    }
}

#[tokio::test]
async fn sleep_that_fires_is_ready_and_its_reset_is_an_operation() {
    let mut watch = Watch::start().await;
    let wheel = TimerWheel::new();
    let (line, mut sleep) = (line!(), wheel.sleep_until(Instant::now()));
    let slept = tokio::spawn(async move {
        (&mut sleep).await;
        Pin::new(&mut sleep).reset(Instant::now() + HOUR);
        sleep.await;
    });

    let resource = watch.resource(line).await;
    let ready = watch.until("a ready poll, and a pending one", |seen| {
        let polls = seen.polls(&resource);
        let polls = polls.first() == Some(&("poll_elapsed", true))
            && polls.last() == Some(&("poll_elapsed", false));
        (polls && seen.sources(&resource) == ["Sleep::reset", "TimerWheel::sleep"]).then_some(())
    });
    ready.await;
    assert_an_hour(&mut watch, &resource).await;
    slept.abort();
}

#[tokio::test]
async fn timeouts_appear_with_their_places() {
    let mut watch = Watch::start().await;
    let wheel = TimerWheel::new();
    let deadline = Instant::now() + HOUR;
    #[rustfmt::skip]
    let timeouts = [
        (line!(), wheel.timeout(HOUR, pending::<()>())),
        (line!(), wheel.timeout_at(deadline, pending())),
        (line!(), tickwheel::time::timeout(HOUR, pending())),
        (line!(), tickwheel::time::timeout_at(deadline, pending())),
        (line!(), pending().timeout(HOUR)),
        (line!(), pending().timeout_at(deadline)),
    ];
    let mut waiting = JoinSet::new();
    for (line, timeout) in timeouts {
        waiting.spawn(timeout);
        let resource = watch.resource(line).await;
        assert_eq!(resource.concrete_type, "Timeout");
        assert_eq!(resource.kind, timer());
        assert_an_hour(&mut watch, &resource).await;
        let polled = watch.until("a poll", |seen| {
            let polled = seen.polls(&resource).contains(&("poll_elapsed", false));
            (polled && seen.sources(&resource) == ["TimerWheel::timeout"]).then_some(())
        });
        polled.await;
    }
}

#[tokio::test]
async fn interval_has_an_operation_for_each_tick() {
    let mut watch = Watch::start().await;
    let wheel = TimerWheel::new();
    let (line, mut interval) = (line!(), wheel.interval(HOUR));
    let (line_of_another, another) = (line!(), tickwheel::time::interval(HOUR));
    let ticking = tokio::spawn(async move {
        let _another = another;
        loop {
            interval.tick().await;
        }
    });

    assert_eq!(
        watch.resource(line_of_another).await.concrete_type,
        "Interval"
    );
    let resource = watch.resource(line).await;
    assert_eq!(resource.concrete_type, "Interval");
    assert_eq!(resource.kind, timer());
    let ticked = watch.until("the first tick, and a poll for the second", |seen| {
        let polls = seen.polls(&resource).starts_with(&[("poll_tick", true)]);
        let waits = seen.polls(&resource).contains(&("poll_tick", false));
        let sources = seen.sources(&resource) == ["Interval::tick", "Interval::tick"];
        (polls && waits && sources).then_some(())
    });
    ticked.await;
    assert_an_hour(&mut watch, &resource).await;
    ticking.abort();
}

#[tokio::test]
async fn idle_timers_and_streams_appear() {
    let mut watch = Watch::start().await;
    let wheel = TimerWheel::new();
    let (line, idle) = (line!(), wheel.idle_timer(HOUR));
    let (line_of_stream, _stream) = (line!(), wheel.idle_stream((), HOUR));
    let waiting = tokio::spawn(idle);

    let resource = watch.resource(line).await;
    assert_eq!(resource.concrete_type, "IdleTimer");
    let polled = watch.until("a poll", |seen| {
        let polls = seen.polls(&resource);
        polls.contains(&("poll_idle", false)).then_some(())
    });
    polled.await;
    let stream = watch.resource(line_of_stream).await;
    assert_eq!(stream.concrete_type, "IdleTimer");
    waiting.abort();
}

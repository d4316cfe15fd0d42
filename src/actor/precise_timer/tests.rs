//! On the real clock, since the operating system knows no other.

use std::task::Waker;
use std::thread;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

impl PreciseTimer {
    /// The instant for which it is armed.
    pub(in crate::actor) fn armed(&self) -> Option<Instant> {
        self.armed
    }
}

fn is_ready(timer: &mut PreciseTimer) -> bool {
    (timer.poll_elapsed(&mut Context::from_waker(Waker::noop()))).is_ready()
}

/// Waits until it has elapsed.
async fn elapse(timer: &mut PreciseTimer) {
    let elapsed = std::future::poll_fn(|cx| timer.poll_elapsed(cx));
    tokio::time::timeout(HOUR, elapsed).await.unwrap();
}

#[tokio::test]
async fn elapses_once_and_not_early() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    let at = clock::now() + ms(10);
    timer.set(Some(at)).unwrap();
    elapse(&mut timer).await;
    assert!(clock::now() >= at);
    thread::sleep(ms(10));
    assert!(!is_ready(&mut timer));
}

#[tokio::test]
async fn past_instant_elapses_at_once() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    for _ in 0..3 {
        timer.set(Some(clock::now())).unwrap();
        elapse(&mut timer).await;
    }
}

#[tokio::test]
async fn former_setting_elapses_once_at_most() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    timer.set(Some(clock::now())).unwrap();
    thread::sleep(ms(5));
    for _ in 0..2 {
        timer.set(Some(clock::now() + HOUR)).unwrap();
        is_ready(&mut timer);
    }
    thread::sleep(ms(5));
    assert!(!is_ready(&mut timer));
}

#[tokio::test]
async fn disarmed_timer_does_not_elapse() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    timer.set(Some(clock::now() + ms(50))).unwrap();
    timer.set(None).unwrap();
    thread::sleep(ms(70));
    assert!(!is_ready(&mut timer));
}

#[tokio::test]
async fn elapsed_timer_stays_elapsed_when_set_to_the_same_instant() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    let at = clock::now();
    timer.set(Some(at)).unwrap();
    thread::sleep(ms(2));
    timer.set(Some(at)).unwrap();
    elapse(&mut timer).await;
}

/// Wakes as often as the pace allows, `times`.
fn wake_densely(pace: &mut Pace, mut now: Instant, times: u32) -> Instant {
    for _ in 0..times {
        now = pace.delay(now);
        pace.woke(now);
    }
    now
}

#[test]
fn sparse_wake_ups_are_never_delayed() {
    let mut now = Instant::now() + HOUR;
    let mut pace = Pace { spent_until: now };
    for _ in 0..1_000 {
        assert_eq!(pace.delay(now), now);
        pace.woke(now);
        now += INTERVAL;
    }
}

#[test]
fn dense_wake_ups_keep_the_interval_until_a_quiet_moment() {
    let begin = Instant::now() + HOUR;
    let mut pace = Pace { spent_until: begin };
    assert_eq!(wake_densely(&mut pace, begin, SAVED + 1), begin);
    let end = wake_densely(&mut pace, begin, 1_000);
    assert_eq!(end, begin + INTERVAL * 1_000);
    let later = end + INTERVAL * (SAVED + 1);
    assert_eq!(wake_densely(&mut pace, later, SAVED), later);
}

// Without the pace, timers of each tick of 0.1 ms would wake the actor 10,000 times a second.
#[tokio::test]
async fn dense_load_sets_the_timer_later() {
    let mut timer = PreciseTimer::new("wheel").unwrap();
    let now = clock::now() + HOUR;
    timer.set(Some(now)).unwrap();
    assert_eq!(timer.armed(), Some(now), "it is quiet");
    for _ in 0..1_000 {
        timer.pace.woke(now);
    }
    timer.set(Some(now)).unwrap();
    let delay = timer.armed().map(|at| at - now);
    assert!(delay.is_some_and(|delay| delay >= ms(1) / 2), "{delay:?}");
}

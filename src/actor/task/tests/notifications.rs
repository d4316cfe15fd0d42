//! When the actor is notified, how often it wakes up, and the timers of Tokio that wake it.

use super::*;
use crate::shared::mailbox::WakeBy;

#[tokio::test(start_paused = true)]
async fn notifies_an_actor_that_would_run_too_late() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(&actor.shared);
    assert_eq!(step(&mut actor), "wait");
    let _first = armed(&wheel, FAR);
    assert!(was_notified(&shared), "it waited for nothing");
    assert_eq!(step(&mut actor), "wait");
    let start = actor.sleeps.wheel.now();
    let first = actor.next_wake().expect("it has a timer");
    assert!(first > start);
    let until = |tick: u64| wheel.sleep(ms(tick - start));
    let mut kept = Vec::new();
    for (tick, notifies) in [(first + 1, false), (first, false), (first - 1, true)] {
        let mut sleep = until(tick);
        assert!(poll(&mut sleep, Waker::noop()).is_pending());
        assert_eq!(
            was_notified(&shared),
            notifies,
            "at {tick}, first is {first}"
        );
        // A released entry would be used again.
        kept.push(sleep);
    }
    let _another = armed(&wheel, ms(1));
    assert!(!was_notified(&shared), "it has been notified");
}

struct NotifyInTurn(Arc<Shared>);

impl Wake for NotifyInTurn {
    fn wake(self: Arc<Self>) {
        self.0.mailbox.wake(WakeBy::Now);
    }
}

#[tokio::test(start_paused = true)]
async fn does_not_notify_an_actor_that_runs() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(&actor.shared);
    let mut sleep = wheel.sleep(ms(1));
    let waker = Waker::from(Arc::new(NotifyInTurn(Arc::clone(&shared))));
    assert!(poll(&mut sleep, &waker).is_pending());
    assert_eq!(step(&mut actor), "wait");
    jump(ms(1));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(fired(&wheel), 1);
    assert!(
        !was_notified(&shared),
        "its waker did so in the midst of a turn"
    );

    let sleeps: Vec<_> = (0..5_000).map(|_| armed(&wheel, FAR)).collect();
    assert!(was_notified(&shared));
    assert_eq!(step(&mut actor), "again");
    let _one = armed(&wheel, ms(1));
    assert!(!was_notified(&shared), "it comes back by itself");
    drop(sleeps);
}

#[tokio::test(start_paused = true)]
async fn counts_wake_ups_and_turns() {
    let (mut actor, wheel) = start();
    let counts = || (wheel.metrics().wake_ups, wheel.metrics().turns);
    let before = counts();
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
    let _sleeps: Vec<_> = (0..5_000).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "again");
    assert_eq!(counts(), (before.0 + 1, before.1 + 2));
    assert!(wheel.metrics().commands <= 4_096);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(counts(), (before.0 + 2, before.1 + 3));
    assert_eq!(wheel.metrics().commands, 5_000);
}

/// The actor takes a turn and waits. Returns for when it has armed Tokio's timers, from `origin`
/// on.
fn waits(actor: &mut Actor, origin: Instant) -> [Option<Duration>; 2] {
    assert_eq!(step(actor), "wait");
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(actor.wait(Waker::noop())).poll(&mut cx).is_pending());
    actor.timer.armed_tokio().map(|at| at.map(|at| at - origin))
}

#[tokio::test(start_paused = true)]
async fn arms_a_second_timer_for_the_turn_after_the_next() {
    let (mut actor, wheel) = start();
    let origin = Instant::now();
    let _sleeps = [5, 6, 9].map(|at| armed(&wheel, ms(at)));
    // Tokio's timer for the first would wake the actor for another one within the same millisecond,
    // too.
    let _near = armed(&wheel, Duration::from_micros(5_500));
    assert_eq!(waits(&mut actor, origin), [5, 9].map(|at| Some(ms(at))));
    tokio::time::advance(ms(6)).await;
    assert_eq!(waits(&mut actor, origin), [Some(ms(9)), None]);
    let _later = armed(&wheel, ms(14));
    assert_eq!(waits(&mut actor, origin), [9, 20].map(|at| Some(ms(at))));
}

#[tokio::test(start_paused = true)]
async fn arms_a_tokio_timer_only_while_a_wheel_holds_one() {
    let (mut actor, wheel) = start();
    let origin = Instant::now();
    let first = |actor: &mut Actor| waits(actor, origin)[0];
    assert_eq!(first(&mut actor), None);
    let years = armed(&wheel, 2 * LONGEST_SLEEP);
    assert!(was_notified(&actor.shared));
    assert_eq!(first(&mut actor), Some(LONGEST_SLEEP));
    drop(years);
    let far = armed(&wheel, ms(40));
    assert!(was_notified(&actor.shared));
    assert_eq!(first(&mut actor), Some(ms(40)));
    let near = armed(&wheel, ms(20));
    assert!(was_notified(&actor.shared));
    assert_eq!(first(&mut actor), Some(ms(20)));
    jump(ms(20));
    assert_eq!(first(&mut actor), Some(ms(40)));
    assert!(near.is_elapsed());
    jump(ms(20));
    let cancelled = LONGEST_SLEEP + ms(40);
    assert_eq!(first(&mut actor), Some(cancelled), "a year from now");
    assert!(far.is_elapsed());
    jump(2 * LONGEST_SLEEP);
    while step(&mut actor) == "again" {}
    assert_eq!(first(&mut actor), None);
}

//! Since when the lateness of a timer counts, and what the warning of it says.

use super::warnings::Warnings;
use super::{late_step as step, *};
use crate::Expirations;
use crate::actor::lateness::Facts;
use crate::tick::Timestamp;

/// The actor takes turns until it waits.
fn run(actor: &mut Actor) {
    while step(actor) == "again" {}
}

/// The actor waits; then this much time passes.
fn wait(actor: &mut Actor, length: Duration) {
    run(actor);
    jump(length);
}

fn latest(wheel: &TimerWheel) -> Duration {
    wheel.metrics().lateness.max()
}

fn set_at(timers: &KeyedTimers<u64, ()>, key: u64, deadline: Instant) {
    (timers.set_timer_at(key, (), deadline)).expect("there is room");
}

fn start_keyed() -> (
    Actor,
    TimerWheel,
    KeyedTimers<u64, ()>,
    Expirations<u64, ()>,
) {
    let (actor, wheel) = start();
    let (timers, stream) = wheel.keyed();
    (actor, wheel, timers, stream)
}

// Durable timers load what became due while no process ran. Each was taken for late by the age of
// its deadline.
#[tokio::test(start_paused = true)]
async fn overdue_timer_is_late_since_it_was_armed() {
    let (mut actor, wheel, timers, mut stream) = start_keyed();
    let start = Instant::now();
    wait(&mut actor, FAR);
    set_at(&timers, 1, start);
    set_at(&timers, 2, Instant::now() - ms(700));
    run(&mut actor);
    assert_eq!(latest(&wheel), Duration::ZERO);
    assert_eq!(stream.try_recv().map(|fired| fired.deadline), Ok(start));

    // It was armed in time to be late by 300 ms, for which the actor could not run.
    wait(&mut actor, FAR);
    set_at(&timers, 3, start);
    jump(ms(300));
    set_at(&timers, 4, start);
    run(&mut actor);
    assert_eq!(latest(&wheel), ms(300));
}

#[tokio::test(start_paused = true)]
async fn overdue_timer_beside_waiting_ones_is_late_since_armed() {
    // No call notifies an actor that is due itself: then the timer is late by no more than the
    // actor.
    for (next, after, lateness) in [(60, 0, 0), (60, 9, 9), (40, 0, 10), (45, 20, 25)] {
        let (mut actor, wheel, timers, _stream) = start_keyed();
        let start = Instant::now();
        set_at(&timers, 1, start + ms(next));
        wait(&mut actor, ms(50));
        set_at(&timers, 2, start);
        jump(ms(after));
        run(&mut actor);
        let late = latest(&wheel);
        let off = late.abs_diff(ms(lateness));
        assert!(off <= ms(1), "due at {next}, {after} after: {late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn sleep_moved_into_past_is_late_since_it_was_moved() {
    let (mut actor, wheel) = start();
    let start = Instant::now();
    let mut moved = armed(&wheel, 2 * FAR);
    wait(&mut actor, FAR);
    Pin::new(&mut moved).reset(start);
    run(&mut actor);
    assert!(moved.is_elapsed());
    assert_eq!(latest(&wheel), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn timer_in_time_is_late_since_its_deadline() {
    let (mut actor, wheel, timers, _stream) = start_keyed();
    // The actor waits for nothing, is notified, and cannot run for two seconds.
    wait(&mut actor, FAR);
    set_at(&timers, 1, Instant::now() + ms(10));
    let _sleep = armed(&wheel, ms(10));
    jump(ms(2_010));
    run(&mut actor);
    assert_eq!(latest(&wheel), ms(2_000));
    assert_eq!(wheel.metrics().lateness.sum(), ms(4_000));

    // It lies on the wheel.
    set_at(&timers, 1, Instant::now() + ms(10));
    wait(&mut actor, ms(3_010));
    run(&mut actor);
    assert_eq!(latest(&wheel), ms(3_000));

    // It is armed before the actor's first turn.
    let (mut actor, wheel) = start();
    let _sleep = armed(&wheel, ms(10));
    jump(ms(4_010));
    run(&mut actor);
    assert_eq!(latest(&wheel), ms(4_000));
}

#[tokio::test(start_paused = true)]
async fn timers_of_a_storm_are_late_until_they_fire() {
    let (mut actor, wheel) = start();
    let _storm: Vec<_> = (0..600).map(|_| armed(&wheel, ms(10))).collect();
    wait(&mut actor, ms(10));
    for lateness in [0, 5, 10] {
        assert_eq!(latest(&wheel), ms(lateness).saturating_sub(ms(5)));
        step(&mut actor);
        assert_eq!(latest(&wheel), ms(lateness));
        jump(ms(5));
    }
    assert_eq!(fired(&wheel), 600);
}

// --- the warning ---

// It named a cause: blocked workers, or too much work. It was wrong for sets that callers had
// locked, and for processes without processor time.
#[tokio::test(start_paused = true)]
async fn warning_tells_waits_and_work_apart() {
    let (mut actor, wheel) = start();
    let facts = |actor: &Actor| {
        let Facts {
            waited,
            turns_took,
            fired,
        } = actor.lateness.facts();
        (waited, turns_took, fired)
    };
    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(10))).collect();
    wait(&mut actor, ms(110));
    // It could have run 100 ms ago.
    assert_eq!(step(&mut actor), "again");
    assert_eq!(facts(&actor), (ms(100), ms(0), 256));
    // Other tasks run for 20 ms after a turn that took 70. No time passes in a turn of this test.
    let mut turn = Turn::new(Timestamp::MIN, wheel.shared());
    turn.go_on(Timestamp::MIN);
    actor.lateness.end(&turn, ms(70), false);
    jump(ms(20));
    actor
        .lateness
        .begin(actor.pause, Instant::now(), &actor.shared);
    assert_eq!(facts(&actor), (ms(120), ms(70), 256));
    // Everything has fired.
    run(&mut actor);
    assert_eq!(facts(&actor), (ms(0), ms(0), 0));
}

// A keyed timer knows its deadline, and each was late by as much as a tick is long.
#[tokio::test(start_paused = true)]
async fn wait_for_the_tick_of_a_deadline_calls_for_no_warning() {
    for (late, is_warned) in [(0, false), (10, false), (11, true)] {
        let warnings = Arc::<Warnings>::default();
        let _here = tracing::subscriber::set_default(Arc::clone(&warnings));
        // Ticks of a millisecond.
        let (mut actor, wheel) = start_with(ms(10));
        let (timers, _stream) = wheel.keyed::<u64, ()>();
        let start = Instant::now();
        set_at(&timers, 1, start + Duration::from_micros(4_001));
        let _sleep = armed(&wheel, Duration::from_micros(4_001));
        wait(&mut actor, ms(5 + late));
        run(&mut actor);
        assert_eq!(timers.len(), 0);
        assert_eq!(warnings.count(), usize::from(is_warned), "{late} ms late");
    }
}

// The metric showed the last turn, whatever came before it.
#[tokio::test(start_paused = true)]
async fn longest_turn_outlives_shorter_ones() {
    let (_actor, wheel) = start();
    for (millis, longest) in [(2, 2), (5, 5), (1, 5), (0, 5), (6, 6)] {
        Turn::new(Timestamp::MIN, wheel.shared()).end(ms(millis));
        assert_eq!(wheel.metrics().longest_turn, ms(longest));
    }
    assert_eq!(wheel.metrics().turns, 5);
}

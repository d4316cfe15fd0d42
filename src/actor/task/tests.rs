//! Tests of the actor, without a task: they call each turn.

use std::pin::{Pin, pin};
use std::task::{Context, Wake, Waker};

use tokio::runtime::Handle;
use tokio::time;

use super::*;
use crate::shared::Config;
use crate::tick::Ticks;
use crate::{KeyedTimers, Sleep, TimerWheel};

mod contended;
mod end;
mod keyed_wheel;
mod lateness;
mod load;
mod many_sets;
mod order;
mod warnings;

const FAR: Duration = Duration::from_secs(3_600);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// An actor that does nothing by itself, and a handle.
fn start() -> (Actor, TimerWheel) {
    start_with(Duration::MAX)
}

fn start_with(late_warning: Duration) -> (Actor, TimerWheel) {
    let shared = Arc::new(Shared::new(Config {
        name: "by hand".into(),
        ticks: Ticks::new(Instant::now(), ms(1)).expect("not zero"),
        late_warning,
        max_keyed: usize::MAX,
        notifier: ActorNotifier::for_task(&Handle::current()),
        runtime: Some(Handle::current().id()),
        virtual_clock: true,
        can_pause: false,
        sleeps_on_wheel: true,
    }));
    let actor = Actor::new(Arc::clone(&shared), 64, ActorTimer::tokio());
    (actor, TimerWheel::new_handle(shared))
}

fn jump(by: Duration) {
    let moved = pin!(time::advance(by)).poll(&mut Context::from_waker(Waker::noop()));
    assert!(moved.is_pending(), "the clock moves before the first yield");
}

fn poll(sleep: &mut Sleep, waker: &Waker) -> Poll<()> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// A sleep that waits.
fn armed(wheel: &TimerWheel, length: Duration) -> Sleep {
    let mut sleep = wheel.sleep(length);
    assert!(poll(&mut sleep, Waker::noop()).is_pending());
    sleep
}

impl Actor {
    /// How many timers are on the wheels.
    fn items(&self) -> usize {
        self.sleeps.wheel.len() + self.keyed.as_ref().map_or(0, |keyed| keyed.wheel.len())
    }
}

/// A step for which the actor did not have to wait, so that it has nothing to catch up.
fn step(actor: &mut Actor) -> &'static str {
    actor.pause = Pause::Yielded(clock::now());
    late_step(actor)
}

/// A step after other tasks have run since the actor was notified or let them run. Its name is easier to compare.
fn late_step(actor: &mut Actor) -> &'static str {
    match actor.step() {
        Step::Again => "again",
        Step::Wait => "wait",
        Step::End => "end",
    }
}

/// Whether the actor was notified since the last call.
fn was_notified(shared: &Shared) -> bool {
    let ActorNotifier::Task(notifier) = shared.mailbox.notifier() else {
        unreachable!("it has no thread");
    };
    let notified = pin!(notifier.notified());
    notified
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

fn fired(wheel: &TimerWheel) -> u64 {
    wheel.metrics().sleeps_fired
}

// --- notifications ---

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
        self.0.mailbox.wake_by(0);
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
    assert_eq!(wheel.metrics().commands, 4_096);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(counts(), (before.0 + 2, before.1 + 3));
    assert_eq!(wheel.metrics().commands, 5_000);
}

/// The actor takes a turn and waits. Returns for when it has armed Tokio's timers, from `origin` on.
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
    // Tokio's timer for the first would wake the actor for another one within the same millisecond, too.
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

// --- the bounds of a turn ---

#[tokio::test(start_paused = true)]
async fn fires_256_sleeps_in_a_turn() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..600).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    for (after, end) in [(256, "again"), (512, "again"), (600, "wait")] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), after);
    }
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_firing_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..256).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(fired(&wheel), 256);
}

#[tokio::test(start_paused = true)]
async fn keeps_the_bound_of_a_turn_within_a_tick() {
    for (at_six, fired_first, end) in [(1, 256, "wait"), (100, 256, "again")] {
        let (mut actor, wheel) = start();
        let _five: Vec<_> = (0..255).map(|_| armed(&wheel, ms(5))).collect();
        let _six: Vec<_> = (0..at_six).map(|_| armed(&wheel, ms(6))).collect();
        assert_eq!(step(&mut actor), "wait");
        jump(ms(10));
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), fired_first);
    }
}

#[tokio::test(start_paused = true)]
async fn counts_a_cascade_as_half_a_turn() {
    let (mut actor, wheel) = start();
    // There is an item in each bucket of the second level, after the bucket's begin.
    let _sleeps: Vec<_> = (1..=9).map(|n| armed(&wheel, ms(64 * n + 1))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(2_000));
    for (after, end) in [
        (1, "again"),
        (3, "again"),
        (5, "again"),
        (7, "again"),
        (9, "wait"),
    ] {
        assert_eq!(step(&mut actor), end);
        assert_eq!(fired(&wheel), after);
    }
}

#[tokio::test(start_paused = true)]
async fn applies_4096_commands_and_dirty_indices_in_a_turn() {
    for (timers, left) in [(0, 4), (1, 2_052)] {
        let (mut actor, wheel) = start();
        let sets: Vec<_> = (0..4_100).map(|_| wheel.keyed::<u64, ()>()).collect();
        let mut streams = Vec::new();
        for (set, stream) in sets {
            for n in 0..timers {
                set.set_timer(n, (), FAR).expect("there is room");
            }
            streams.push(stream);
            // This sends a command.
            drop(set);
        }
        assert_eq!(step(&mut actor), "again");
        assert_eq!(actor.backlog.len(), left, "{timers} in each");
        while step(&mut actor) == "again" {}
        assert!(actor.backlog.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn actor_waits_after_applying_exactly_its_limit() {
    let (mut actor, wheel) = start();
    let _sleeps: Vec<_> = (0..4_096).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
}

#[tokio::test(start_paused = true)]
async fn deregisters_released_entries() {
    let (mut actor, wheel) = start();
    let sleeps: Vec<_> = (0..200).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "wait");
    drop(sleeps);
    assert_eq!(step(&mut actor), "wait");
    // This thread's pool keeps the rest.
    assert_eq!(actor.items(), 128);
}

#[tokio::test(start_paused = true)]
async fn reschedules_what_is_moved_earlier() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    for earlier in [5, 3] {
        Pin::new(&mut sleep).reset(Instant::now() + ms(earlier));
        assert_eq!(step(&mut actor), "wait");
        assert_eq!((actor.next_wake(), actor.items()), (Some(earlier), 1));
    }
}

// Rescheduling inserts an entry again, at an index that was used before.
#[tokio::test(start_paused = true)]
async fn reschedules_what_was_moved_later_and_then_earlier() {
    let (mut actor, wheel) = start();
    let mut sleeps = [10, 20, 30].map(|n| armed(&wheel, ms(n)));
    assert_eq!(step(&mut actor), "wait");
    let start = Instant::now();
    for sleep in &mut sleeps[..2] {
        Pin::new(sleep).reset(start + ms(100));
    }
    jump(ms(25));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((actor.next_wake(), actor.items()), (Some(30), 3));
    for (sleep, earlier) in sleeps.iter_mut().zip([28, 27]) {
        Pin::new(sleep).reset(start + ms(earlier));
        assert_eq!(step(&mut actor), "wait");
        assert_eq!((actor.next_wake(), actor.items()), (Some(earlier), 3));
    }
}

#[tokio::test(start_paused = true)]
async fn leaves_what_is_moved_earlier_and_cancelled() {
    let (mut actor, wheel) = start();
    let mut sleep = armed(&wheel, ms(10));
    assert_eq!(step(&mut actor), "wait");
    Pin::new(&mut sleep).reset(Instant::now() + ms(5));
    drop(sleep);
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(actor.next_wake(), Some(10));
}

fn set_far(timers: &KeyedTimers<u64, ()>, keys: std::ops::Range<u64>) {
    for key in keys {
        timers.set_timer(key, (), FAR).expect("there is room");
    }
}

#[tokio::test(start_paused = true)]
async fn applies_commands_before_the_rest_of_a_set_dirty_again() {
    let (mut actor, wheel) = start();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..5_000);
    let _sleep = armed(&wheel, FAR);
    let left = |actor: &Actor| (actor.backlog.len(), actor.items());
    assert_eq!(step(&mut actor), "again");
    assert_eq!(left(&actor), (0, 4_094 + 1));
    set_far(&timers, 5_000..10_000);
    let _another = armed(&wheel, FAR);
    assert_eq!(step(&mut actor), "again");
    assert_eq!(left(&actor), (0, 8_188 + 2), "no sleep is kept waiting");
    assert_eq!(step(&mut actor), "wait");
    assert_eq!(left(&actor), (0, 10_002));
}

#[tokio::test(start_paused = true)]
async fn timers_wait_for_commands_that_may_come_before_them() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    jump(ms(10));
    assert_eq!(step(&mut actor), "wait");
    // Its index is the first dirty one, and it was armed last, with more indices in between than a turn applies. All are due.
    let now = |key| {
        timers
            .set_timer(key, (), Duration::ZERO)
            .expect("there is room");
    };
    now(0);
    for key in 1..5_000 {
        timers.set_timer(key, (), ms(200)).expect("there is room");
    }
    now(9_000);
    now(0);
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    assert!(
        stream.try_recv().is_err(),
        "one that was set before is left"
    );
    assert_eq!(step(&mut actor), "wait");
    let keys = [stream.try_recv(), stream.try_recv()].map(|fired| fired.map(|fired| fired.key));
    assert_eq!(keys, [Ok(9_000), Ok(0)]);
}

#[tokio::test(start_paused = true)]
async fn storm_fires_before_commands_that_are_due_later() {
    let (mut actor, wheel) = start();
    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(5))).collect();
    let _later = [9, 10].map(|n| armed(&wheel, ms(n)));
    assert_eq!(step(&mut actor), "wait");
    jump(ms(10));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 256);
    let _flood: Vec<_> = (0..5_000).map(|_| armed(&wheel, FAR)).collect();
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 302, "all of the flood is later");
    assert_eq!(step(&mut actor), "wait");
}

// --- sets ---

#[tokio::test(start_paused = true)]
async fn delivers_sets_that_are_due_together_by_turns() {
    let (mut actor, wheel) = start();
    let mut sets: Vec<_> = (0..2).map(|_| wheel.keyed::<u64, ()>()).collect();
    for key in 0..350 {
        for (timers, _) in &sets {
            timers.set_timer(key, (), ms(5)).expect("there is room");
        }
    }
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    let mut received = [0; 2];
    // The first turns process due timers. Nothing is delivered before all timers of its tick are known.
    for delivered in [[0, 0], [0, 0], [0, 256], [256, 256], [350, 350]] {
        assert_eq!(step(&mut actor) == "wait", delivered == [350, 350]);
        for (n, (_, stream)) in received.iter_mut().zip(&mut sets) {
            while stream.try_recv().is_ok() {
                *n += 1;
            }
        }
        let mut least_first = received;
        least_first.sort_unstable();
        assert_eq!(least_first, delivered);
    }
}

#[tokio::test(start_paused = true)]
async fn drops_a_set_without_users_and_timers() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, stream) = wheel.keyed::<u64, ()>();
    set_far(&timers, 0..3);
    assert_eq!(step(&mut actor), "wait");
    timers.remove_timer(&0).expect("it is open");
    drop((timers, stream));
    assert_eq!((actor.items(), shared.sets.all().len()), (3, 1));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((actor.items(), shared.sets.all().len()), (0, 0));

    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(0, (), ms(5)).expect("there is room");
    drop(timers);
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "wait");
    assert!(stream.try_recv().is_ok());
    drop(stream);
    assert_eq!(shared.sets.all().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn drops_a_set_after_its_due_timers() {
    let (mut actor, wheel) = start();
    let shared = Arc::clone(wheel.shared());
    let (timers, stream) = wheel.keyed::<u64, ()>();
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    jump(ms(5));
    assert_eq!(step(&mut actor), "again");
    drop((timers, stream));
    assert_eq!(step(&mut actor), "wait");
    assert_eq!((actor.items(), shared.sets.all().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn delivers_moved_timers_after_earlier_ticks() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    timers.set_timer(300, (), ms(3)).expect("there is room");
    for key in 0..300 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    assert_eq!(step(&mut actor), "wait");
    timers.move_timer(&300, ms(9)).expect("it is open");
    jump(ms(10));
    assert_eq!(step(&mut actor), "again");
    while step(&mut actor) == "again" {}
    for key in 0..=300 {
        assert_eq!(stream.try_recv().map(|fired| fired.key), Ok(key));
    }
}

// --- barriers ---

#[tokio::test(start_paused = true)]
async fn settles_after_a_second_round_and_all_that_is_due() {
    let mut cx = Context::from_waker(Waker::noop());
    let (mut actor, wheel) = start();
    let _later = armed(&wheel, ms(6));
    let mut settled = Box::pin(wheel.settle());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "wait");
    assert!(settled.as_mut().poll(&mut cx).is_ready());

    let _storm: Vec<_> = (0..300).map(|_| armed(&wheel, ms(5))).collect();
    assert_eq!(step(&mut actor), "wait");
    jump(ms(4));
    let mut early = Box::pin(wheel.settle());
    assert!(early.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    assert_eq!(step(&mut actor), "wait");
    assert!(early.as_mut().poll(&mut cx).is_ready());
    let mut settled = Box::pin(wheel.settle());
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "again");
    jump(ms(1));
    assert_eq!(step(&mut actor), "again");
    assert_eq!(fired(&wheel), 256);
    assert!(settled.as_mut().poll(&mut cx).is_pending());
    assert_eq!(step(&mut actor), "wait");
    assert!(settled.as_mut().poll(&mut cx).is_ready());
}

#[tokio::test(start_paused = true)]
async fn settles_after_what_later_turns_deliver() {
    let (mut actor, wheel) = start();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    for key in 0..350 {
        timers.set_timer(key, (), ms(5)).expect("there is room");
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut settled = Box::pin(wheel.settle());
    jump(ms(5));
    while settled.as_mut().poll(&mut cx).is_pending() {
        step(&mut actor);
    }
    for _ in 0..350 {
        assert!(stream.try_recv().is_ok());
    }
}

//! Tests of the actor, without a task: they call each turn.

use std::pin::{Pin, pin};
use std::task::{Context, Wake, Waker};

use tokio::runtime::Handle;
use tokio::time;

use super::*;
use crate::clock::ClockPolicy;
use crate::shared::Config;
use crate::shared::notifier::ActorNotifier;
use crate::tick::Ticks;
use crate::{KeyedTimers, Sleep, TimerWheel};

mod bounds;
mod contended;
mod end;
mod keyed_wheel;
mod lateness;
mod load;
mod moves;
mod notifications;
mod order;
mod sets;
mod settling;
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
        notifier: ActorNotifier::new(&Handle::current()),
        clock: ClockPolicy::new(Some(Handle::current().id()), false, true),
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
        self.sleeps.wheel.len() + self.keyed.wheel.len()
    }
}

/// A step for which the actor did not have to wait, so that it has nothing to catch up.
fn step(actor: &mut Actor) -> &'static str {
    actor.pause = Pause::Yielded(clock::now());
    late_step(actor)
}

/// A step after other tasks have run since the actor was notified or let them run. Its name is
/// easier to compare.
fn late_step(actor: &mut Actor) -> &'static str {
    match actor.step() {
        Step::Again => "again",
        Step::Wait => "wait",
        Step::End => "end",
    }
}

/// Whether the actor was notified since the last call.
fn was_notified(shared: &Shared) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    (shared.mailbox.notifier().poll_notified(&mut cx)).is_ready()
}

fn fired(wheel: &TimerWheel) -> u64 {
    wheel.metrics().sleeps_fired
}

fn set_far(timers: &KeyedTimers<u64, ()>, keys: std::ops::Range<u64>) {
    for key in keys {
        timers.set_timer(key, (), FAR).expect("there is room");
    }
}

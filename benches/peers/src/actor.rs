//! The actor's work for one timer, in CPU time of its thread. From it follows how many timers one
//! wheel can serve.

use std::fs;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tickwheel::{Sleep, TimerWheel, WheelMetrics};
use tokio::time::Instant;

use crate::measure::{Scale, emit};
use crate::sides::{runtime, wheel_on_thread};

/// The name of the actor's thread.
const ACTOR: &str = "measured-actor";

/// All timers of a round are due within this time, one after the other.
const SPAN: Duration = Duration::from_secs(1);

/// Sleeps and keyed timers are made, put off, and fire. No other task uses the wheel, and a waker
/// does nothing.
pub fn run(scale: Scale) {
    let timers = scale.pick(100_000, 1_000_000);
    let wheel = wheel_on_thread(TimerWheel::builder().name(ACTOR));
    for _ in 0..scale.pick(2, 5) {
        sleeps(&wheel, timers);
        keyed(&wheel, timers);
    }
}

fn sleeps(wheel: &TimerWheel, timers: u32) {
    let mut cost = CostPerTimer::new(timers);
    let start = Instant::now() + time_to_arm(timers);
    let due = |timer: u32| start + SPAN.mul_f64(f64::from(timer) / f64::from(timers));
    let mut sleeps: Vec<_> = (0..timers).map(|n| wheel.sleep_until(due(n))).collect();
    sleeps.iter_mut().for_each(poll);
    settle(wheel);
    cost.emit("a sleep registered");
    assert!(Instant::now() < start, "the sleeps were not armed in time");
    // They are rescheduled when the wheel reaches their first deadline.
    let put_off = time_to_arm(timers) + SPAN * 2;
    for (timer, sleep) in (0..).zip(&mut sleeps) {
        sleep.set_deadline(due(timer) + put_off);
    }
    wait_for_all(wheel, timers, |metrics| metrics.rescheduled);
    cost.emit("a sleep rescheduled");
    wait_for_all(wheel, timers, |metrics| metrics.sleeps_fired);
    cost.emit("a sleep fired");
}

fn keyed(wheel: &TimerWheel, timers: u32) {
    let mut cost = CostPerTimer::new(timers);
    let (set, mut expirations) = wheel.keyed();
    let reader = std::thread::spawn(move || {
        runtime(1).block_on(async { while expirations.recv().await.is_some() {} });
    });
    let start = Instant::now() + time_to_arm(timers);
    let due = |timer: u32| start + SPAN.mul_f64(f64::from(timer) / f64::from(timers));
    for timer in 0..timers {
        set.set_timer_at(timer, timer, due(timer))
            .expect("there is room");
    }
    settle(wheel);
    cost.emit("a keyed timer registered");
    assert!(Instant::now() < start, "the timers were not set in time");
    let put_off = time_to_arm(timers) + SPAN * 2;
    for timer in 0..timers {
        set.move_timer_at(&timer, due(timer) + put_off)
            .expect("it is open");
    }
    wait_for_all(wheel, timers, |metrics| metrics.rescheduled);
    cost.emit("a keyed timer rescheduled");
    wait_for_all(wheel, timers, |metrics| metrics.keyed_fired);
    cost.emit("a keyed timer fired");
    drop(set);
    reader.join().expect("it receives to the end");
}

/// Arms it. The waker does nothing.
fn poll(sleep: &mut Sleep) {
    let polled = pin!(sleep).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "it is due later");
}

/// Longer than arming takes, by far.
fn time_to_arm(timers: u32) -> Duration {
    Duration::from_micros(5) * timers
}

/// Waits until a count of the wheel has grown by the number of timers.
fn wait_for_all(wheel: &TimerWheel, timers: u32, count: impl Fn(&WheelMetrics) -> u64) {
    let before = count(&wheel.metrics());
    while count(&wheel.metrics()) < before + u64::from(timers) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn settle(wheel: &TimerWheel) {
    runtime(1).block_on(wheel.settle());
}

/// The CPU time that the actor's thread takes for each timer.
struct CostPerTimer {
    timers: u32,
    before: Duration,
}

impl CostPerTimer {
    fn new(timers: u32) -> Self {
        let before = actor_cpu();
        CostPerTimer { timers, before }
    }

    /// Emits the CPU time since the last call.
    fn emit(&mut self, what: &str) {
        let now = actor_cpu();
        let spent = now.saturating_sub(self.before);
        self.before = now;
        emit(
            what,
            "cpu",
            spent.as_secs_f64() * 1e9 / f64::from(self.timers),
        );
    }
}

/// The CPU time of the actor's thread, as Linux tells it of a thread that waits.
fn actor_cpu() -> Duration {
    std::thread::sleep(Duration::from_millis(20));
    let threads = fs::read_dir("/proc/self/task").expect("this is Linux");
    let actor = threads
        .filter_map(Result::ok)
        .map(|thread| thread.path())
        .find(|thread| {
            fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == ACTOR)
        })
        .expect("the actor has a thread");
    let spent = fs::read_to_string(actor.join("schedstat")).expect("the thread lives");
    let nanos = spent.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("it begins with nanoseconds"))
}

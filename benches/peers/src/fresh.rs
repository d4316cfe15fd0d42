//! S16: sleeps that no pool serves.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use tickwheel::TimerWheel;

use crate::measure::{Meter, Scale, Spent, emit};
use crate::sides::{Side, Timer, Tokio, runtime, wheel_on, with_side};

/// The groups of the figures, and how many sleeps there are at once.
pub const FRESH: [(&str, usize, &str); 2] = [
    (
        "S16 10^5",
        100_000,
        "10^5 fresh sleeps armed, then dropped, 2 workers",
    ),
    (
        "S16 10^6",
        1_000_000,
        "10^6 fresh sleeps armed, then dropped, 2 workers",
    ),
];

/// A task arms so many far sleeps in one poll, each in a box of its own, and drops them in another.
///
/// `wall` is the time of the task. `cpu` is that of all threads, until the actor has come to rest.
pub fn run(scale: Scale, side: Side, sleeps: usize) {
    let sleeps = scale.pick(sleeps / 10, sleeps);
    let runtime = runtime(2);
    let wheel = wheel_on(&runtime);
    for _ in 0..scale.pick(2, 5) {
        let wheel = wheel.clone();
        let (arm, drop) = with_side!(side, wheel, |timer| runtime.block_on(async {
            let task = tokio::spawn(arm_and_drop(timer, wheel, sleeps));
            task.await.expect("it does not panic")
        }));
        for (metric, spent) in [("arm", arm), ("drop", drop)] {
            let cost = spent.per(sleeps as u64);
            emit(side.name(), &format!("{metric} wall"), cost.wall);
            emit(side.name(), &format!("{metric} cpu"), cost.cpu);
        }
    }
}

async fn arm_and_drop<T: Timer>(timer: T, wheel: TimerWheel, sleeps: usize) -> (Spent, Spent) {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let meter = Meter::start();
    let armed = armed(&timer, sleeps, &waker);
    let arm = rest(&meter, &wheel).await;
    let meter = Meter::start();
    drop(armed);
    (arm, rest(&meter, &wheel).await)
}

fn armed<'a, T: Timer>(
    timer: &'a T,
    sleeps: usize,
    waker: &'a Waker,
) -> Vec<Pin<Box<impl Future<Output = ()> + Send + use<'a, T>>>> {
    let mut rng = Rng::with_seed(16);
    let mut cx = Context::from_waker(waker);
    let mut armed = Vec::with_capacity(sleeps);
    for _ in 0..sleeps {
        let far = Duration::from_millis(rng.u64(60_000..120_000));
        let mut sleep = Box::pin(timer.sleep(far));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        armed.push(sleep);
    }
    armed
}

/// The time of the caller until now, and that of all threads until the actor has come to rest.
async fn rest(meter: &Meter, wheel: &TimerWheel) -> Spent {
    let wall = meter.stop().wall;
    wheel.settle().await;
    Tokio.sleep(Duration::from_millis(20)).await;
    let cpu = meter.stop().cpu;
    Spent { wall, cpu }
}

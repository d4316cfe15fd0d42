//! S6b and S6c: keyed timers that all fire, and new keys, next to a `DelayQueue` behind a mutex.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tickwheel::TimerWheel;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::keyed::{Queue, lock};
use crate::measure::{Meter, Scale, Spent, emit_cost};
use crate::sides::{Side, Timer, Tokio, runtime, wheel_on};

/// The measured operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// S6b: the timers are due within a second, and a task receives them all.
    Fire,
    /// S6c: each key is set for the first time.
    Set,
}

/// 10^5 timers with keys.
pub fn run(scale: Scale, side: Side, part: Part) {
    let timers = scale.pick(10_000, 100_000);
    for _ in 0..scale.pick(2, 5) {
        let runtime = runtime(2);
        let spent = if side == Side::Tokio {
            on_queue(&runtime, part, timers)
        } else {
            on_wheel(&runtime, part, timers)
        };
        let series = if side == Side::Tokio {
            "DelayQueue"
        } else {
            side.name()
        };
        emit_cost(series, spent.per(timers));
    }
}

/// Sets all timers, and measures that or their end.
async fn measure(
    part: Part,
    timers: u64,
    set: impl Fn(u64, Duration) + Send,
    wheel: Option<TimerWheel>,
    all_received: oneshot::Receiver<()>,
) -> Spent {
    let first = Duration::from_secs(if part == Part::Fire { 1 } else { 60 });
    let mut rng = Rng::with_seed(6);
    let due = Instant::now() + first;
    let meter = Meter::start();
    for key in 0..timers {
        let delay = Duration::from_micros(rng.u64(0..1_000_000));
        set(key, due.saturating_duration_since(Instant::now()) + delay);
        if key % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    settle(wheel.as_ref()).await;
    if part == Part::Set {
        return meter.stop();
    }
    assert!(Instant::now() < due, "some were set after they were due");
    Tokio.sleep_until(due).await;
    let meter = Meter::start();
    all_received.await.expect("they are received");
    settle(wheel.as_ref()).await;
    meter.stop()
}

async fn settle(wheel: Option<&TimerWheel>) {
    if let Some(wheel) = wheel {
        wheel.settle().await;
    }
}

fn on_wheel(runtime: &Runtime, part: Part, timers: u64) -> Spent {
    let wheel = wheel_on(runtime);
    let (keyed, mut expirations) = wheel.keyed();
    let (done, all_received) = oneshot::channel();
    runtime.spawn(async move {
        for _ in 0..timers {
            expirations.recv().await;
        }
        let _ = done.send(());
    });
    let set = move |key, delay| {
        keyed.set_timer(key, key, delay).expect("there is room");
    };
    runtime.block_on(async move {
        let task = tokio::spawn(measure(part, timers, set, Some(wheel), all_received));
        task.await.expect("it does not panic")
    })
}

fn on_queue(runtime: &Runtime, part: Part, timers: u64) -> Spent {
    let queue = Arc::new(Mutex::new(Queue::default()));
    let (done, all_received) = oneshot::channel();
    let weak = Arc::downgrade(&queue);
    let mut received = 0;
    runtime.spawn(async move {
        poll_fn(|cx| {
            while received < timers {
                let Some(queue) = weak.upgrade() else { break };
                let expired = lock(&queue).poll_expired(cx);
                let _ = ready!(expired);
                received += 1;
            }
            Poll::Ready(())
        })
        .await;
        let _ = done.send(());
    });
    let set = move |key, delay| lock(&queue).set(key, key, delay);
    runtime.block_on(async move {
        let task = tokio::spawn(measure(part, timers, set, None, all_received));
        task.await.expect("it does not panic")
    })
}

//! Everything is due at one tick: how long it takes from there until every timer has fired, for
//! each timer.
#![allow(missing_docs)]

mod support;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use support::runtime;
use tickwheel::TimerWheel;
use tokio::runtime::Runtime;

const TIMERS: [u32; 2] = [10_000, 200_000];

/// Time enough to arm them all before they are due.
fn time_to_arm(timers: u32) -> Duration {
    Duration::from_millis(20) + Duration::from_micros(4) * timers
}

/// From the deadline until the last task has been woken.
fn sleeps(runtime: &Runtime, wheel: &TimerWheel, timers: u32) -> Duration {
    runtime.block_on(async {
        let deadline = Instant::now() + time_to_arm(timers);
        let tasks: Vec<_> = (0..timers)
            .map(|_| tokio::spawn(wheel.sleep_until(deadline.into())))
            .collect();
        for task in tasks {
            task.await.expect("it does not panic");
        }
        deadline.elapsed()
    })
}

/// From the deadline until the last expiration has been received.
fn keyed(runtime: &Runtime, wheel: &TimerWheel, timers: u32) -> Duration {
    runtime.block_on(async {
        let (keyed, mut expirations) = wheel.keyed::<u32, u32>();
        let deadline = Instant::now() + time_to_arm(timers);
        for key in 0..timers {
            (keyed.set_timer_at(key, key, deadline.into())).expect("there is room");
        }
        let mut received = Vec::new();
        while received.len() < timers as usize {
            expirations.recv_many(&mut received, 1024).await;
        }
        deadline.elapsed()
    })
}

fn storm(c: &mut Criterion) {
    let runtime = runtime(2);
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let mut group = c.benchmark_group("storm, from the deadline to the last");
    group.sample_size(10);
    for timers in TIMERS {
        for (name, run) in [
            (
                "sleeps",
                sleeps as fn(&Runtime, &TimerWheel, u32) -> Duration,
            ),
            ("keyed", keyed),
        ] {
            group.bench_with_input(BenchmarkId::new(name, timers), &timers, |b, &timers| {
                b.iter_custom(|rounds| (0..rounds).map(|_| run(&runtime, &wheel, timers)).sum());
            });
        }
    }
    group.finish();
    println!("longest turn: {:?}", wheel.metrics().longest_turn);
}

criterion_group!(benches, storm);
criterion_main!(benches);

//! A sleep that a task waits for is moved later again and again, as traffic does to a connection's
//! timeout.
#![allow(missing_docs)]

mod support;

use std::pin::Pin;

use criterion::{Criterion, criterion_group, criterion_main};
use support::{LONG, poll_once, runtime};
use tickwheel::TimerWheel;
use tokio::time::{self, Instant};

fn reset(c: &mut Criterion) {
    let runtime = runtime(1);
    // For Tokio's sleep; nothing runs while this thread measures.
    let _within = runtime.enter();
    let wheel = TimerWheel::new();
    let mut group = c.benchmark_group("reset of a pending sleep");

    let mut sleep = wheel.sleep(LONG);
    poll_once(Pin::new(&mut sleep));
    runtime.block_on(wheel.settle());
    group.bench_function("tickwheel", |b| {
        b.iter(|| Pin::new(&mut sleep).reset(Instant::now() + LONG));
    });

    let mut sleep = Box::pin(time::sleep(LONG));
    poll_once(sleep.as_mut());
    group.bench_function("tokio", |b| {
        b.iter(|| sleep.as_mut().reset(Instant::now() + LONG));
    });

    group.bench_function("the clock alone", |b| b.iter(|| Instant::now() + LONG));
    group.finish();
}

criterion_group!(benches, reset);
criterion_main!(benches);

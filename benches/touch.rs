//! The cost of touching a connection.
#![allow(missing_docs)]

mod support;

use std::pin::Pin;
use std::time::Duration;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use support::{LONG, poll_once, runtime};
use tickwheel::TimerWheel;
use tokio::time::Instant;

fn touch(c: &mut Criterion) {
    const BATCH: u32 = 1000;
    let runtime = runtime(1);
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let _within = runtime.enter();
    let mut timer = wheel.idle_timer(LONG);
    poll_once(Pin::new(&mut timer));
    let handle = timer.handle();

    let mut group = c.benchmark_group("touch");
    group.bench_function("touch", |b| b.iter(|| handle.touch()));
    group.bench_function("Instant::now", |b| b.iter(Instant::now));
    // A thousand at a time, at instants that are made before.
    for (name, step) in [
        ("touch_at, 1000 times, a microsecond apart", 1),
        ("touch_at, 1000 times, two ticks apart", 2000),
    ] {
        let mut last = Instant::now();
        let step = Duration::from_micros(step);
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                || {
                    let first = last;
                    last += step * BATCH;
                    (0..BATCH).map(|n| first + step * n).collect::<Vec<_>>()
                },
                |instants| {
                    for &mut at in instants {
                        handle.touch_at(at);
                    }
                },
                BatchSize::SmallInput,
            );
        });
    }

    let (reaper, _expirations) = wheel.reaper::<u32, ()>(LONG);
    let watch = reaper.watch(1, ()).expect("there is room");
    group.bench_function("of a watch", |b| b.iter(|| watch.touch()));
    group.finish();
}

criterion_group!(benches, touch);
criterion_main!(benches);

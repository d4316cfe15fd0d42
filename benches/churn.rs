//! Timeouts that are armed and cancelled, as they are in services: almost none ever fires.
//!
//! Each task runs, again and again, a future that is pending once under a timeout of 30 s. The
//! floor is the same loop without a timeout; what a timeout costs is what lies above it. Before
//! anything is timed, a first run reports what a timeout costs once the thread's pool is warm:
//! allocations, commands to the actor, and times the actor woke.
#![allow(missing_docs, clippy::cast_precision_loss)]

mod support;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use support::{LONG, MIXED, PendingOnce, runtime, share_out};
use tickwheel::TimerWheel;

fn churn(c: &mut Criterion) {
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let wheel = runtime.block_on(async { TimerWheel::new() });
        let mut group = c.benchmark_group(format!("churn, {workers} worker(s)"));
        for tasks in [1, 64, 4096] {
            group.bench_with_input(BenchmarkId::new("floor", tasks), &tasks, |b, &tasks| {
                b.iter_custom(|n| {
                    runtime.block_on(share_out(tasks, n, |_| PendingOnce::default()))
                });
            });
            group.bench_with_input(BenchmarkId::new("tokio", tasks), &tasks, |b, &tasks| {
                b.iter_custom(|n| {
                    runtime.block_on(share_out(tasks, n, |_| async {
                        let _ = tokio::time::timeout(LONG, PendingOnce::default()).await;
                    }))
                });
            });
            group.bench_with_input(BenchmarkId::new("tickwheel", tasks), &tasks, |b, &tasks| {
                b.iter_custom(|n| {
                    let wheel = wheel.clone();
                    runtime.block_on(share_out(tasks, n, move |_| {
                        let timeout = wheel.timeout(LONG, PendingOnce::default());
                        async {
                            let _ = timeout.await;
                        }
                    }))
                });
            });
        }
        group.finish();
    }
}

fn mixed(c: &mut Criterion) {
    let runtime = runtime(2);
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let length = |n: u64| MIXED[usize::try_from(n).unwrap_or(0) % MIXED.len()];
    let mut group = c.benchmark_group("churn, lengths mixed, 2 worker(s)");
    group.bench_function("floor", |b| {
        b.iter_custom(|n| runtime.block_on(share_out(64, n, |_| PendingOnce::default())));
    });
    group.bench_function("tokio", |b| {
        b.iter_custom(|n| {
            runtime.block_on(share_out(64, n, move |n| async move {
                let _ = tokio::time::timeout(length(n), PendingOnce::default()).await;
            }))
        });
    });
    group.bench_function("tickwheel", |b| {
        b.iter_custom(|n| {
            let wheel = wheel.clone();
            runtime.block_on(share_out(64, n, move |n| {
                let timeout = wheel.timeout(length(n), PendingOnce::default());
                async {
                    let _ = timeout.await;
                }
            }))
        });
    });
    group.finish();
}

/// Counts what timeouts cost beside time.
fn reuse(_: &mut Criterion) {
    const ROUNDS: u64 = 1_000_000;
    let runtime = runtime(1);
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let churn = |rounds: u64| {
        runtime.block_on(async {
            for _ in 0..rounds {
                let _ = wheel.timeout(LONG, PendingOnce::default()).await;
            }
        });
    };
    churn(1000);
    let before = wheel.metrics();
    let allocated = allocation_counter::measure(|| churn(ROUNDS));
    let after = wheel.metrics();
    let per_timeout = |n: u64| n as f64 / ROUNDS as f64;
    println!(
        "once warm, for each of {ROUNDS} timeouts: {:.6} allocations, {:.6} messages, {:.6} wake-ups",
        per_timeout(allocated.count_total),
        per_timeout(after.commands - before.commands),
        per_timeout(after.wake_ups - before.wake_ups),
    );
}

criterion_group!(benches, reuse, churn, mixed);
criterion_main!(benches);

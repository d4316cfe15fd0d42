//! Keyed timers: set, moved and removed by one and by two tasks, among few and among very many
//! others.
//!
//! The actor's work is measured too: each sample ends when the wheel has settled.
#![allow(missing_docs)]

mod support;

use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use support::{LONG, Random, runtime};
use tickwheel::{KeyedTimers, TimerWheel};
use tokio::runtime::Runtime;

/// The keys of the timers that stay begin here.
const RESIDENT: u64 = 1 << 48;

const HOUR: Duration = Duration::from_secs(3600);

/// After how many operations a producer lets other tasks run.
const AT_A_TIME: u64 = 64;

type Timers = KeyedTimers<u64, u64>;

/// Something done with timers: the producer and the number of the round are given.
type Round = fn(&Timers, &mut Random, u64, u64, u64);

fn triple(timers: &Timers, _: &mut Random, _: u64, producer: u64, n: u64) {
    let key = producer << 32 | n;
    timers.set_timer(key, n, LONG).expect("there is room");
    timers.move_timer(&key, LONG * 2).expect("it is open");
    timers.remove_timer(&key).expect("it is open");
}

/// To later, by a millisecond to a quarter of an hour.
fn later(timers: &Timers, random: &mut Random, resident: u64, _: u64, _: u64) {
    let key = RESIDENT + random.below(resident);
    let delay = HOUR * 2 + Duration::from_millis(random.below(900_000));
    timers.move_timer(&key, delay).expect("it is open");
}

/// To anywhere in the next hours, which is earlier as often as later.
fn anywhere(timers: &Timers, random: &mut Random, resident: u64, _: u64, _: u64) {
    let key = RESIDENT + random.below(resident);
    let delay = HOUR + Duration::from_millis(random.below(7_200_000));
    timers.move_timer(&key, delay).expect("it is open");
}

/// The key is there: value and deadline are replaced.
fn again(timers: &Timers, random: &mut Random, resident: u64, _: u64, n: u64) {
    let key = RESIDENT + random.below(resident);
    timers.set_timer(key, n, HOUR * 3).expect("there is room");
}

fn produce(
    runtime: &Runtime,
    wheel: &TimerWheel,
    timers: &Timers,
    (producers, resident): (u64, u64),
    rounds: u64,
    round: Round,
) -> Duration {
    let each = rounds.div_ceil(producers);
    runtime.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..producers)
            .map(|producer| {
                let timers = timers.clone();
                tokio::spawn(async move {
                    let mut random = Random::new(producer);
                    for n in 0..each {
                        round(&timers, &mut random, resident, producer, n);
                        if n % AT_A_TIME == 0 {
                            tokio::task::yield_now().await;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no producer panics");
        }
        wheel.settle().await;
        support::share(start.elapsed(), rounds, each * producers)
    })
}

fn keyed(c: &mut Criterion) {
    let runtime = runtime(2);
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let rounds: [(&str, Round); 4] = [
        ("set + move + remove", triple),
        ("move later", later),
        ("move anywhere", anywhere),
        ("set again", again),
    ];
    for resident in [1_000, 100_000, 1_000_000] {
        let (timers, _expirations) = wheel.keyed();
        let mut random = Random::new(resident);
        for key in 0..resident {
            let delay = HOUR + Duration::from_millis(random.below(7_200_000));
            (timers.set_timer(RESIDENT + key, key, delay)).expect("there is room");
        }
        runtime.block_on(wheel.settle());
        for (name, round) in rounds {
            let mut group = c.benchmark_group(format!("keyed: {name}, {resident} resident"));
            for producers in [1, 2] {
                let id = BenchmarkId::new("producers", producers);
                group.bench_with_input(id, &producers, |b, &producers| {
                    b.iter_custom(|n| {
                        produce(&runtime, &wheel, &timers, (producers, resident), n, round)
                    });
                });
            }
            group.finish();
        }
        timers.drain().expect("it is open");
    }
}

criterion_group!(benches, keyed);
criterion_main!(benches);

//! The workloads that measure memory, in a program with an allocator that counts. `peers` starts
//! it.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use allocation_counter::{AllocationInfo, measure};
use fastrand::Rng;
use tickwheel_peers::keyed::Queue;
use tickwheel_peers::measure::{Scale, emit};
use tickwheel_peers::sides::{PendingOnce, Side, Timer, runtime, wheel_on, with_side};
use tokio::runtime::Runtime;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scale = Scale {
        quick: arguments.iter().any(|argument| argument == "--quick"),
    };
    match arguments.first().map(String::as_str) {
        Some("bytes") => {
            bytes_of_keyed(scale);
            bytes_of_sleeps(scale);
            tasks(scale);
        }
        Some("allocations") => allocations(scale),
        _ => {
            eprintln!("this is started by `peers`");
            std::process::exit(2);
        }
    }
}

/// Counts the allocations of the future, which runs on this thread.
fn measured<T>(runtime: &Runtime, future: impl Future<Output = T>) -> (T, AllocationInfo) {
    let mut result = None;
    let info = measure(|| result = Some(runtime.block_on(future)));
    (result.expect("it has run"), info)
}

fn timers(scale: Scale) -> u64 {
    scale.pick(100_000, 1_000_000)
}

/// One to two hours.
fn delay(rng: &mut Rng) -> Duration {
    Duration::from_millis(rng.u64(3_600_000..7_200_000))
}

/// The bytes of each: those that its owner holds, and those allocated.
fn emit_bytes(series: &str, inline: usize, info: &AllocationInfo, number: u64) {
    let allocated = info.bytes_current as f64 / number as f64;
    emit(series, "bytes", inline as f64 + allocated);
}

/// S10: bytes for each pending timer with a key, and each watch.
fn bytes_of_keyed(scale: Scale) {
    let timers = timers(scale);
    let mut rng = Rng::with_seed(10);
    let mut delay = || delay(&mut rng);
    let runtime = runtime(1);

    let wheel = wheel_on(&runtime);
    let (keyed, _expirations) = wheel.keyed::<u64, u64>();
    let ((), info) = measured(&runtime, async {
        for key in 0..timers {
            (keyed.set_timer(key, key, delay())).expect("there is room");
        }
        wheel.settle().await;
        wheel.settle().await; // a queue that was long gives its memory back when it is next used
    });
    assert_eq!(keyed.len() as u64, timers);
    emit_bytes("tickwheel", 0, &info, timers);

    let (_queue, info) = measured(&runtime, async {
        let mut queue = Queue::default();
        for key in 0..timers {
            queue.set(key, key, delay());
        }
        queue
    });
    emit_bytes("DelayQueue", 0, &info, timers);

    let (reaper, _expirations) = wheel.reaper::<u64, u64>(Duration::from_hours(1));
    let mut watches = Vec::with_capacity(usize::try_from(timers).expect("it fits"));
    let ((), info) = measured(&runtime, async {
        for key in 0..timers {
            watches.push(reaper.watch(key, key).expect("there is room"));
        }
        wheel.settle().await;
        wheel.settle().await;
    });
    let inline = size_of::<tickwheel::WatchGuard>();
    emit_bytes("tickwheel, a Watch", inline, &info, timers);
    drop(watches);
}

/// The same for sleeps, on a runtime where no other timer leaves memory that is given back
/// meanwhile.
fn bytes_of_sleeps(scale: Scale) {
    let timers = timers(scale);
    let mut rng = Rng::with_seed(10);
    let mut delay = || delay(&mut rng);
    let runtime = runtime(1);
    let wheel = wheel_on(&runtime);
    // The vector is allocated before, so that only the timers count.
    let mut sleeps = Vec::with_capacity(usize::try_from(timers).expect("it fits"));
    let ((), info) = measured(&runtime, async {
        for _ in 0..timers {
            let mut sleep = Box::pin(tokio::time::sleep(delay()));
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(sleep.as_mut().poll(cx).is_pending());
            sleeps.push(sleep);
        }
    });
    emit_bytes("tokio::time, a boxed Sleep", 0, &info, timers);

    let mut sleeps = Vec::with_capacity(usize::try_from(timers).expect("it fits"));
    let ((), info) = measured(&runtime, async {
        for _ in 0..timers {
            let mut sleep = wheel.sleep(delay());
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(pin!(&mut sleep).poll(cx).is_pending());
            sleeps.push(sleep);
        }
        wheel.settle().await;
        wheel.settle().await;
    });
    let inline = size_of::<tickwheel::Sleep>();
    emit_bytes("tickwheel, a Sleep", inline, &info, timers);
}

/// S3: bytes for each task that sleeps, by how many words it holds besides. Tokio's tasks come in
/// sizes of 128 bytes each.
fn tasks(scale: Scale) {
    for side in [Side::Tokio, Side::Tickwheel, Side::Ambient] {
        task::<0>(scale, side);
        task::<2>(scale, side);
        task::<4>(scale, side);
        task::<6>(scale, side);
        task::<8>(scale, side);
        task::<12>(scale, side);
    }
}

fn task<const WORDS: usize>(scale: Scale, side: Side) {
    let tasks: u64 = scale.pick(10_000, 100_000);
    let runtime = runtime(1);
    let wheel = wheel_on(&runtime);
    let ((), info) = with_side!(side, wheel, |timer| measured(&runtime, async {
        for task in 0..tasks {
            let (held, timer) = ([task; WORDS], timer.clone());
            tokio::spawn(async move {
                timer.sleep(Duration::from_hours(1)).await;
                black_box(held);
            });
        }
        tokio::task::yield_now().await;
        tickwheel::time::wheel().settle().await;
        wheel.settle().await;
        wheel.settle().await; // a queue that was long gives its memory back when it is next used
    }));
    let series = format!("{}, {WORDS} words", side.name());
    emit_bytes(&series, 0, &info, tasks);
}

/// How often a timeout allocates that is armed and cancelled, once the first ones are over.
fn allocations(scale: Scale) {
    let timeouts = scale.pick(10_000, 100_000);
    let runtime = runtime(1);
    let wheel = wheel_on(&runtime);
    for side in Side::ALL.into_iter().filter(|&side| side != Side::Floor) {
        with_side!(side, wheel, |timer| {
            let churn = async |timeouts: u32| {
                for _ in 0..timeouts {
                    let length = Duration::from_secs(30);
                    timer.timeout(length, PendingOnce::default()).await;
                }
            };
            runtime.block_on(churn(1_000));
            let ((), info) = measured(&runtime, churn(timeouts));
            let per_timeout = |n: u64| n as f64 / f64::from(timeouts);
            emit(side.name(), "allocations", per_timeout(info.count_total));
            emit(side.name(), "bytes", per_timeout(info.bytes_total));
        });
    }
}

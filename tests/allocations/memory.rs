//! Memory is freed: the memory of a dropped sleep does not wait for its deadline, and that of keyed timers goes back when
//! they have ended.
//!
//! Only the allocations of the measuring thread are counted, and everything runs on that thread.

use std::future::Future;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{HOUR, ms, poll_idly, reset, start_wheel};
use allocation_counter::{AllocationInfo, measure};
use tickwheel::{Expirations, Sleep, TimerWheel};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{self, Instant};
use tokio_test::assert_pending;

const MILLION: usize = 1_000_000;

/// The memory that queues, levels and pools may keep, however many timers there were.
const KEPT_BYTES: i64 = 200_000;

fn paused_runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

/// A wheel that has been used, so that it has made its allocations of the first use.
fn used_wheel(runtime: &Runtime) -> TimerWheel {
    runtime.block_on(async {
        let wheel = start_wheel();
        drop(armed(&wheel, 10));
        wheel.sleep(ms(1)).await;
        wheel.settle().await;
        wheel
    })
}

/// Counts the allocations of the future.
fn measured(runtime: &Runtime, future: impl Future<Output = ()>) -> AllocationInfo {
    let mut future = Some(future);
    measure(|| runtime.block_on(future.take().expect("it is called once")))
}

fn armed(wheel: &TimerWheel, n: usize) -> Vec<Sleep> {
    let length = |n| HOUR + ms(n as u64 % 10_000);
    let mut sleeps: Vec<_> = (0..n).map(|n| wheel.sleep(length(n))).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    sleeps
}

/// Lets the actor take turns, each of which frees some memory.
async fn yield_often() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Asserts that the timers took at least this many bytes, and that their memory was freed.
fn assert_freed(info: &AllocationInfo, at_least: u64) {
    assert!(info.bytes_max > at_least, "{info:?}");
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

/// Receives everything that was delivered. Returns how many expirations that were.
fn receive_all<K, V>(stream: &mut Expirations<K, V>) -> u64 {
    std::iter::from_fn(|| stream.try_recv().ok()).count() as u64
}

#[test]
fn p7_million_sleeps_in_turn_reuse_memory() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        for _ in 0..MILLION {
            let mut sleep = wheel.sleep(HOUR);
            assert_pending!(poll_idly(&mut sleep));
        }
        wheel.settle().await;
    });
    assert!(info.count_total < 100, "{info:?}");
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
    assert_eq!(wheel.metrics().sleeps_cancelled, MILLION as u64 + 10);
}

// Netty keeps cancelled timeouts until its wheel reaches their bucket.
#[test]
fn p7_million_dropped_sleeps_are_freed_early() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let sleeps = armed(&wheel, MILLION);
        wheel.settle().await;
        drop(sleeps);
        wheel.settle().await;
        yield_often().await;
        assert!(wheel.metrics().sleeps_cancelled > MILLION as u64);
    });
    assert!(
        info.count_max >= MILLION as u64,
        "not a million at a time: {info:?}"
    );
    assert!(info.count_current < 1_000, "{info:?}");
    // The thread's pool keeps a few cancelled entries, and the wheel keeps the chunks with their nodes.
    assert!(info.bytes_current < 2 * KEPT_BYTES, "{info:?}");
    let emptied = measured(&runtime, async {
        time::advance(HOUR * 2).await;
        wheel.settle().await;
        tokio::task::yield_now().await;
    });
    assert!(
        info.bytes_current + emptied.bytes_current < KEPT_BYTES,
        "{emptied:?}"
    );
}

// Only memory behind the last survivor once went back: one sleep of a million kept 24 MB.
#[test]
fn p7_one_sleep_that_stays_keeps_little_memory() {
    const MANY: usize = MILLION / 4;
    for stays in [0, MANY / 2, MANY - 1] {
        let runtime = paused_runtime();
        let wheel = used_wheel(&runtime);
        let mut survivor = None;
        let info = measured(&runtime, async {
            let mut sleeps = armed(&wheel, MANY);
            wheel.settle().await;
            survivor = Some(sleeps.swap_remove(stays));
            drop(sleeps);
            wheel.settle().await;
            yield_often().await;
        });
        assert!(info.bytes_max > 20_000_000, "{info:?}");
        // The thread's pool keeps some cancelled sleeps, which may lie in chunks of their own.
        assert!(info.bytes_current < 3 * KEPT_BYTES, "{stays}: {info:?}");
    }
}

#[test]
fn p7_sleeps_dropped_without_a_barrier_leave_little() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        for _ in 0..50 {
            drop(armed(&wheel, 2_000));
            // The actor runs like any task; nothing waits for it.
            tokio::task::yield_now().await;
        }
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    });
    assert!(info.bytes_current < 3 * KEPT_BYTES, "{info:?}");
}

#[test]
fn keeps_nothing_of_sleeps_that_fired() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let sleeps = armed(&wheel, 100_000);
        wheel.settle().await;
        time::advance(HOUR * 2).await;
        wheel.settle().await;
        assert!(sleeps.iter().all(Sleep::is_elapsed));
        drop(sleeps);
        // Sleeps that each fire before the next one is made leave nothing either.
        for _ in 0..10_000 {
            wheel.sleep(ms(1)).await;
        }
    });
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

#[test]
fn keeps_nothing_allocated_by_moving_a_sleep() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let info = measured(&runtime, async {
        let mut sleeps = armed(&wheel, 100);
        for n in 0..2_000 {
            for sleep in &mut sleeps {
                let length = ms(1_000 + n * 7919 % 100_000);
                reset(sleep, Instant::now() + length);
            }
            time::advance(ms(1)).await;
        }
        wheel.settle().await;
        assert!(wheel.metrics().sleeps_moved >= 100_000);
    });
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

#[test]
fn leaks_no_sleep_pending_when_its_runtime_is_dropped() {
    let round = || {
        let runtime = paused_runtime();
        let (wheel, sleeps) = runtime.block_on(async {
            let wheel = start_wheel();
            let sleeps = armed(&wheel, 50_000);
            for sleep in armed(&wheel, 50_000) {
                tokio::spawn(sleep);
            }
            wheel.settle().await;
            (wheel, sleeps)
        });
        drop(runtime);
        drop((wheel, sleeps));
    };
    round(); // makes the allocations that the thread and the process keep
    let info = measure(round);
    assert_freed(&info, 5_000_000);
}

#[test]
fn keeps_nothing_of_wheels_that_ended() {
    let runtime = paused_runtime();
    let come_and_go = async |wheels: usize| {
        for n in 0..wheels {
            let wheel = start_wheel();
            drop(armed(&wheel, 20));
            wheel.sleep(ms(1)).await;
            if n % 2 == 0 {
                wheel.shutdown().await;
            }
            let (timers, expirations) = wheel.keyed::<u32, u32>();
            let _ = timers.set_timer(1, 2, HOUR);
            drop((wheel, timers, expirations));
            tokio::task::yield_now().await;
        }
    };
    runtime.block_on(come_and_go(10));
    let info = measured(&runtime, come_and_go(1_000));
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

#[test]
fn keeps_nothing_on_the_wheel_of_threads_that_ended() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let come_and_go = |threads| {
        for _ in 0..threads {
            let wheel = wheel.clone();
            std::thread::spawn(move || drop(armed(&wheel, 100)))
                .join()
                .unwrap();
        }
        runtime.block_on(wheel.settle());
    };
    come_and_go(10);
    // The actor runs on this thread. It allocates nodes for the sleeps, and has to free them.
    let info = measure(|| come_and_go(200));
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
    assert_eq!(wheel.metrics().sleeps_pending, 0);
    // Entries that had stayed would cost turns.
    let turns = wheel.metrics().turns;
    runtime.block_on(async { time::sleep(HOUR * 2).await });
    assert!(
        wheel.metrics().turns - turns < 10,
        "{}",
        wheel.metrics().turns - turns
    );
}

#[test]
fn keeps_memory_flat_over_sets_dropped_and_made_again() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let make_and_drop = async |sets: u64| {
        for round in 0..sets {
            let (timers, stream) = wheel.keyed();
            for key in 0..100_u64 {
                timers.set_timer(key, [round; 16], HOUR).unwrap();
            }
            if round % 2 == 0 {
                drop(stream);
            }
            drop(timers);
            if round % 16 == 0 {
                tokio::task::yield_now().await;
            }
        }
        wheel.settle().await;
    };
    runtime.block_on(make_and_drop(500));
    let info = measured(&runtime, make_and_drop(3_500));
    // Sets that were kept would take over 50 MB.
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

#[test]
fn forgets_ten_thousand_dropped_sets() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let come_and_go = async |sets: u64| {
        for _ in 0..sets {
            let (timers, expirations) = wheel.keyed::<u64, u64>();
            timers.set_timer(1, 1, HOUR).unwrap();
            drop((timers, expirations));
            wheel.settle().await;
        }
    };
    runtime.block_on(come_and_go(10));
    let info = measured(&runtime, come_and_go(10_000));
    assert!(info.bytes_current < 20_000, "{info:?}");
    assert_eq!(wheel.metrics().keyed_drained, 10_010);
}

/// More timers than any part keeps memory for.
const CROWD: u64 = 300_000;

#[test]
fn frees_the_memory_of_keyed_timers_received() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let info = measured(&runtime, async {
        for key in 0..CROWD {
            timers.set_timer(key, key, ms(key % 100)).unwrap();
        }
        let mut received = Vec::new();
        let mut n = 0;
        while n < CROWD {
            n += stream.recv_many(&mut received, 1_000).await as u64;
            received.clear();
        }
        drop(received);
        wheel.settle().await;
    });
    assert_freed(&info, 10_000_000);
    drop((timers, stream));
}

#[test]
fn frees_the_memory_of_keyed_timers_received_late() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let info = measured(&runtime, async {
        for key in 0..CROWD {
            timers.set_timer(key, key, ms(key % 100)).unwrap();
        }
        time::advance(ms(100)).await;
        wheel.settle().await;
        assert!(timers.is_empty());
        assert_eq!(receive_all(&mut stream), CROWD);
        wheel.settle().await;
    });
    assert_freed(&info, 10_000_000);
    drop((timers, stream));
}

#[test]
fn frees_the_memory_of_keyed_timers_removed_or_drained() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, stream) = wheel.keyed::<u64, u64>();
    let info = measured(&runtime, async {
        for is_drained in [false, true] {
            for key in 0..CROWD {
                timers.set_timer(key, key, HOUR).unwrap();
            }
            wheel.settle().await;
            if is_drained {
                assert_eq!(timers.drain().unwrap().len() as u64, CROWD);
            } else {
                for key in 0..CROWD {
                    assert_eq!(timers.remove_timer(&key), Ok(Some(key)));
                }
            }
            wheel.settle().await;
        }
        yield_often().await;
    });
    assert_freed(&info, 10_000_000);
    drop((timers, stream));
}

#[test]
fn one_keyed_timer_that_stays_keeps_little_memory() {
    const MANY: u64 = MILLION as u64 / 4;
    for stays in [0, MANY / 2, MANY - 1] {
        let runtime = paused_runtime();
        let wheel = used_wheel(&runtime);
        let (timers, stream) = wheel.keyed::<u64, u64>();
        let info = measured(&runtime, async {
            for key in 0..MANY {
                timers.set_timer(key, key, HOUR).unwrap();
            }
            wheel.settle().await;
            for key in (0..MANY).filter(|&key| key != stays) {
                assert_eq!(timers.remove_timer(&key), Ok(Some(key)));
            }
            wheel.settle().await;
            yield_often().await;
        });
        assert!(info.bytes_max > 20_000_000, "{info:?}");
        assert!(info.bytes_current < 4 * KEPT_BYTES, "{stays}: {info:?}");
        drop((timers, stream));
    }
}

#[test]
fn frees_the_memory_of_intervals() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let info = measured(&runtime, async {
        for key in 0..CROWD {
            timers.set_interval(key, key, HOUR).unwrap();
        }
        time::advance(HOUR).await;
        wheel.settle().await;
        assert_eq!(receive_all(&mut stream), CROWD);
        for key in 0..CROWD {
            timers.remove_timer(&key).unwrap();
        }
        wheel.settle().await;
        yield_often().await;
    });
    assert_freed(&info, 10_000_000);
    drop((timers, stream));
}

#[test]
fn frees_the_memory_of_watches_reaped() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (reaper, mut idle) = wheel.reaper::<u64, u64>(HOUR);
    let info = measured(&runtime, async {
        let watches: Vec<_> = (0..CROWD)
            .map(|key| reaper.watch(key, key).unwrap())
            .collect();
        let mut n = 0;
        while n < CROWD {
            assert_eq!(idle.recv().await.map(|expired| expired.key), Some(n));
            n += 1;
        }
        assert!(watches.iter().all(|watch| !watch.touch()));
        drop(watches);
        wheel.settle().await;
    });
    assert_freed(&info, 10_000_000);
    drop((reaper, idle));
}

/// A key whose `Hash` panics once its switch is set.
struct PanickingHash(u64, Arc<AtomicBool>);

impl Hash for PanickingHash {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(!self.1.load(Ordering::SeqCst), "Hash panics");
        self.0.hash(state);
    }
}

impl PartialEq for PanickingHash {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for PanickingHash {}

#[test]
fn frees_the_memory_of_keys_whose_hash_panics() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<PanickingHash, u64>();
    let calm = Arc::new(AtomicBool::new(false));
    let info = measured(&runtime, async {
        for round in 0..5 {
            let switch = Arc::new(AtomicBool::new(false));
            for key in 0..20_000 {
                let key = PanickingHash(key, Arc::clone(&switch));
                timers.set_timer(key, round, HOUR).unwrap();
            }
            wheel.settle().await;
            switch.store(true, Ordering::SeqCst);
            match round {
                // Equal keys whose `Hash` does not panic find them.
                0 => {
                    for key in 0..20_000 {
                        let removed = timers.remove_timer(&PanickingHash(key, Arc::clone(&calm)));
                        assert_eq!(removed, Ok(Some(round)));
                    }
                }
                1 => assert_eq!(timers.drain().unwrap().len(), 20_000),
                _ => {
                    time::advance(HOUR).await;
                    wheel.settle().await;
                    for key in 0..20_000 {
                        assert_eq!(stream.try_recv().unwrap().key.0, key);
                    }
                }
            }
            assert!(timers.is_empty());
        }
        wheel.settle().await;
        yield_often().await;
    });
    assert_freed(&info, 1_000_000);
    drop((timers, stream));
}

#[test]
fn uses_the_memory_of_removed_timers_again() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, stream) = wheel.keyed::<u64, u64>();
    let rounds = async |rounds: u64| {
        for round in 0..rounds {
            for key in 0..500 {
                timers.set_timer(key, round, HOUR).unwrap();
            }
            for key in 0..500 {
                assert_eq!(timers.remove_timer(&key), Ok(Some(round)));
            }
            if round % 7 == 0 {
                wheel.settle().await;
            }
        }
        wheel.settle().await;
    };
    runtime.block_on(rounds(20));
    let info = measured(&runtime, rounds(2_000));
    assert!(info.bytes_max < 200_000, "{info:?}");
    assert!(info.bytes_current < 50_000, "{info:?}");
    drop((timers, stream));
}

/// When the last timer fires after the last handle is gone, no call notifies the actor that the set is over.
#[test]
fn keeps_memory_flat_over_sets_whose_last_timer_fired_last() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let come_and_go = async |sets: u64| {
        for n in 0..sets {
            let (timers, mut stream) = wheel.keyed();
            timers.set_timer(n, [n; 16], ms(5)).unwrap();
            wheel.settle().await;
            drop(timers);
            assert_eq!(stream.recv().await.map(|expired| expired.key), Some(n));
            assert!(stream.recv().await.is_none());
        }
        wheel.settle().await;
    };
    runtime.block_on(come_and_go(100));
    let info = measured(&runtime, come_and_go(2_000));
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

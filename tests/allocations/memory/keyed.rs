//! The memory of keyed timers, intervals and watches that have ended.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{HOUR, ms};
use allocation_counter::AllocationInfo;
use tickwheel::{Expirations, KeyedTimers};
use tokio::time;

use super::{
    KEPT_BYTES, MILLION, assert_freed, measured, paused_runtime, settle_and_free, used_wheel,
};

/// More timers than any part keeps memory for.
const CROWD: u64 = 300_000;

/// Sets a timer for each key below `keys`, with the key as value.
fn set_many(timers: &KeyedTimers<u64, u64>, keys: u64, delay: impl Fn(u64) -> Duration) {
    for key in 0..keys {
        timers.set_timer(key, key, delay(key)).unwrap();
    }
}

/// Asserts that the memory of a crowd was freed, except for one slot that the set keeps, with its
/// node, in chunks of their own.
fn assert_freed_but_a_slot(info: &AllocationInfo) {
    assert!(info.bytes_max > 10_000_000, "{info:?}");
    assert!(info.bytes_current < 3 * KEPT_BYTES, "{info:?}");
}

/// Receives everything that is due. Returns how many expirations that were.
fn receive_all<K, V>(stream: &mut Expirations<K, V>) -> u64 {
    std::iter::from_fn(|| stream.try_recv().ok()).count() as u64
}

#[test]
fn frees_the_memory_of_keyed_timers_received() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let info = measured(&runtime, async {
        set_many(&timers, CROWD, |key| ms(key % 100));
        let mut received = Vec::new();
        let mut n = 0;
        while n < CROWD {
            n += stream.recv_many(&mut received, 1_000).await as u64;
            received.clear();
        }
        drop(received);
        settle_and_free(&wheel).await;
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
        set_many(&timers, CROWD, |key| ms(key % 100));
        time::advance(ms(100)).await;
        wheel.settle().await;
        assert_eq!(timers.len() as u64, CROWD);
        assert_eq!(receive_all(&mut stream), CROWD);
        assert!(timers.is_empty());
        settle_and_free(&wheel).await;
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
            set_many(&timers, CROWD, |_| HOUR);
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
        settle_and_free(&wheel).await;
    });
    assert_freed_but_a_slot(&info);
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
            set_many(&timers, MANY, |_| HOUR);
            wheel.settle().await;
            for key in (0..MANY).filter(|&key| key != stays) {
                assert_eq!(timers.remove_timer(&key), Ok(Some(key)));
            }
            settle_and_free(&wheel).await;
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
        settle_and_free(&wheel).await;
    });
    assert_freed_but_a_slot(&info);
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

/// The wheel reaches all of them again and again while the reader is away.
#[test]
fn p10_intervals_of_a_stalled_consumer_take_no_more_memory() {
    const INTERVALS: u64 = 10_000;
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let set = measured(&runtime, async {
        for key in 0..INTERVALS {
            timers.set_interval(key, key, ms(10)).unwrap();
        }
        wheel.settle().await;
    });
    let stall = measured(&runtime, async {
        for _ in 0..300 {
            time::advance(ms(10)).await;
            wheel.settle().await;
        }
    });
    // An index each, which the reader has to look at.
    assert!(stall.bytes_current < 200_000, "{set:?}, {stall:?}");
    let read = measured(&runtime, async {
        assert_eq!(receive_all(&mut stream), INTERVALS, "one of each is left");
    });
    assert!(read.bytes_current < 200_000, "{read:?}");
    drop((timers, stream));
}

/// A timer that is moved later each time that the wheel has reached it leaves a hint each time. The
/// reader is away.
#[test]
fn moves_of_a_set_that_no_task_reads_take_no_more_memory() {
    const TIMERS: u64 = 1_000;
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, stream) = wheel.keyed::<u64, u64>();
    set_many(&timers, TIMERS, |_| ms(5));
    let info = measured(&runtime, async {
        for _ in 0..1_000 {
            time::advance(ms(5)).await;
            wheel.settle().await;
            for key in 0..TIMERS {
                assert_eq!(timers.move_timer(&key, ms(4)), Ok(true));
                assert_eq!(timers.move_timer(&key, ms(5)), Ok(true));
            }
        }
    });
    assert!(info.bytes_current < 500_000, "{info:?}");
    drop((timers, stream));
}

/// A key that panics in `Hash` once its switch is set.
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
                // Equal keys that do not panic in `Hash` find them.
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
        settle_and_free(&wheel).await;
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

#[test]
fn pending_keyed_timer_takes_110_bytes_at_most() {
    let runtime = paused_runtime();
    let wheel = used_wheel(&runtime);
    let (timers, stream) = wheel.keyed::<u64, u64>();
    let many = MILLION as u64;
    let info = measured(&runtime, async {
        set_many(&timers, many, |_| HOUR);
        settle_and_free(&wheel).await;
    });
    let bytes = info.bytes_current / i64::try_from(many).unwrap();
    assert!(bytes <= 110, "{bytes} bytes");
    drop((timers, stream));
}

//! The memory of sets that were dropped.

use crate::support::{HOUR, ms};

use super::{KEPT_BYTES, measured, paused_runtime, used_wheel};

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

/// When the last timer fires after the last handle is gone, no call notifies the actor that the set
/// is over.
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

//! The memory of sleeps after their runtime, wheel or thread has ended.

use crate::support::{HOUR, ms, start_wheel};
use allocation_counter::measure;
use tokio::time;

use super::{
    KEPT_BYTES, armed, assert_freed, measured, paused_runtime, settle_and_free, used_wheel,
};

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
            std::thread::spawn(move || drop(armed(&wheel, 200)))
                .join()
                .unwrap();
        }
        runtime.block_on(settle_and_free(&wheel));
    };
    come_and_go(10);
    // The actor runs on this thread. It allocates nodes for the sleeps, and has to free them.
    let info = measure(|| come_and_go(200));
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
    assert_eq!(wheel.metrics().sleeps_pending, 0);
    // Entries that had stayed would cost turns, as the nine do that this thread keeps.
    let before = wheel.metrics().turns;
    runtime.block_on(async { time::sleep(HOUR * 2).await });
    let turns = wheel.metrics().turns - before;
    assert!(turns < 15, "{turns}");
}

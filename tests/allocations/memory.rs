//! Memory is freed: the memory of a dropped sleep does not wait for its deadline, and that of keyed
//! timers goes back when they have ended.
//!
//! Only the allocations of the measuring thread are counted, and everything runs on that thread.

mod ends;
mod keyed;
mod sets;
mod sleeps;

use std::future::Future;

use crate::support::{HOUR, ms, poll_idly, start_wheel};
use allocation_counter::{AllocationInfo, measure};
use tickwheel::{Sleep, TimerWheel};
use tokio::runtime::{Builder, Runtime};
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

/// Lets the actor do what is left, and take turns, each of which frees some memory. A sweep of a
/// million sleeps takes 250 turns.
async fn settle_and_free(wheel: &TimerWheel) {
    wheel.settle().await;
    for _ in 0..600 {
        tokio::task::yield_now().await;
    }
}

/// Asserts that the timers took at least this many bytes, and that their memory was freed.
fn assert_freed(info: &AllocationInfo, at_least: u64) {
    assert!(info.bytes_max > at_least, "{info:?}");
    assert!(info.bytes_current < KEPT_BYTES, "{info:?}");
}

//! Handlers that block threads, on the real clock and two threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tickwheel::TimerWheel;
use tickwheel_durable::{Memory, Retry};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{sleep, timeout};

use super::{Instance, SECOND, orders, set};

const TIMERS: usize = 8;
const LEASE: Duration = Duration::from_secs(2);
const BLOCKS: Duration = Duration::from_secs(3);

/// An instance with timers that are due now.
async fn start(store: Memory) -> Instance {
    let builder = orders().lease(LEASE).call_timeout(SECOND);
    let started = builder.start(&TimerWheel::new(), store).await;
    let (timers, claims) = started.expect("it starts");
    for key in 0..TIMERS {
        let set = set(&timers, &key.to_string(), Duration::ZERO).await;
        set.expect("it is set");
    }
    (timers, claims)
}

/// The page sent such handlers to `dispatch_spawned`: 36 runs of 8 timers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handlers_that_block_in_spawn_blocking_run_once() {
    let (timers, mut claims) = start(Memory::new()).await;
    let runs = Arc::<AtomicUsize>::default();
    let handling: JoinHandle<()> = tokio::spawn({
        let runs = Arc::clone(&runs);
        async move {
            let handler = |_| {
                let runs = Arc::clone(&runs);
                async move {
                    runs.fetch_add(1, Ordering::Relaxed);
                    let blocking = spawn_blocking(|| std::thread::sleep(BLOCKS));
                    blocking.await.map_err(Retry::from)
                }
            };
            claims.dispatch(TIMERS, handler).await;
        }
    });
    loop {
        let counts = timers.counts().await.expect("it counts");
        if (counts.waiting, counts.in_flight) == (0, 0) {
            break;
        }
        sleep(SECOND / 20).await;
    }
    timers.shutdown().await;
    handling.await.expect("it ends");
    let metrics = timers.metrics();
    assert!(metrics.renewed > 0, "{metrics:?}");
    assert_eq!((runs.load(Ordering::Relaxed), metrics.lost), (TIMERS, 0));
}

/// Why the page does not send them to `dispatch_spawned`: they block all threads of the runtime,
/// nothing is renewed, and another process delivers the timers again.
#[test]
fn handlers_that_block_all_threads_lose_their_leases() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let blocked = runtime.worker_threads(2).enable_all().build();
    let blocked = blocked.expect("it starts");
    let store = Memory::new();
    let (timers, mut claims) = blocked.block_on(start(store.clone()));
    blocked.spawn(async move {
        let handler = |_| async {
            std::thread::sleep(BLOCKS);
            Ok(())
        };
        claims.dispatch_spawned(TIMERS, handler).await;
    });
    while timers.metrics().delivered < TIMERS as u64 {
        std::thread::sleep(SECOND / 20);
    }
    let mut other = tokio::runtime::Builder::new_current_thread();
    let other = other.enable_all().build().expect("it starts");
    other.block_on(async {
        let started = orders().start(&TimerWheel::new(), store).await;
        let (_timers, mut claims) = started.expect("it starts");
        let again = timeout(SECOND * 60, claims.recv()).await;
        let again = again.expect("a lease ends").expect("the stream goes on");
        assert_eq!(again.attempt, 2);
    });
    blocked.shutdown_background();
}

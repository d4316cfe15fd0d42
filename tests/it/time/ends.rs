//! Timers after the end of their wheel or runtime.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context, Poll};

use tokio::runtime::Runtime;

use super::{current_thread, made, multi_thread};
use crate::support::{HOUR, ms, poll_idly};
use tickwheel::time::{self, Instant, Sleep};

#[tokio::test(start_paused = true)]
async fn starts_another_wheel_after_a_shutdown() {
    drop(time::wheel());
    let start = Instant::now();
    let pending = tokio::spawn(time::sleep(ms(100)));
    let timeout = time::timeout(ms(50), std::future::pending::<()>());
    tokio::task::yield_now().await;
    let first = time::wheel();
    assert_eq!(first.metrics().sleeps_made, 2);
    first.shutdown().await;

    drop(time::wheel());
    time::sleep(ms(10)).await;
    assert_eq!(start.elapsed(), ms(10));
    assert!(!time::wheel().is_shutdown());
    assert_eq!(made(), 1);
    // Those of the first wheel go on with Tokio's timer.
    assert!(timeout.await.is_err());
    assert_eq!(start.elapsed(), ms(50));
    pending.await.unwrap();
    assert_eq!(start.elapsed(), ms(100));
    assert_eq!(made(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_another_wheel_for_all_workers_after_a_shutdown() {
    for _ in 0..20 {
        time::wheel().shutdown().await;
        let tasks = (0..8).map(|_| tokio::spawn(async { drop(time::sleep(HOUR)) }));
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        assert_eq!(made(), 8);
    }
}

/// A sleep that waits on the wheel of this runtime. Its length doubles until its first poll comes
/// before its deadline.
fn waiting_sleep(runtime: &Runtime) -> Sleep {
    let _within = runtime.enter();
    let mut sleeps = (0..12).map(|n| time::sleep(ms(20 << n)));
    let waits = |sleep: &mut Sleep| poll_idly(sleep).is_pending();
    let sleep = sleeps.find_map(|mut sleep| waits(&mut sleep).then_some(sleep));
    sleep.expect("a sleep of 40 s is polled within that time")
}

#[test]
fn sleep_keeps_its_deadline_when_its_runtime_is_gone() {
    for runtime in [current_thread(), multi_thread(1)] {
        let sleep = waiting_sleep(&runtime);
        let deadline = sleep.deadline();
        drop(runtime);
        current_thread().block_on(sleep);
        assert!(Instant::now() >= deadline);
    }
}

/// Makes a timer when it is dropped.
struct SleepsWhenDropped(mpsc::Sender<Sleep>);

impl Drop for SleepsWhenDropped {
    fn drop(&mut self) {
        self.0.send(time::sleep(ms(1))).unwrap();
    }
}

impl Future for SleepsWhenDropped {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // It has to be polled once, so that the thread knows the wheel.
        assert!(pin!(time::sleep(HOUR)).poll(cx).is_pending());
        Poll::Pending
    }
}

#[test]
fn makes_timers_while_the_runtime_is_dropped() {
    // Not with a paused clock: those sleeps are Tokio's, and end with the runtime.
    for runtime in [current_thread(), multi_thread(2)] {
        let (send, made) = mpsc::channel();
        for _ in 0..3 {
            runtime.spawn(SleepsWhenDropped(send.clone()));
        }
        drop(send);
        runtime.block_on(async {
            // A storm of yields: every task has been polled.
            time::sleep(ms(5)).await;
        });
        drop(runtime);
        let made: Vec<Sleep> = made.iter().collect();
        assert_eq!(made.len(), 3);
        current_thread().block_on(async {
            for sleep in made {
                sleep.await;
            }
        });
    }
}

//! The timer of the example `other_runtime` under smol: never early, in order, and gone when
//! dropped.

use std::time::{Duration, Instant};

use futures_util::future::{join_all, select};
use smol::channel;

use crate::support::ms;

#[path = "../../../../examples/other_runtime/timer.rs"]
mod timer;

use timer::Timer;

#[test]
fn sleeps_wake_in_order_and_never_early_on_smol() {
    let timer = Timer::start();
    let (woke, woken) = channel::unbounded();
    smol::block_on(async {
        let tasks = [300, 100, 200, 10].map(|length| {
            let (timer, woke) = (timer.clone(), woke.clone());
            smol::spawn(async move {
                let start = Instant::now();
                timer.sleep(ms(length)).await;
                assert!(
                    start.elapsed() >= ms(length),
                    "{length} ms took {:?}",
                    start.elapsed()
                );
                let deadline = start + ms(length);
                woke.send(deadline).await.expect("it is open");
            })
        });
        join_all(tasks).await;
        // One that a busy machine starts late has a later deadline.
        let woken: Vec<_> = std::iter::from_fn(|| woken.try_recv().ok()).collect();
        assert!(woken.is_sorted() && woken.len() == 4, "{woken:?}");
    });
    assert_eq!(timer.pending(), 0);
}

#[test]
fn dropped_sleep_leaves_the_wheel() {
    let timer = Timer::start();
    smol::block_on(async {
        let limit = timer.sleep(Duration::from_hours(1));
        let never = timer.sleep(Duration::MAX);
        let work = timer.sleep(ms(5));
        drop(select(select(never, limit), work).await);
    });
    assert_eq!(timer.pending(), 0);
}

#[test]
fn many_threads_sleep_at_once() {
    let timer = Timer::start();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let timer = &timer;
            scope.spawn(move || {
                let mut lengths = fastrand::Rng::with_seed(thread);
                for _ in 0..100 {
                    let length = Duration::from_micros(lengths.u64(..3000));
                    let start = Instant::now();
                    smol::block_on(timer.sleep(length));
                    assert!(start.elapsed() >= length);
                }
            });
        }
    });
    assert_eq!(timer.pending(), 0);
}

#[test]
fn nearer_sleep_wakes_a_thread_that_waits_for_a_far_one() {
    let timer = Timer::start();
    smol::block_on(async {
        let far = smol::spawn(timer.sleep(Duration::from_hours(1)));
        // The thread parks for an hour by then.
        timer.sleep(ms(50)).await;
        timer.sleep(ms(50)).await;
        drop(far);
    });
}

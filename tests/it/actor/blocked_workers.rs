//! Promise P17: tasks that block their worker threads delay no timer while another worker is free.
//!
//! The tests use the real clock, since they are about threads. A machine under load may be late in a round or so. A task
//! that delays the actor does so in most rounds, or in every fourth, for the 600 ms for which it blocks.

use std::thread;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::Instant;

const ROUNDS: usize = 20;

/// How long a task blocks its worker.
const BLOCKED: Duration = Duration::from_millis(600);

/// A timer that is later than this was delayed by a blocked worker.
const TOO_LATE: Duration = Duration::from_millis(450);

fn four_workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(4).enable_time().build().unwrap()
}

/// Most of the rounds have to be in time; `latest` has the greatest lateness of each.
fn assert_in_time(latest: &[Duration]) {
    let late = latest.iter().filter(|&&late| late > TOO_LATE).count();
    assert!(late <= 1, "{late} of {} rounds: {latest:?}", latest.len());
}

#[test]
fn p17_fires_on_time_when_the_arming_task_blocks() {
    let latest = four_workers().block_on(async {
        let wheel = TimerWheel::new();
        let (timers, mut expirations) = wheel.keyed();
        let mut latest = Vec::new();
        for round in 0..ROUNDS {
            let timers = timers.clone();
            let arming = tokio::spawn(async move {
                let delay = Duration::from_millis(20);
                timers.set_timer(round, (), delay).unwrap();
                thread::sleep(BLOCKED);
            });
            let expired = expirations.recv().await.unwrap();
            latest.push(expired.deadline.elapsed());
            arming.await.unwrap();
        }
        latest
    });
    assert_in_time(&latest);
}

#[test]
fn p17_fires_on_time_when_a_woken_task_blocks() {
    const SLEEPERS: usize = 3_000;
    let latest = four_workers().block_on(async {
        let wheel = TimerWheel::new();
        let mut latest = Vec::new();
        for round in 0..ROUNDS {
            let deadline = Instant::now() + Duration::from_millis(50);
            let blocks = round * SLEEPERS / ROUNDS;
            let mut sleepers = JoinSet::new();
            for n in 0..SLEEPERS {
                let sleep = wheel.sleep_until(deadline);
                sleepers.spawn(async move {
                    sleep.await;
                    let late = deadline.elapsed();
                    if n == blocks {
                        thread::sleep(BLOCKED);
                    }
                    late
                });
            }
            let late = sleepers.join_all().await;
            latest.push(late.into_iter().max().unwrap());
        }
        latest
    });
    assert_in_time(&latest);
}

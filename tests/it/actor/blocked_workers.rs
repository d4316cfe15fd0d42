//! Promise P17: tasks that block their worker threads delay no timer while another worker is free.
//!
//! The tests use the real clock, since they are about threads. Beside each timer of the wheel there
//! is one of `tokio::time`, with the same deadline, in the same runtime: a busy machine holds up
//! both. A task that delays the actor does so in most rounds, or in every fourth, for the 600 ms
//! for which it blocks.

use std::future::Future;
use std::thread;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{self, Instant};

const ROUNDS: usize = 20;

/// How long a task blocks its worker.
const BLOCKED: Duration = Duration::from_millis(600);

/// A timer that is later than Tokio's by more than this was delayed by a blocked worker.
const TOO_LATE: Duration = Duration::from_millis(450);

fn four_workers() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(4).enable_all().build().unwrap()
}

/// The lateness of the wheel and of Tokio in one round.
type Round = (Duration, Duration);

/// Most of the rounds have to be in time.
fn assert_in_time(rounds: &[Round]) {
    let is_late = |(wheel, tokio): &&Round| *wheel > *tokio + TOO_LATE;
    let late = rounds.iter().filter(is_late).count();
    assert!(
        late <= 1,
        "later than Tokio in {late} of {} rounds: {rounds:?}",
        rounds.len()
    );
}

#[test]
fn p17_timer_fires_on_time_when_the_arming_task_blocks() {
    assert_in_time(&arm_and_block(|| ()));
}

/// The other runtime hides from the wheel whose worker the task runs on.
#[test]
fn p17_timer_is_on_time_if_the_arming_task_enters_a_runtime() {
    let other: &Runtime = Box::leak(Box::new(Builder::new_current_thread().build().unwrap()));
    assert_in_time(&arm_and_block(|| other.enter()));
}

/// In each round, a task enters what `enter` says, sets a timer, and blocks its worker.
fn arm_and_block<G>(enter: impl Fn() -> G + Copy + Send + 'static) -> Vec<Round> {
    four_workers().block_on(async {
        let wheel = TimerWheel::new();
        let (timers, mut expirations) = wheel.keyed();
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            let timers = timers.clone();
            let (send, tokios) = tokio::sync::oneshot::channel();
            let arming = tokio::spawn(async move {
                let delay = Duration::from_millis(20);
                let deadline = Instant::now() + delay;
                let control = tokio::spawn(async move {
                    time::sleep_until(deadline).await;
                    let _ = send.send(deadline.elapsed());
                });
                // The control waits for its deadline before this worker is blocked, as the keyed
                // timer does.
                tokio::task::yield_now().await;
                {
                    let _entered = enter();
                    timers.set_timer_at(round, (), deadline).unwrap();
                    thread::sleep(BLOCKED);
                }
                control.await.unwrap();
            });
            let expired = expirations.recv().await.unwrap();
            let late = expired.deadline.elapsed();
            arming.await.unwrap();
            rounds.push((late, tokios.await.unwrap()));
        }
        rounds
    })
}

/// Sleepers with one deadline, of which one blocks its worker when it is woken; returns the
/// greatest lateness.
async fn sleep_and_block<F>(sleep: impl Fn(Instant) -> F, round: usize) -> Duration
where
    F: Future<Output = ()> + Send + 'static,
{
    const SLEEPERS: usize = 3_000;
    let deadline = Instant::now() + Duration::from_millis(50);
    let blocks = round * SLEEPERS / ROUNDS;
    let mut sleepers = JoinSet::new();
    for n in 0..SLEEPERS {
        let sleep = sleep(deadline);
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
    late.into_iter().max().unwrap()
}

#[test]
fn p17_timer_fires_on_time_when_a_woken_task_blocks() {
    let rounds = four_workers().block_on(async {
        let wheel = TimerWheel::new();
        let mut rounds = Vec::new();
        for round in 0..ROUNDS {
            rounds.push(tokio::join!(
                sleep_and_block(|deadline| wheel.sleep_until(deadline), round),
                sleep_and_block(time::sleep_until, round),
            ));
        }
        rounds
    });
    assert_in_time(&rounds);
}

//! Promise P17: a task that blocks its worker delays timers no more than it delays Tokio's.
//!
//! The tests use the real clock, since they are about threads. Beside each timer of the wheel there
//! is one of `tokio::time`, with the same deadline, in the same runtime: a busy machine holds up
//! both. A task that delays the actor does so in most rounds, or in every fourth, for the 600 ms
//! for which it blocks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Handle, Runtime};
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

/// Sleeps with one deadline take the actor several turns, of which a driver runs the first. In its
/// middle a task is spawned from elsewhere, which blocks the worker before the actor's next turn.
#[test]
fn p17_timers_fire_on_time_when_a_task_blocks_between_turns() {
    let mut builder = Builder::new_multi_thread();
    // Workers look at each turn for tasks that were spawned from elsewhere.
    builder.worker_threads(2).global_queue_interval(1);
    let runtime = builder.enable_all().build().unwrap();
    let _entered = runtime.enter();
    let wheel = TimerWheel::new();
    let rounds: Vec<Round> = (0..ROUNDS)
        .map(|_| {
            let deadline = Instant::now() + Duration::from_millis(50);
            let control = runtime.spawn(async move {
                time::sleep_until(deadline).await;
                deadline.elapsed()
            });
            let (fired, last) = channel();
            let (unblocked, end) = channel();
            let waker = Waker::from(Arc::new(BlockInTheMiddle {
                woken: AtomicUsize::new(0),
                runtime: runtime.handle().clone(),
                fired,
                unblocked,
            }));
            let mut sleeps: Vec<_> = (0..BlockInTheMiddle::SLEEPS)
                .map(|_| Box::pin(wheel.sleep_until(deadline)))
                .collect();
            for sleep in &mut sleeps {
                let poll = sleep.as_mut().poll(&mut Context::from_waker(&waker));
                assert!(poll.is_pending());
            }
            let late = last.recv().unwrap().duration_since(deadline);
            end.recv().unwrap();
            (late, runtime.block_on(control).unwrap())
        })
        .collect();
    assert_in_time(&rounds);
}

/// Wakes no task. Spawns one that blocks after so many wakes, and says when the last one comes.
struct BlockInTheMiddle {
    woken: AtomicUsize,
    runtime: Handle,
    fired: Sender<Instant>,
    unblocked: Sender<()>,
}

impl BlockInTheMiddle {
    const SLEEPS: usize = 600;
}

impl Wake for BlockInTheMiddle {
    fn wake(self: Arc<Self>) {
        let woken = self.woken.fetch_add(1, Ordering::Relaxed) + 1;
        if woken == Self::SLEEPS {
            self.fired.send(Instant::now()).unwrap();
        }
        if woken == 100 {
            let (runtime, unblocked) = (self.runtime.clone(), self.unblocked.clone());
            // Not from a worker: its own tasks are in its own queue.
            let spawning = thread::spawn(move || {
                runtime.spawn(async move {
                    thread::sleep(BLOCKED);
                    unblocked.send(()).unwrap();
                })
            });
            spawning.join().unwrap();
        }
    }
}

//! Helpers of the benchmarks.
#![allow(dead_code, reason = "no benchmark uses all of it")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// A deadline that lies beyond every run.
pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Lengths that take turns: what a service with several kinds of timeouts has.
pub(crate) const MIXED: [Duration; 3] = [LONG, Duration::from_secs(5), Duration::from_millis(50)];

/// A runtime with so many workers; with one, a single-threaded one.
pub(crate) fn runtime(workers: usize) -> Runtime {
    let builder = if workers == 1 {
        Builder::new_current_thread().enable_all().build()
    } else {
        Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build()
    };
    builder.expect("the runtime starts")
}

/// Pending once, and ready when polled again.
#[derive(Debug, Default)]
pub(crate) struct PendingOnce(bool);

impl Future for PendingOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Runs `round` a total of about `rounds` times, shared out over `tasks` tasks; returns how long it
/// took.
pub(crate) async fn share_out<F, R>(tasks: usize, rounds: u64, round: F) -> Duration
where
    F: Fn(u64) -> R + Clone + Send + 'static,
    R: Future<Output = ()> + Send,
{
    let each = rounds.div_ceil(tasks as u64);
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let round = round.clone();
            tokio::spawn(async move {
                for n in 0..each {
                    round(task as u64 + n).await;
                }
            })
        })
        .collect();
    for task in running {
        task.await.expect("no round panics");
    }
    share(start.elapsed(), rounds, each * tasks as u64)
}

/// The time for `rounds`, given the time of a few more.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn share(time: Duration, rounds: u64, run: u64) -> Duration {
    time.mul_f64(rounds as f64 / run as f64)
}

/// Polls a future that has to wait, with a waker that does nothing.
pub(crate) fn poll_once(future: Pin<&mut impl Future<Output = ()>>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.poll(&mut context).is_pending(), "it is not over yet");
}

/// Pseudo-random numbers, the same ones in every run (xorshift64*).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// One below `bound`, which fits in 32 bits.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        (number * bound) >> 32
    }
}

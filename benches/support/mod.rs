//! What the benchmarks have in common.
#![allow(dead_code, reason = "no benchmark uses all of it")]

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

/// A deadline that lies beyond every run.
pub const LONG: Duration = Duration::from_secs(30);

/// Lengths that take turns: what a service with several kinds of timeouts has.
pub const MIXED: [Duration; 3] = [LONG, Duration::from_secs(5), Duration::from_millis(50)];

/// A runtime with so many workers; with one, a single-threaded one.
pub fn runtime(workers: usize) -> Runtime {
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
pub struct PendingOnce(bool);

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

/// Runs `round` a total of about `rounds` times, shared out over `tasks` tasks; returns how long it took.
pub async fn share_out<F, R>(tasks: usize, rounds: u64, round: F) -> Duration
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
    // What was run is a little more than was asked for.
    start
        .elapsed()
        .mul_f64(rounds as f64 / (each * tasks as u64) as f64)
}

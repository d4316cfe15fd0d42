//! Timers without Tokio: the bare wheel under another executor.
//!
//! `timer` drives the wheel on its own thread, so its sleeps work on smol, on `futures`'
//! executors, or on the one below, which is as small as an executor can be.

use std::pin::pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::future::{join_all, select};

#[path = "support/say.rs"]
#[macro_use]
mod say;
#[path = "other_runtime/timer.rs"]
mod timer;

use timer::Timer;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps while the future waits.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

fn main() -> ExitCode {
    say::takes_no_arguments("Sleeps on the bare wheel, without Tokio");
    let timer = Timer::start();

    let lengths = [30, 10, 20].map(Duration::from_millis);
    let sleepers = lengths.map(async |length| {
        let start = Instant::now();
        timer.sleep(length).await;
        (length, start.elapsed())
    });
    let slept = block_on(join_all(sleepers));
    for (length, took) in &slept {
        say!("a sleep of {length:?} took {took:.1?}");
    }
    let is_early = slept.iter().any(|(length, took)| took < length);

    // The limit is dropped when the other one has fired, and leaves the wheel.
    let (work, limit) = (
        timer.sleep(Duration::from_millis(5)),
        timer.sleep(Duration::from_secs(3600)),
    );
    block_on(async { drop(select(work, limit).await) });
    let pending = timer.pending();
    say!("{pending} sleeps are pending after a limit that did not fire");

    if is_early || pending > 0 {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

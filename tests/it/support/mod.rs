//! Helpers that several modules of tests use.
//!
//! The binary `allocations` includes this folder too.
#![allow(dead_code)] // it does not use all of it

mod keyed;
#[cfg(unix)]
pub(crate) mod last_requests;
pub(crate) mod script_time;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[allow(unused_imports)] // nor all of these
pub(crate) use keyed::{advance, assert_balanced, received, timed};
use tickwheel::{Builder, Sleep, TimerWheel};
use tokio::time::Instant;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A test that waits for so long, by the real clock, hangs, however busy the machine is.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Starts a wheel that keeps its sleeps under a paused clock, so that a test tries the wheel and
/// not Tokio's timer.
#[track_caller]
pub(crate) fn start_wheel() -> TimerWheel {
    builder().start().expect("the settings are valid")
}

/// Builds a wheel as [`start_wheel`] does.
pub(crate) fn builder() -> Builder {
    TimerWheel::builder().sleeps_on_wheel()
}

/// Starts a wheel whose actor runs on a thread of its own, as in the recipe of the guide. The
/// thread ends with the wheel, and has its name.
pub(crate) fn start_on_thread(builder: Builder) -> TimerWheel {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let wheel = builder.runtime(runtime.handle().clone()).start().unwrap();
    let (name, weak) = (wheel.name().to_owned(), wheel.downgrade());
    let thread = std::thread::Builder::new().name(name);
    thread
        .spawn(move || runtime.block_on(weak.closed()))
        .unwrap();
    wheel
}

/// An hour less `n` milliseconds.
pub(crate) fn less_than_an_hour(n: u64) -> Duration {
    HOUR.saturating_sub(ms(n))
}

/// Counts how often it is woken.
#[derive(Debug, Default)]
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::<Self>::default();
        (Arc::clone(&wakes), Waker::from(wakes))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A waker that calls a function.
pub(crate) fn waker_fn(f: impl Fn() + Send + Sync + 'static) -> Waker {
    struct Call<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for Call<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    Waker::from(Arc::new(Call(f)))
}

/// A waker that calls one function when it is woken, and another when it is dropped.
pub(crate) fn hooked_waker(
    wake: impl Fn() + Send + Sync + 'static,
    drop: impl Fn() + Send + Sync + 'static,
) -> Waker {
    struct Hooks<W, D: Fn()>(W, D);

    impl<W: Fn() + Send + Sync + 'static, D: Fn() + Send + Sync + 'static> Wake for Hooks<W, D> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    impl<W, D: Fn()> Drop for Hooks<W, D> {
        fn drop(&mut self) {
            (self.1)();
        }
    }

    Waker::from(Arc::new(Hooks(wake, drop)))
}

/// Polls once, outside any task.
pub(crate) fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

/// Polls once with a waker that does nothing, for a future that is dropped or polled again.
pub(crate) fn poll_idly<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, Waker::noop())
}

/// Gives the sleep another deadline.
pub(crate) fn reset(sleep: &mut Sleep, deadline: Instant) {
    sleep.set_deadline(deadline);
}

/// Moves the paused clock at once: no other task runs meanwhile, nor does the actor.
pub(crate) fn jump(by: Duration) {
    script_time::stall(by);
}

/// Waits for a sleep that others may reset meanwhile.
pub(crate) async fn wait_for(sleep: Arc<Mutex<Sleep>>) {
    poll_fn(|cx| Pin::new(&mut *sleep.lock().unwrap()).poll(cx)).await;
}

/// A small generator of pseudo-random numbers, the same ones in every run.
#[derive(Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// An index below a length.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below the length")
    }

    pub(crate) fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

//! Sleeps for any executor: a thread that drives the bare wheel.
//!
//! The wheel maps ticks to wakers. The thread parks until the wheel's next tick, advances it, and
//! wakes what is due.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tickwheel::wheel::{Token, Wheel};

/// A tick is a millisecond.
const TICK_NANOS: u128 = 1_000_000;

/// How many wakers one hold of the lock takes out.
const BATCH: usize = 256;

/// A cheap handle; clones share the thread, which ends when no handle and no sleep is left.
#[derive(Debug, Clone)]
pub(crate) struct Timer {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    wheel: Mutex<Wheel<Waker>>,
    /// The instant of tick 0.
    start: Instant,
    thread: Thread,
}

impl Timer {
    /// Starts the thread.
    pub(crate) fn start() -> Self {
        let (send, receive) = std::sync::mpsc::channel::<Weak<Shared>>();
        let thread = thread::spawn(move || {
            if let Ok(shared) = receive.recv() {
                run(&shared);
            }
        });
        let shared = Arc::new(Shared {
            wheel: Mutex::new(Wheel::new()),
            start: Instant::now(),
            thread: thread.thread().clone(),
        });
        let _ = send.send(Arc::downgrade(&shared));
        Timer { shared }
    }

    /// Completes once `duration` has passed since this call, never before. A sleep too long to be
    /// represented never completes.
    pub(crate) fn sleep(&self, duration: Duration) -> Sleep {
        Sleep {
            shared: Arc::clone(&self.shared),
            deadline: Instant::now().checked_add(duration),
            token: None,
        }
    }

    /// How many sleeps are on the wheel.
    pub(crate) fn pending(&self) -> usize {
        self.shared.wheel().len()
    }
}

impl Shared {
    fn wheel(&self) -> MutexGuard<'_, Wheel<Waker>> {
        self.wheel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first tick at or after an instant: a deadline is rounded up.
    fn tick_after(&self, deadline: Instant) -> u64 {
        let since = deadline.saturating_duration_since(self.start);
        u64::try_from(since.as_nanos().div_ceil(TICK_NANOS)).unwrap_or(u64::MAX)
    }

    /// The tick of now: the clock is rounded down.
    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos() / TICK_NANOS).unwrap_or(u64::MAX)
    }

    /// How long it is until a tick, or `None` if no `Instant` is that far away.
    fn until(&self, tick: u64) -> Option<Duration> {
        let at = self.start.checked_add(Duration::from_millis(tick))?;
        Some(at.saturating_duration_since(Instant::now()))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.thread.unpark();
    }
}

/// The thread. It holds the wheel only while it works, so that the last handle to be dropped ends
/// it.
fn run(shared: &Weak<Shared>) {
    let mut due = Vec::new();
    while let Some(alive) = shared.upgrade() {
        let mut wheel = alive.wheel();
        due.extend(wheel.advance(alive.now(), BATCH));
        // Parking after the lock is free loses nothing: `unpark` before `park` makes that return at
        // once.
        let next = wheel.next_wake().map(|tick| alive.until(tick));
        drop(wheel);
        drop(alive);
        // A waker may run any code, such as dropping another sleep, which takes the lock.
        due.drain(..).for_each(Waker::wake);
        match next.flatten() {
            Some(wait) => thread::park_timeout(wait),
            None => thread::park(),
        }
    }
}

/// See [`Timer::sleep`]. Dropping it takes it off the wheel.
#[derive(Debug)]
pub(crate) struct Sleep {
    shared: Arc<Shared>,
    deadline: Option<Instant>,
    token: Option<Token>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = &mut *self;
        let Some(deadline) = sleep.deadline else {
            return Poll::Pending;
        };
        if deadline <= Instant::now() {
            return Poll::Ready(());
        }
        let tick = sleep.shared.tick_after(deadline);
        let mut wheel = sleep.shared.wheel();
        let old = sleep.token.and_then(|token| wheel.get_mut(token));
        if let Some(waker) = old {
            let old = std::mem::replace(waker, cx.waker().clone());
            drop(wheel);
            drop(old);
            return Poll::Pending;
        }
        let is_first = wheel.next_wake().is_none_or(|next| tick < next);
        sleep.token = Some(wheel.insert(tick, cx.waker().clone()));
        drop(wheel);
        if is_first {
            sleep.shared.thread.unpark();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let waker = self
            .token
            .and_then(|token| self.shared.wheel().remove(token));
        drop(waker);
    }
}

//! A future that completes at an instant.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::{self, Instant};

use crate::cache;
use crate::entry::Phase;
use crate::shared::{Shared, SleepEntry};
use crate::tick::{NEVER, after, far_future};

/// Completes once its deadline is reached. Made by [`TimerWheel::sleep`](crate::TimerWheel::sleep) and
/// [`sleep_until`](crate::TimerWheel::sleep_until).
///
/// What [`tokio::time::Sleep`] is, with these differences: it is `Unpin`; it can be polled anywhere, not only within a
/// runtime with a timer, as long as its wheel runs; and a deadline too far to be represented is *never*.
///
/// * It is not registered anywhere until it is first polled.
/// * Of several tasks that poll it in turn the last one is woken, and only that one.
/// * When it is polled again it compares its deadline with the clock, so it does not depend on the actor having run.
/// * If its wheel is shut down, or the wheel's runtime is gone, it goes on with Tokio's own timer.
///
/// # Cancel safety
///
/// Dropping it cancels it: no task is woken afterwards, and no message is sent.
///
/// # Panics
///
/// Polling panics only where Tokio's own sleep would: when the wheel has ended, and the poll takes place outside a Tokio
/// runtime with a timer.
///
/// # Examples
///
/// ```
/// use std::pin::Pin;
/// use std::time::Duration;
/// use tokio::time::Instant;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
///
/// let mut sleep = wheel.sleep(Duration::from_secs(1));
/// (&mut sleep).await;
/// assert!(sleep.is_elapsed());
///
/// let again = Instant::now() + Duration::from_secs(2);
/// Pin::new(&mut sleep).reset(again);
/// sleep.await;
/// assert_eq!(Instant::now(), again);
/// # }
/// ```
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Sleep {
    deadline: Instant,
    /// The deadline's tick; `NEVER` whatever the deadline shows.
    tick: u64,
    /// `None` only while it is being dropped.
    entry: Option<Arc<SleepEntry>>,
    stage: Stage,
}

/// How far a sleep has come.
enum Stage {
    /// Not polled since it was made or reset. `later` when the deadline was in the future then: the first poll arms it
    /// without reading the clock once more.
    New { later: bool },
    /// The entry is armed, or was and fired.
    Armed,
    /// The actor is gone.
    OnTokio(Pin<Box<time::Sleep>>),
    Done,
}

impl Stage {
    /// Tokio's own timer, for when the actor is gone.
    fn on_tokio(deadline: Instant) -> Self {
        Stage::OnTokio(Box::pin(time::sleep_until(deadline)))
    }
}

impl Sleep {
    pub(crate) fn after(shared: &Arc<Shared>, duration: Duration) -> Self {
        match after(duration) {
            Some(deadline) => {
                let tick = shared.ticks.deadline(deadline);
                Self::new(shared, deadline, tick, !duration.is_zero())
            }
            None => Self::new(shared, far_future(), NEVER, true),
        }
    }

    pub(crate) fn at(shared: &Arc<Shared>, deadline: Instant) -> Self {
        let tick = shared.ticks.deadline(deadline);
        Self::new(shared, deadline, tick, false)
    }

    fn new(shared: &Arc<Shared>, deadline: Instant, tick: u64, later: bool) -> Self {
        Sleep {
            deadline,
            tick,
            entry: Some(cache::take(shared, tick)),
            stage: Stage::New { later },
        }
    }

    /// When it completes. Decades from now for a sleep that never does. Never panics.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it has completed, or its deadline has been reached and its task is about to be woken. Never panics.
    pub fn is_elapsed(&self) -> bool {
        match &self.stage {
            Stage::New { .. } => false,
            Stage::Armed => (self.entry.as_ref()).is_some_and(|e| e.phase() == Phase::Fired),
            Stage::OnTokio(sleep) => sleep.is_elapsed(),
            Stage::Done => true,
        }
    }

    /// Gives it another deadline, whether it has completed or not. To later this is a store.
    ///
    /// A task that waits goes on waiting, for the new deadline. A sleep that has completed has to be polled again for
    /// its task to be woken. Never panics.
    pub fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        let Some(entry) = &self.entry else { return };
        let shared = entry.home();
        let tick = shared.ticks.deadline(deadline);
        let still_armed = match self.stage {
            Stage::Armed => {
                let (was, tell) = entry.move_to(tick);
                let armed = was == Phase::Armed && shared.tell(entry, tell);
                if armed {
                    cache::count(shared, |counts| &counts.moved);
                }
                armed
            }
            Stage::New { .. } | Stage::OnTokio(_) | Stage::Done => false,
        };
        self.deadline = deadline;
        self.tick = tick;
        if !still_armed {
            self.stage = Stage::New { later: false };
        }
    }

    /// As [`poll`](Future::poll), without taking part in the runtime's cooperative budget.
    pub(crate) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(entry) = &self.entry else {
            return Poll::Ready(());
        };
        loop {
            match &mut self.stage {
                Stage::New { later } => {
                    if !*later && Instant::now() >= self.deadline && self.tick != NEVER {
                        self.stage = Stage::Done;
                        return Poll::Ready(());
                    }
                    let shared = entry.home();
                    if shared.arm(entry, self.tick, cx.waker().clone()) {
                        self.stage = Stage::Armed;
                        return Poll::Pending;
                    }
                    self.stage = Stage::on_tokio(self.deadline);
                }
                Stage::Armed => match entry.poll(cx.waker()) {
                    Phase::Fired => {
                        self.stage = Stage::Done;
                        return Poll::Ready(());
                    }
                    Phase::Closed => self.stage = Stage::on_tokio(self.deadline),
                    Phase::Armed | Phase::Idle | Phase::Abandoned => {
                        if self.tick == NEVER || Instant::now() < self.deadline {
                            return Poll::Pending;
                        }
                        if entry.disarm().0 == Phase::Armed {
                            cache::count(entry.home(), |counts| &counts.elapsed);
                        }
                        self.stage = Stage::Done;
                        return Poll::Ready(());
                    }
                },
                Stage::OnTokio(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    self.stage = Stage::Done;
                    return Poll::Ready(());
                }
                Stage::Done => return Poll::Ready(()),
            }
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.poll_elapsed(cx));
        // Only progress costs budget; a task that always finds its sleeps ready still has to yield now and then.
        ready!(coop::poll_proceed(cx)).made_progress();
        Poll::Ready(())
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        let (was, filed) = entry.disarm();
        if was == Phase::Armed {
            cache::count(entry.home(), |counts| &counts.cancelled);
        }
        if was != Phase::Closed {
            let shared = Arc::clone(entry.home());
            shared.release(entry, filed);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .field("is_elapsed", &self.is_elapsed())
            .finish_non_exhaustive()
    }
}

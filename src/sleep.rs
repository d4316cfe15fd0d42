//! A future that completes at an instant.

pub(crate) mod interval;
pub(crate) mod pool;
pub(crate) mod timeout;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::{self, Instant};

pub use interval::Interval;
pub use timeout::Timeout;

use crate::panic::wake;
use crate::shared::entry::{Entry, Phase};
use crate::shared::idle_clock::IdleClock;
use crate::shared::{Origin, Shared, SleepEntry};
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
    /// Tokio's own timer, for when the actor is gone.
    fallback: Option<Pin<Box<time::Sleep>>>,
}

/// How far a sleep has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not polled since it was made. The deadline was in the future then: the first poll arms it without reading the
    /// clock once more.
    New,
    /// Not polled since it was made or reset, with a deadline that may have passed.
    Unchecked,
    /// The entry is armed, or was and fired.
    Armed,
    /// The actor is gone.
    OnTokio,
    Done,
}

impl Sleep {
    #[inline]
    pub(crate) fn after(origin: &Arc<Origin>, duration: Duration) -> Self {
        let (deadline, tick) = match after(duration) {
            Some(deadline) => (deadline, origin.shared.ticks.deadline(deadline)),
            None => (far_future(), NEVER),
        };
        let stage = if duration.is_zero() {
            Stage::Unchecked
        } else {
            Stage::New
        };
        Self::new(origin, deadline, tick, stage)
    }

    pub(crate) fn at(origin: &Arc<Origin>, deadline: Instant) -> Self {
        let tick = origin.shared.ticks.deadline(deadline);
        Self::new(origin, deadline, tick, Stage::Unchecked)
    }

    #[inline]
    fn new(origin: &Arc<Origin>, deadline: Instant, tick: u64, stage: Stage) -> Self {
        Sleep {
            deadline,
            tick,
            entry: Some(pool::take(origin, tick)),
            stage,
            fallback: None,
        }
    }

    /// The sleep of an idle timer: the actor asks the clock before it fires.
    pub(crate) fn on_clock(shared: &Arc<Shared>, clock: Arc<IdleClock>, deadline: Instant) -> Self {
        pool::count(shared, |counts| &counts.made);
        let entry = Entry::new(Arc::new(Origin {
            shared: Arc::clone(shared),
            clock: Some(clock),
        }));
        Sleep {
            deadline,
            tick: shared.ticks.deadline(deadline),
            entry: Some(Arc::new(entry)),
            stage: Stage::Unchecked,
            fallback: None,
        }
    }

    /// When it completes. Decades from now for a sleep that never does. Never panics.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it has completed, or its deadline has been reached and its task is about to be woken. Never panics.
    pub fn is_elapsed(&self) -> bool {
        let entry_fired = || (self.entry.as_ref()).is_some_and(|e| e.phase() == Phase::Fired);
        let fallback_fired = || (self.fallback.as_ref()).is_some_and(|f| f.is_elapsed());
        match self.stage {
            Stage::New | Stage::Unchecked => false,
            Stage::Armed => entry_fired(),
            Stage::OnTokio => fallback_fired(),
            Stage::Done => true,
        }
    }

    /// Gives it another deadline, whether it has completed or not. To later this is a store.
    ///
    /// A task that waits goes on waiting, for the new deadline. A sleep that has completed has to be polled again for
    /// its task to be woken. Never panics.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let this = self.get_mut();
        let Some(entry) = &this.entry else { return };
        let shared = &entry.origin().shared;
        this.deadline = deadline;
        this.tick = shared.ticks.deadline(deadline);
        let fired = match this.stage {
            Stage::New | Stage::Unchecked => false,
            Stage::Armed => {
                let (was, tell) = entry.move_to(this.tick);
                if was == Phase::Armed {
                    if shared.tell(entry, tell) {
                        pool::count(shared, |counts| &counts.moved);
                        return;
                    }
                    // The task that waits may be another one: it has to come and find that the actor is gone.
                    wake(entry.close());
                }
                was == Phase::Fired
            }
            Stage::OnTokio => {
                if let Some(fallback) = &mut this.fallback {
                    fallback.as_mut().reset(deadline);
                }
                return;
            }
            Stage::Done => true,
        };
        if fired {
            pool::count(shared, |counts| &counts.made);
        }
        this.stage = Stage::Unchecked;
    }

    /// As [`poll`](Future::poll), without taking part in the runtime's cooperative budget.
    #[inline]
    pub(crate) fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.stage {
            Stage::New => self.poll_arm(cx),
            Stage::Unchecked if !self.is_due() => self.poll_arm(cx),
            Stage::Unchecked => self.poll_due(),
            Stage::Armed => self.poll_armed(cx),
            Stage::OnTokio => self.poll_fallback(cx),
            Stage::Done => Poll::Ready(()),
        }
    }

    /// Whether it has been polled and was pending.
    pub(crate) fn has_waited(&self) -> bool {
        matches!(self.stage, Stage::Armed | Stage::OnTokio)
    }

    /// Whether the clock has reached the deadline.
    fn is_due(&self) -> bool {
        self.tick != NEVER && Instant::now() >= self.deadline
    }

    #[inline]
    fn poll_arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(entry) = &self.entry else {
            return Poll::Ready(());
        };
        if entry
            .origin()
            .shared
            .arm(entry, self.tick, cx.waker().clone())
        {
            self.stage = Stage::Armed;
            Poll::Pending
        } else {
            self.poll_fallback(cx)
        }
    }

    fn poll_armed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(entry) = &self.entry else {
            return Poll::Ready(());
        };
        match entry.poll(cx.waker()) {
            Phase::Fired => {
                self.stage = Stage::Done;
                Poll::Ready(())
            }
            Phase::Closed => self.poll_fallback(cx),
            Phase::Armed | Phase::Idle | Phase::Released if !self.is_due() => Poll::Pending,
            Phase::Armed | Phase::Idle | Phase::Released => {
                // The actor may be quicker; then it has counted.
                if entry.disarm().0 == Phase::Fired {
                    self.stage = Stage::Done;
                    return Poll::Ready(());
                }
                self.poll_due()
            }
        }
    }

    /// It is due, and the actor has not seen it.
    fn poll_due(&mut self) -> Poll<()> {
        self.stage = Stage::Done;
        if let Some(entry) = &self.entry {
            pool::count(&entry.origin().shared, |counts| &counts.elapsed);
        }
        Poll::Ready(())
    }

    #[cold]
    fn poll_fallback(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stage != Stage::OnTokio {
            self.stage = Stage::OnTokio;
            self.fallback = Some(Box::pin(time::sleep_until(self.deadline)));
            if let Some(entry) = &self.entry {
                pool::count(&entry.origin().shared, |counts| &counts.handed_over);
            }
        }
        if let Some(fallback) = &mut self.fallback {
            ready!(fallback.as_mut().poll(cx));
        }
        self.stage = Stage::Done;
        Poll::Ready(())
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
    #[inline]
    fn drop(&mut self) {
        let Some(entry) = self.entry.take() else {
            return;
        };
        let (cancelled, scheduled) = match self.stage {
            // Its entry is as it was taken from the cache: filed at this tick or before it, if at all.
            Stage::New | Stage::Unchecked => (true, self.tick),
            Stage::Armed | Stage::Done => {
                let (was, scheduled) = entry.disarm();
                let is_over = self.stage == Stage::Done || was == Phase::Fired;
                (!is_over, scheduled)
            }
            Stage::OnTokio => return,
        };
        if let Err(entry) = pool::give(entry, scheduled, cancelled) {
            entry.origin().shared.release(&entry);
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

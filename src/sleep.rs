//! Sleeps: futures that complete at an instant. Timeouts, intervals and idle timers each have one.

mod fallback;
mod handed_over;
pub(crate) mod interval;
pub(crate) mod pool;
pub(crate) mod timeout;

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::task::coop;
use tokio::time::{self, Instant};

pub use interval::Interval;
pub(crate) use pool::Reserved;
pub use timeout::Timeout;

use crate::clock::{self, CAN_PAUSE};
use crate::console::Resource;
use crate::metrics::Event;
use crate::panic::{DROPPED_WAKER, catch_panic, wake};
use crate::shared::entry::{Entry, Phase};
use crate::shared::idle_clock::IdleClock;
use crate::shared::{Shared, SleepContext, SleepEntry};
use crate::tick::{NEVER, far_future};

/// Completes once its deadline is reached. Made by [`TimerWheel::sleep`](crate::TimerWheel::sleep)
/// and [`sleep_until`](crate::TimerWheel::sleep_until).
///
/// It works like [`tokio::time::Sleep`], with these differences:
///
/// * It is `Unpin`: polling it, and resetting it by [`set_deadline`](Sleep::set_deadline), needs no
///   pinning.
/// * It can be polled anywhere, not only within a runtime with a timer.
/// * With an unrepresentable deadline it never completes.
/// * A completed sleep that is reset wakes no task until it is polled again.
///
/// The first poll arms it. Every poll compares the deadline with the clock: an overdue sleep is
/// ready, whether or not the actor has run. If several tasks poll it in turn, only the last one is
/// woken.
///
/// Once the clock of the wheel's runtime has been paused, the sleep goes to Tokio's own timer: see
/// [under a virtual clock](mod@crate::time#under-a-virtual-clock).
///
/// When its wheel is shut down or the wheel's runtime has ended, a sleep goes on with a timer of
/// the Tokio runtime in which it is polled next, or of a thread of this crate if it is polled
/// outside a runtime.
///
/// # Cancel safety
///
/// Dropping it cancels it: no task is woken afterwards. The guide says what that
/// [costs](crate::guide::costs).
///
/// # Examples
///
/// ```
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
/// sleep.set_deadline(again);
/// sleep.await;
/// assert_eq!(Instant::now(), again);
/// # }
/// ```
///
/// # Panics
///
/// While its wheel runs, polling it does not panic. After the wheel has ended, polling it panics
/// where Tokio's own sleep would: within a runtime that has no time driver, and after the runtime
/// whose timer it went on with was dropped. Outside a runtime it panics if the thread for such
/// sleeps cannot be started. A waker that panics when it is dropped does so in the task that drops
/// the sleep.
#[doc(alias = "delay")]
#[doc(alias = "timer")]
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct Sleep {
    deadline: Instant,
    /// The deadline's tick. If it is `NEVER`, the instant in `deadline` means nothing.
    tick: u64,
    /// `None` while it is being dropped, and for a sleep of Tokio's that was made without a wheel.
    entry: Option<Arc<SleepEntry>>,
    stage: Stage,
    /// Tokio's own timer; `Some` once the stage is `Fallback` or `Tokio`. An `Arc`, because its
    /// drop is inlined except for its rare half: a sleep without one drops it in two instructions.
    fallback: Option<Arc<Pin<Box<time::Sleep>>>>,
    resource: Resource,
}

/// The stage of a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Made for a duration above zero, not polled yet. Its deadline was in the future when it was
    /// made.
    New,
    /// Made for an instant, or for no time at all, and not polled yet. Its deadline may have passed
    /// when it was made.
    NewUnchecked,
    /// Reset while its entry was not armed, and not polled since.
    Reset,
    /// The entry is armed, or was and has fired.
    Armed,
    /// The actor has ended.
    Fallback,
    /// The clock is virtual, and Tokio's timer decides when it completes: [`handed_over`].
    Tokio,
    /// Like `Tokio`, with a new deadline that Tokio's timer does not know yet.
    TokioUnarmed,
    Done,
}

impl Sleep {
    /// For a deadline that is this duration from now; without one the sleep never completes.
    #[inline]
    pub(crate) fn after(
        resource: Resource,
        deadline: Option<Instant>,
        duration: Duration,
        reserved: Reserved,
    ) -> Self {
        let deadline = deadline.unwrap_or_else(|| reserved.never());
        let stage = if duration.is_zero() {
            Stage::NewUnchecked
        } else {
            Stage::New
        };
        Self::new(resource, deadline, stage, reserved)
    }

    #[inline]
    pub(crate) fn at(resource: Resource, deadline: Instant, reserved: Reserved) -> Self {
        Self::new(resource, deadline, Stage::NewUnchecked, reserved)
    }

    #[inline]
    fn new(resource: Resource, deadline: Instant, stage: Stage, reserved: Reserved) -> Self {
        Sleep {
            deadline,
            tick: reserved.tick,
            entry: Some(reserved.entry),
            stage,
            fallback: None,
            resource,
        }
    }

    /// The sleep of an idle timer. The actor reads the idle clock before it fires the sleep.
    pub(crate) fn on_clock(
        resource: Resource,
        shared: &Arc<Shared>,
        clock: Arc<IdleClock>,
        deadline: Instant,
    ) -> Self {
        pool::count(shared, Event::SleepMade);
        let entry = Entry::new(Arc::new(SleepContext {
            shared: Arc::clone(shared),
            clock: Some(clock),
        }));
        Sleep {
            deadline,
            tick: shared.ticks.deadline(deadline),
            entry: Some(Arc::new(entry)),
            stage: Stage::NewUnchecked,
            fallback: None,
            resource,
        }
    }

    /// The instant at which it completes; for a sleep that never completes, the instant 292 years
    /// after the start of the wheel.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it has completed, or has fired and its task is about to be woken.
    ///
    /// As with Tokio's, a sleep that was never polled has not elapsed, however late it is. A sleep
    /// that was reset and not polled since has elapsed once its deadline is reached.
    pub fn is_elapsed(&self) -> bool {
        match self.stage {
            Stage::New | Stage::NewUnchecked | Stage::TokioUnarmed => false,
            Stage::Reset => self.is_due(),
            Stage::Armed => (self.entry.as_ref()).is_some_and(|e| e.phase() == Phase::Fired),
            Stage::Fallback | Stage::Tokio => {
                let fired = (self.fallback.as_ref()).is_some_and(|f| f.is_elapsed());
                fired && self.tick != NEVER
            }
            Stage::Done => true,
        }
    }

    /// Gives it another deadline, whether it has completed or not. A deadline in the past makes it
    /// ready at its next poll, and wakes a task that waits.
    ///
    /// A task that waits goes on waiting, for the new deadline. A completed sleep has to be polled
    /// again: until then the new deadline wakes no task, unless the clock is virtual. (Tokio's
    /// sleep wakes the task that polled it last; for that it keeps a clone of the waker of every
    /// sleep that has fired.)
    ///
    /// # Examples
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let deadline = Instant::now() + Duration::from_secs(2);
    ///
    /// let mut sleep = pin!(wheel.sleep(Duration::from_secs(1)));
    /// sleep.as_mut().reset(deadline);
    /// sleep.await;
    /// assert_eq!(Instant::now(), deadline);
    /// # }
    /// ```
    #[inline]
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().set_deadline(deadline);
    }

    /// Like [`reset`](Self::reset), for a sleep that is not pinned.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let deadline = Instant::now() + Duration::from_secs(2);
    ///
    /// let mut sleep = wheel.sleep(Duration::from_secs(1));
    /// sleep.set_deadline(deadline);
    /// sleep.await;
    /// assert_eq!(Instant::now(), deadline);
    /// # }
    /// ```
    #[inline]
    pub fn set_deadline(&mut self, deadline: Instant) {
        self.reset_to(deadline, self.tick_of(deadline));
    }

    /// Like [`reset`](Self::reset); without a deadline the sleep never completes.
    pub(crate) fn reset_or_never(&mut self, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            return self.set_deadline(deadline);
        }
        let entry = self.entry.as_ref();
        let never = entry.map(|entry| entry.context().shared.ticks.never());
        self.reset_to(never.unwrap_or_else(far_future), NEVER);
    }

    #[inline]
    fn reset_to(&mut self, deadline: Instant, tick: u64) {
        self.deadline = deadline;
        self.tick = tick;
        self.resource.reset(deadline);
        if CAN_PAUSE && self.reset_tokios() {
            return;
        }
        let Some(entry) = &self.entry else { return };
        let shared = &entry.context().shared;
        let has_fired = match self.stage {
            Stage::New | Stage::NewUnchecked | Stage::Reset => false,
            Stage::Armed => {
                let (was, notify) = entry.move_to(tick);
                if was == Phase::Armed {
                    if shared.act(entry, notify) {
                        pool::count(shared, Event::SleepMoved);
                        return;
                    }
                    // The actor has ended. The waiting task, perhaps another one, has to poll to
                    // find that out.
                    wake(entry.close());
                }
                was == Phase::Fired
            }
            Stage::Fallback => {
                let deadline = self.tokios_deadline();
                if let Some(fallback) = self.fallback() {
                    fallback.reset(deadline);
                }
                return;
            }
            Stage::Tokio | Stage::TokioUnarmed => return,
            Stage::Done => true,
        };
        if has_fired {
            pool::count(shared, Event::SleepMade);
        }
        self.stage = Stage::Reset;
    }

    /// Like [`poll`](Future::poll), but leaves the runtime's cooperative budget alone.
    fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.stage {
            Stage::New | Stage::NewUnchecked | Stage::Reset if self.is_due() => self.poll_due(),
            Stage::New | Stage::NewUnchecked | Stage::Reset => self.poll_arm(cx),
            Stage::Armed => self.poll_armed(cx, true),
            Stage::Fallback => self.poll_fallback(cx),
            Stage::Tokio | Stage::TokioUnarmed => self.poll_tokios(cx),
            Stage::Done => Poll::Ready(()),
        }
    }

    /// Polls the sleep without reading the clock: a pending sleep that is overdue is ready once the
    /// wheel has fired it, not before.
    ///
    /// It is for event loops that read the clock themselves before they poll. Of a reset and a poll
    /// it saves two thirds, some 60 ns. Otherwise it is like [`poll`](Future::poll), and leaves the
    /// task's cooperative budget alone.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::future::poll_fn;
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let mut sleep = wheel.sleep(Duration::from_millis(10));
    ///
    /// poll_fn(|cx| sleep.poll_fired(cx)).await;
    /// assert!(sleep.is_elapsed());
    /// # }
    /// ```
    pub fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_shown(|sleep| {
            if CAN_PAUSE && sleep.is_tokios() {
                return sleep.poll_tokios(cx);
            }
            match sleep.stage {
                Stage::Armed => sleep.poll_armed(cx, false),
                Stage::Reset => sleep.poll_arm(cx),
                _ => sleep.poll_elapsed(cx),
            }
        })
    }

    /// Whether it goes on with Tokio's timer, whose clock the explorer does not move.
    #[cfg(all(test, tickwheel_shuttle))]
    pub(crate) fn is_on_fallback(&self) -> bool {
        self.stage == Stage::Fallback
    }

    /// Whether the clock has reached the deadline. A clock other than the actor's does not count:
    /// then the actor decides.
    fn is_due(&self) -> bool {
        self.tick != NEVER
            && clock::now() >= self.deadline
            && !(self.entry.as_ref())
                .is_some_and(|entry| entry.context().shared.has_foreign_clock())
    }

    /// Arms the entry without reading the clock. An overdue sleep that is armed fires on the
    /// actor's next turn.
    #[inline]
    fn poll_arm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let waker = cx.waker().clone();
        let armed = match &self.entry {
            Some(entry) => entry.try_arm(self.tick, waker),
            None => Err(waker),
        };
        match armed {
            Ok(()) => {
                self.stage = Stage::Armed;
                Poll::Pending
            }
            Err(waker) => self.poll_arm_any(cx, waker),
        }
    }

    /// Like [`poll_arm`](Self::poll_arm) where arming may take a command.
    #[inline(never)]
    fn poll_arm_any(&mut self, cx: &mut Context<'_>, waker: Waker) -> Poll<()> {
        let Some(entry) = &self.entry else {
            return Poll::Ready(());
        };
        if entry.context().shared.arm(entry, self.tick, waker) {
            self.stage = Stage::Armed;
            Poll::Pending
        } else {
            self.poll_fallback(cx)
        }
    }

    fn poll_armed(&mut self, cx: &mut Context<'_>, reads_clock: bool) -> Poll<()> {
        let Some(entry) = &self.entry else {
            return Poll::Ready(());
        };
        let (phase, replaced) = entry.poll(cx.waker());
        drop_replaced(replaced);
        match phase {
            Phase::Fired => {
                self.stage = Stage::Done;
                Poll::Ready(())
            }
            Phase::Closed => self.poll_fallback(cx),
            // The actor has evicted the entry, and this is not the actor's runtime: arm it again.
            Phase::Idle => {
                self.stage = Stage::Reset;
                self.poll_arm(cx)
            }
            Phase::Armed | Phase::Released if !(reads_clock && self.is_due()) => Poll::Pending,
            Phase::Armed | Phase::Released => {
                let disarmed = entry.disarm();
                if disarmed.was == Phase::Fired {
                    // The actor has fired and counted it meanwhile.
                    self.stage = Stage::Done;
                    return Poll::Ready(());
                }
                self.poll_due()
                // The waker is dropped here: its panic finds the sleep completed and counted.
            }
        }
    }

    /// The sleep is due, and the actor has not fired it.
    fn poll_due(&mut self) -> Poll<()> {
        self.stage = Stage::Done;
        self.count(Event::SleepFired);
        Poll::Ready(())
    }

    fn count(&self, event: Event) {
        if let Some(entry) = &self.entry {
            pool::count(&entry.context().shared, event);
        }
    }

    /// Like [`drop`] in any stage.
    #[inline(never)]
    fn drop_any(&mut self) {
        let Some(entry) = &self.entry else {
            return;
        };
        // The waker is dropped last, because its drop may panic.
        let _waker;
        let (is_cancelled, scheduled) = match self.stage {
            // The entry is as it came from the pool, which took it to be scheduled by this tick.
            Stage::New | Stage::NewUnchecked => (true, self.tick),
            Stage::Reset | Stage::Armed | Stage::Done => {
                let disarmed = entry.disarm();
                _waker = disarmed.waker;
                let is_cancelled = match self.stage {
                    Stage::Armed => disarmed.was != Phase::Fired,
                    Stage::Reset => true,
                    _ => false,
                };
                (is_cancelled, disarmed.scheduled)
            }
            Stage::Fallback | Stage::Tokio | Stage::TokioUnarmed => return,
        };
        pool::give_any(&mut self.entry, scheduled, is_cancelled);
    }

    /// Polls it, which `tokio-console` sees.
    #[inline]
    fn poll_shown<T>(&mut self, poll: impl FnOnce(&mut Self) -> Poll<T>) -> Poll<T> {
        let mut resource = mem::take(&mut self.resource);
        let polled = resource.poll(self.deadline, || poll(self));
        self.resource = resource;
        polled
    }
}

/// Drops a waker that may belong to another task. Its panic must not end this poll.
fn drop_replaced(waker: Option<Waker>) {
    if let Some(waker) = waker {
        catch_panic(DROPPED_WAKER, || drop(waker));
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.get_mut().poll_shown(|sleep| {
            if CAN_PAUSE && sleep.is_tokios() {
                return sleep.poll_tokios(cx);
            }
            ready!(sleep.poll_elapsed(cx));
            // Only a ready poll costs budget, so that a task whose sleeps are always ready yields now and then.
            ready!(coop::poll_proceed(cx)).made_progress();
            Poll::Ready(())
        })
    }
}

impl Drop for Sleep {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.stage, Stage::Armed) {
            return self.drop_any();
        }
        match self.entry.as_ref().and_then(|entry| entry.try_disarm()) {
            // The waker is dropped last, because its drop may panic.
            Some(disarmed) => pool::give(&mut self.entry, disarmed.scheduled, disarmed.waker),
            None => self.drop_any(),
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

//! Sleeps: futures that complete at an instant. Timeouts, intervals and idle timers each have one.

pub(crate) mod interval;
mod on_tokio;
mod on_wheel;
pub(crate) mod pool;
pub(crate) mod timeout;
mod timer;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

pub use interval::Interval;
use on_tokio::OnTokio;
use on_wheel::{OnWheel, Stage};
pub(crate) use pool::Reserved;
pub use timeout::Timeout;
use timer::Timer;

use crate::console::Resource;
use crate::metrics::Event;
use crate::shared::entry::{Entry, EntryArc};
use crate::shared::idle_clock::IdleClock;
use crate::shared::{Shared, SleepContext};
use crate::tick::{after, missed_on_tokio};

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
/// outside a runtime. It stays with that timer.
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
    timer: Timer,
    resource: Resource,
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

    /// For a duration that counts from now.
    #[inline]
    pub(crate) fn on_wheel(
        resource: Resource,
        context: &Arc<SleepContext>,
        duration: Duration,
    ) -> Self {
        let deadline = after(duration);
        let reserved = Reserved::new(context, deadline);
        Self::after(resource, deadline, duration, reserved)
    }

    #[inline]
    pub(crate) fn at(resource: Resource, deadline: Instant, reserved: Reserved) -> Self {
        Self::new(resource, deadline, Stage::NewUnchecked, reserved)
    }

    #[inline]
    fn new(resource: Resource, deadline: Instant, stage: Stage, reserved: Reserved) -> Self {
        let timer = Timer::Wheel(OnWheel::new(deadline, stage, reserved));
        Sleep { timer, resource }
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
        let reserved = Reserved {
            entry: EntryArc::new(entry),
            tick: shared.ticks.round_up(deadline),
        };
        Self::at(resource, deadline, reserved)
    }

    /// A sleep in a runtime that has a virtual clock and no wheel: one of Tokio's.
    #[cold]
    #[track_caller]
    pub(crate) fn on_tokio(resource: Resource, deadline: Option<Instant>) -> Self {
        let timer = Timer::on_tokio(deadline);
        Sleep { timer, resource }
    }

    /// The instant at which it completes; for a sleep that never completes, an instant decades
    /// away.
    pub fn deadline(&self) -> Instant {
        self.timer.deadline()
    }

    /// Whether it has completed, or has fired and its task is about to be woken.
    ///
    /// As with Tokio's, a sleep that was never polled has not elapsed, however late it is. A sleep
    /// that was reset and not polled since has elapsed once its deadline is reached.
    pub fn is_elapsed(&self) -> bool {
        self.timer.is_elapsed()
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

    /// Moves the deadline, as [`reset`](Self::reset) does, of a sleep that is not pinned.
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
        self.reset_or_never(Some(deadline));
    }

    /// Moves the deadline; without one the sleep never completes.
    #[inline]
    pub(crate) fn reset_or_never(&mut self, deadline: Option<Instant>) {
        self.timer.reset(deadline);
        self.resource.reset(self.timer.deadline());
    }

    /// Gives a sleep that has just completed another deadline, or none. One of Tokio's registers it
    /// at the next poll, not now, as for the next tick of an interval.
    pub(crate) fn rearm_when_polled(&mut self, deadline: Option<Instant>) {
        self.timer.rearm_when_polled(deadline);
        self.resource.reset(self.timer.deadline());
    }

    // --- for intervals ---

    /// See [`Ticks::missed_by`](crate::tick::Ticks::missed_by).
    fn missed_by(&self, now: Instant) -> Option<Duration> {
        let deadline = self.deadline();
        // Nearly all come in time: then nothing is divided.
        let late = missed_on_tokio(deadline, now)?;
        match self.timer.ticks() {
            Some(ticks) => ticks.missed_by(ticks.timestamp(deadline), ticks.timestamp(now)),
            None => Some(late),
        }
    }

    /// Whether it could have fired by now if this had been its deadline.
    fn can_fire(&self, deadline: Instant, now: Instant) -> bool {
        (self.timer.ticks())
            .is_none_or(|ticks| ticks.can_fire(ticks.timestamp(deadline)) <= ticks.timestamp(now))
    }

    /// Polls its timer, which `tokio-console` sees.
    #[inline]
    fn poll_shown<T>(&mut self, poll: impl FnOnce(&mut Timer) -> Poll<T>) -> Poll<T> {
        let timer = &mut self.timer;
        (self.resource).poll(timer.deadline(), || poll(timer))
    }

    /// Polls the sleep without reading the clock, but for its very first poll: a pending sleep that
    /// is overdue is ready once the wheel has fired it, not before. It takes a third of the time,
    /// and leaves the task's cooperative budget alone as long as the wheel runs and the clock is
    /// real.
    pub(crate) fn poll_fired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_shown(|timer| timer.poll_by(cx, OnWheel::poll_fired, OnTokio::poll))
    }

    /// Whether it is one of Tokio's: the explorer does not move their clock.
    #[cfg(all(test, tickwheel_shuttle))]
    pub(crate) fn is_on_tokio(&self) -> bool {
        self.timer.stage().is_none()
    }
}

/// The guide's chapter on costs says so.
#[cfg(all(target_pointer_width = "64", not(feature = "console")))]
const _: () = assert!(size_of::<Sleep>() == 40 && size_of::<Timeout<()>>() == 40);

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        (self.get_mut())
            .poll_shown(|timer| timer.poll_by(cx, OnWheel::poll_with_budget, OnTokio::poll))
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline())
            .field("is_elapsed", &self.is_elapsed())
            .finish_non_exhaustive()
    }
}

//! Idle timers: a future that completes once nothing has touched it for a while.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::FusedFuture;
use tokio::time::Instant;

use super::idle_limits::IdleLimits;
use super::reaper::Watches;
use crate::clock;
use crate::console::{Resource, TimerType};
use crate::shared::Shared;
use crate::shared::activity::Activity;
use crate::shared::hearing::Hearing;
use crate::shared::idle_clock::IdleClock;
use crate::shared::stalls::Gap;
use crate::sleep::Sleep;
use crate::tick::{Ticks, Timestamp, far_future};

/// Completes once nothing has touched it for its idle duration and no [`BusyGuard`] is held. Made
/// by [`TimerWheel::idle_timer`](crate::TimerWheel::idle_timer).
///
/// It completes at the earliest an idle duration after the last touch, and at most two ticks after
/// that. A touch wakes no task and sends no command.
///
/// Touches and guards count until a poll finds the timer idle and returns [`Ready`](Poll::Ready).
/// From then on [`touch`](Self::touch) returns `false` and new guards have no
/// [effect](BusyGuard::is_effective).
///
/// Time in which the runtime stood still is not silence: after a stall the timer completes later,
/// as [a reaper's watch](crate::Reaper#after-a-stall) does. By the real clock a poll that finds it
/// idle lets other tasks have their turn, and its own task's other branches, before it returns
/// `Ready`.
///
/// A timer that has completed stays pending until [`restart`](Self::restart) begins a new period:
/// see its [`FusedFuture`].
///
/// # Cancel safety
///
/// Dropping the timer cancels it. Its handles wake no task then, though a touch still returns
/// `true`.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tokio::time::{self, Instant};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let start = Instant::now();
/// let idle = wheel.idle_timer(Duration::from_secs(30));
///
/// let connection = idle.handle();
/// tokio::spawn(async move {
///     time::sleep(Duration::from_secs(20)).await;
///     connection.touch(); // there was traffic
/// });
///
/// idle.await;
/// assert_eq!(start.elapsed(), Duration::from_secs(50));
/// # }
/// ```
#[must_use = "futures do nothing unless you `.await` or poll them"]
#[doc(alias = "watchdog")]
pub struct IdleTimer {
    clock: Arc<IdleClock>,
    /// Its deadline is a lower bound of the instant at which the timer is idle.
    sleep: Sleep,
    /// A poll returned `Ready`: the clock has decided, and `restart` revives it.
    is_completed: bool,
    /// When the last poll left it waiting for the actor.
    waits_since: Option<u64>,
    /// From when its task could have run to the poll that found the sleep due, where that took
    /// long.
    gap: Gap,
    /// Before it decides that it is idle.
    hearing: Hearing,
}

/// Touches an [`IdleTimer`] or [`IdleStream`](crate::IdleStream) from any task. Cheap to clone.
#[derive(Clone)]
pub struct IdleHandle {
    clock: Arc<IdleClock>,
}

/// Keeps a timer, stream or watch from being idle while it is held, for instance during a request.
/// Idle durations count from the drop of the last guard.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tokio::time::{self, Instant};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let start = Instant::now();
/// let idle = wheel.idle_timer(Duration::from_secs(30));
///
/// let request = idle.busy();
/// tokio::spawn(async move {
///     time::sleep(Duration::from_secs(100)).await;
///     drop(request);
/// });
///
/// idle.await;
/// assert_eq!(start.elapsed(), Duration::from_secs(130));
/// # }
/// ```
#[must_use = "a guard keeps something busy only while it is held"]
#[doc(alias = "in_flight")]
pub struct BusyGuard(BusyOn);

enum BusyOn {
    Timer(Arc<IdleClock>),
    Watch(Arc<Activity>, Ticks, WaitsFrom),
    /// The guard came too late, or too many were held.
    Nothing,
}

/// From when the maximum age of a watch waits for its guards.
type WaitsFrom = Option<(Timestamp, Arc<Watches>)>;

impl IdleTimer {
    #[cfg_attr(feature = "console", track_caller)]
    pub(crate) fn new(shared: &Arc<Shared>, limits: &IdleLimits) -> Self {
        let resource = Resource::new(TimerType::IdleTimer);
        let now = shared.ticks.nanos(clock::now());
        let IdleLimits {
            either,
            read,
            write,
        } = *limits;
        let kinds = [read, write];
        let stalls = Arc::clone(&shared.stalls);
        let clock = Arc::new(IdleClock::new(shared.ticks, stalls, either, kinds, now));
        let sleep = Sleep::on_clock(resource, shared, Arc::clone(&clock), far_future());
        IdleTimer {
            clock,
            sleep,
            is_completed: false,
            waits_since: None,
            gap: Gap::default(),
            hearing: Hearing::None,
        }
    }

    pub(super) fn clock(&self) -> &IdleClock {
        &self.clock
    }

    /// Records activity now. Returns `false`, and records nothing, if the timer has completed.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let mut idle = wheel.idle_timer(Duration::from_secs(30));
    /// assert!(idle.touch());
    /// (&mut idle).await;
    /// assert!(!idle.touch(), "it has completed");
    /// # }
    /// ```
    #[inline]
    pub fn touch(&self) -> bool {
        self.clock.touch_at(clock::now())
    }

    /// Records activity at an instant, for callers that have just read the clock. Otherwise like
    /// [`touch`](Self::touch).
    ///
    /// An instant before the last activity changes nothing. An instant in the future counts, but no
    /// further than one idle duration ahead of the time at which the actor or a poll reads it.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        self.clock.touch_at(at)
    }

    /// The last activity, rounded up to the tick but not beyond now.
    pub fn last_active(&self) -> Instant {
        self.clock.last_active()
    }

    /// The idle duration. A duration over 584 years is no limit, and shows as 584 years.
    pub fn idle_duration(&self) -> Duration {
        self.clock.limit()
    }

    /// Changes the idle duration, which counts from the last activity. A task that awaits the timer
    /// need not poll it.
    ///
    /// If the timer has completed, the duration applies to the period that
    /// [`restart`](Self::restart) begins.
    ///
    /// # Panics
    ///
    /// Panics if `idle` is zero.
    #[track_caller]
    pub fn set_idle_duration(&mut self, idle: Duration) {
        assert_not_zero(idle);
        self.clock.set_limit(idle);
        if self.is_completed {
            return;
        }
        // The sleep is moved also if it has this deadline: the actor may have put it off since, and
        // a shorter duration may be due before that.
        if let Some(due) = self.due(clock::now()) {
            Pin::new(&mut self.sleep).reset(due);
        }
    }

    /// Begins a new period now. A timer that has completed can be polled again, and its handles
    /// count again; for any other this is a [`touch`](Self::touch).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() {
    /// let wheel = tickwheel::TimerWheel::new();
    /// let start = Instant::now();
    /// let mut idle = wheel.idle_timer(Duration::from_secs(30));
    ///
    /// for _ping in 0..3 {
    ///     (&mut idle).await;
    ///     idle.restart();
    /// }
    /// assert_eq!(start.elapsed(), Duration::from_secs(90));
    /// assert!(idle.touch());
    /// # }
    /// ```
    #[doc(alias = "reset")]
    pub fn restart(&mut self) {
        if mem::take(&mut self.is_completed) {
            self.clock.revive(self.clock.now());
        } else {
            self.touch();
        }
    }

    /// A handle to touch the timer from any task.
    pub fn handle(&self) -> IdleHandle {
        IdleHandle {
            clock: Arc::clone(&self.clock),
        }
    }

    /// Keeps the timer from being idle while the guard is held. Has no
    /// [effect](BusyGuard::is_effective) if the timer has completed.
    pub fn busy(&self) -> BusyGuard {
        self.handle().busy()
    }

    /// Ready once the timer is idle, and at every later poll.
    pub(super) fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.move_to_due();
            if self.poll_sleep(cx).is_pending() {
                self.hearing = Hearing::None;
                self.waits_since = Some(self.clock.now());
                return Poll::Pending;
            }
            let waited = self.waits_since.take();
            if waited.is_some_and(|since| self.is_late(since)) {
                continue;
            }
            ready!(self.hearing.poll(self.clock.shortest_limit(), cx.waker()));
            self.hearing = Hearing::None;
            // The sleep has reached a lower bound only. After further activity it waits again.
            if self.clock.decide(self.reached(), self.gap) {
                return Poll::Ready(());
            }
        }
    }

    /// Ready once the actor has reached the sleep: it knows by then of a stall in which that is
    /// due. A virtual clock moves past it without a stall.
    fn poll_sleep(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.sleep.poll_fired(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.sleep.deadline() <= clock::now() && clock::is_virtual() {
            return Pin::new(&mut self.sleep).poll(cx);
        }
        Poll::Pending
    }

    /// Whether the task, which waited `since` then, is polled long after it could have been.
    fn is_late(&mut self, since: u64) -> bool {
        let due = self.clock.ticks().nanos(self.sleep.deadline());
        let gap = Gap::between(due.max(since), self.clock.now(), clock::is_virtual);
        self.gap = gap.unwrap_or(self.gap);
        gap.is_some()
    }

    /// Now, or the sleep's deadline if that is later. They differ when the wheel's runtime and the
    /// caller's have different clocks, as when one of them is paused.
    fn reached(&self) -> u64 {
        let ticks = self.clock.ticks();
        self.clock.now().max(ticks.nanos(self.sleep.deadline()))
    }

    /// Makes the sleep's deadline the instant at which the timer is due. A later one sends no
    /// command.
    fn move_to_due(&mut self) {
        let now = clock::now();
        let due = match self.due(now) {
            Some(due) => due,
            // The timer is never due. The sleep is moved only when it is due itself.
            None if self.sleep.deadline() > now => return,
            None => far_future(),
        };
        if due != self.sleep.deadline() {
            Pin::new(&mut self.sleep).reset(due);
        }
    }

    /// When the timer is due, if nothing touches it before; `None` if never.
    fn due(&self, now: Instant) -> Option<Instant> {
        let ticks = self.clock.ticks();
        (self.clock.due(ticks.nanos(now), self.gap)).map(|due| ticks.at(due))
    }
}

impl Future for IdleTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_completed {
            return Poll::Pending;
        }
        ready!(self.poll_idle(cx));
        self.is_completed = true;
        Poll::Ready(())
    }
}

impl FusedFuture for IdleTimer {
    /// Whether the timer has completed, and was not [restarted](Self::restart) since.
    fn is_terminated(&self) -> bool {
        self.is_completed
    }
}

impl IdleHandle {
    /// Records activity now. Returns `false`, and records nothing, if the timer has completed or
    /// the stream is idle.
    #[inline]
    pub fn touch(&self) -> bool {
        self.clock.touch_at(clock::now())
    }

    /// Records activity at an instant, like [`IdleTimer::touch_at`].
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        self.clock.touch_at(at)
    }

    /// The last activity, rounded up to the tick but not beyond now.
    pub fn last_active(&self) -> Instant {
        self.clock.last_active()
    }

    /// Keeps the timer or stream from being idle while the guard is held. Has no
    /// [effect](BusyGuard::is_effective) if the timer has completed or the stream is idle.
    pub fn busy(&self) -> BusyGuard {
        let on = if self.clock.enter() {
            BusyOn::Timer(Arc::clone(&self.clock))
        } else {
            BusyOn::Nothing
        };
        BusyGuard(on)
    }
}

impl BusyGuard {
    pub(super) fn of_watch(
        activity: &Arc<Activity>,
        ticks: Ticks,
        is_ended: bool,
        waits: WaitsFrom,
    ) -> Self {
        let on = if !is_ended && activity.enter() {
            BusyOn::Watch(Arc::clone(activity), ticks, waits)
        } else {
            BusyOn::Nothing
        };
        BusyGuard(on)
    }

    /// Whether the guard keeps anything busy: `false` if it was taken after the timer had
    /// completed, the stream was idle or the watch was reaped, or while 16,777,215 other guards
    /// were held.
    pub fn is_effective(&self) -> bool {
        !matches!(self.0, BusyOn::Nothing)
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        match &self.0 {
            BusyOn::Timer(clock) => clock.leave(clock.now()),
            BusyOn::Watch(activity, ticks, waits) => {
                activity.leave(ticks.nanos(clock::now()), ticks.tick_nanos());
                if let Some((from, watches)) = waits {
                    watches.release(activity, *from);
                }
            }
            BusyOn::Nothing => {}
        }
    }
}

#[track_caller]
pub(crate) fn assert_not_zero(idle: Duration) {
    assert!(!idle.is_zero(), "an idle duration must be longer than zero");
}

impl fmt::Debug for IdleTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleTimer")
            .field("idle_duration", &self.idle_duration())
            .field("last_active", &self.last_active())
            .field("is_completed", &self.is_completed)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IdleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdleHandle")
            .field("last_active", &self.last_active())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BusyGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BusyGuard")
            .field("is_effective", &self.is_effective())
            .finish_non_exhaustive()
    }
}

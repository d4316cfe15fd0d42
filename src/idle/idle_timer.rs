//! A future that completes once nothing has touched it for a while.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::shared::Shared;
use crate::shared::activity::Activity;
use crate::shared::idle_clock::IdleClock;
use crate::sleep::Sleep;
use crate::tick::{Ticks, far_future};

/// Completes once nothing has touched it for its idle duration, and no [`Busy`] guard is held. Made by
/// [`TimerWheel::idle_timer`](crate::TimerWheel::idle_timer).
///
/// A touch is at most a store; the task that waits is not woken by it, nor is a message sent. It completes not earlier
/// than the idle duration after the last touch, and at most two ticks later.
///
/// After it has completed it can be used again: once touched, polling it waits anew.
///
/// # Cancel safety
///
/// Dropping it cancels it; its handles do nothing then.
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
pub struct IdleTimer {
    clock: Arc<IdleClock>,
    sleep: Sleep,
}

/// Touches an [`IdleTimer`] from elsewhere. Cheap to clone, and usable from any thread.
#[derive(Clone)]
pub struct IdleHandle {
    clock: Arc<IdleClock>,
}

/// While it is held nothing is idle: a request is in flight. When the last guard is dropped, idle counts from there.
#[must_use = "what it guards counts as busy only while it is held"]
pub struct Busy {
    on: BusyOn,
    ticks: Ticks,
}

enum BusyOn {
    Timer(Arc<IdleClock>),
    Watch(Arc<Activity>),
    /// There is nothing to keep from being idle any more.
    Nothing,
}

impl IdleTimer {
    /// The caller has checked that `idle` is not zero.
    pub(crate) fn new(shared: &Arc<Shared>, idle: Duration) -> Self {
        let clock = Arc::new(IdleClock::new(shared.ticks, Some(idle), None, None));
        Self::with_clock(shared, clock)
    }

    pub(super) fn with_clock(shared: &Arc<Shared>, clock: Arc<IdleClock>) -> Self {
        let sleep = Sleep::on_clock(shared, Arc::clone(&clock), far_future());
        IdleTimer { clock, sleep }
    }

    pub(super) fn clock(&self) -> &Arc<IdleClock> {
        &self.clock
    }

    /// Records activity now. False when the timer had completed and has not been polled since: it counts for its next
    /// use. Never panics.
    #[inline]
    pub fn touch(&self) -> bool {
        self.clock.touch_at(Instant::now())
    }

    /// Records activity at an instant, for who has just read the clock. Never panics.
    ///
    /// An instant before the last activity changes nothing. One in the future counts as activity then, but by no more
    /// than one idle duration ahead of the time at which the wheel looks.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        self.clock.touch_at(at)
    }

    /// When it was last active, rounded up to the tick but not beyond now. Never panics.
    pub fn last_active(&self) -> Instant {
        self.clock.last_active()
    }

    /// The idle duration. Never panics.
    pub fn idle(&self) -> Duration {
        self.clock.limit()
    }

    /// Changes the idle duration, also of a timer somebody waits for. It counts from the last activity.
    ///
    /// # Panics
    ///
    /// If `idle` is zero.
    #[track_caller]
    pub fn reset_idle(&mut self, idle: Duration) {
        assert_not_zero(idle);
        self.clock.set_limit(idle);
        // A shorter duration is due earlier than the wheel knows.
        self.move_to_due();
    }

    /// A handle to touch it from elsewhere. Never panics.
    pub fn handle(&self) -> IdleHandle {
        IdleHandle {
            clock: Arc::clone(&self.clock),
        }
    }

    /// Keeps it from being idle while the guard is held. Never panics.
    pub fn busy(&self) -> Busy {
        self.handle().busy()
    }

    /// Writes when it is due into the sleep; later than before that is a store.
    fn move_to_due(&mut self) {
        let now = self.clock.ticks().nanos(Instant::now());
        let due = self.clock.due(now);
        let due = due.map_or_else(far_future, |due| self.clock.ticks().at(due));
        if due != self.sleep.deadline() {
            Pin::new(&mut self.sleep).reset(due);
        }
    }
}

impl Future for IdleTimer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.move_to_due();
        let polled = Pin::new(&mut this.sleep).poll(cx);
        this.clock.set_expired(polled.is_ready());
        polled
    }
}

impl IdleHandle {
    /// Records activity now. False when the timer had completed and has not been polled since. Never panics.
    #[inline]
    pub fn touch(&self) -> bool {
        self.clock.touch_at(Instant::now())
    }

    /// Records activity at an instant; as [`IdleTimer::touch_at`]. Never panics.
    #[inline]
    pub fn touch_at(&self, at: Instant) -> bool {
        self.clock.touch_at(at)
    }

    /// When it was last active, rounded up to the tick but not beyond now. Never panics.
    pub fn last_active(&self) -> Instant {
        self.clock.last_active()
    }

    /// Keeps it from being idle while the guard is held. Never panics.
    pub fn busy(&self) -> Busy {
        let on = if self.clock.enter() {
            BusyOn::Timer(Arc::clone(&self.clock))
        } else {
            BusyOn::Nothing
        };
        Busy {
            on,
            ticks: *self.clock.ticks(),
        }
    }
}

impl Busy {
    /// A guard of something that is watched, if it still is.
    pub(super) fn of_watch(activity: &Arc<Activity>, ticks: Ticks) -> Self {
        let on = if activity.enter() {
            BusyOn::Watch(Arc::clone(activity))
        } else {
            BusyOn::Nothing
        };
        Busy { on, ticks }
    }

    /// Whether the guard keeps anything: false when what it was to guard had been reaped before,
    /// or when 16,777,215 guards of it are held already. Never panics.
    pub fn is_effective(&self) -> bool {
        !matches!(self.on, BusyOn::Nothing)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now = || self.ticks.nanos(Instant::now());
        match &self.on {
            BusyOn::Timer(clock) => clock.leave(now()),
            BusyOn::Watch(activity) => activity.leave(now(), self.ticks.tick_nanos()),
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
            .field("idle", &self.idle())
            .field("last_active", &self.last_active())
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

impl fmt::Debug for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Busy")
            .field("is_effective", &self.is_effective())
            .finish_non_exhaustive()
    }
}

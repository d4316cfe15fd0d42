//! Intervals: a future that completes again and again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::clock;
use crate::sleep::Sleep;
use crate::tick;

/// Completes [`tick`](Interval::tick) once every period. Made by
/// [`TimerWheel::interval`](crate::TimerWheel::interval) and
/// [`interval_at`](crate::TimerWheel::interval_at).
///
/// It works like [`tokio::time::Interval`], but an unrepresentable tick, such as the second one of
/// an interval of `Duration::MAX`, never comes.
///
/// A tick that comes more than 5 ms later than it could counts as missed. [`MissedTickBehavior`]
/// decides when the next one comes; by default missed ticks follow each other at once (`Burst`).
///
/// A tick can come once the [tick of its wheel](crate::Builder::tick) begins that follows its
/// instant. On a wheel of 100 ms, an interval of 100 ms is up to 100 ms late each time, and misses
/// none. With a shorter period, several ticks come together, as many as there are periods.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tokio::time::{Instant, MissedTickBehavior};
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let start = Instant::now();
///
/// let mut heartbeat = wheel.interval(Duration::from_secs(10));
/// heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
/// heartbeat.tick().await;
/// assert_eq!(start.elapsed(), Duration::ZERO);
/// heartbeat.tick().await;
/// assert_eq!(start.elapsed(), Duration::from_secs(10));
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ticker")]
#[doc(alias = "periodic")]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
    /// The instant of the next tick had passed when it was armed, though the wheel's tick for it
    /// had not begun. It comes with the wheel's tick. By the clock it would come together with the
    /// one before, and no tick in the next period.
    comes_by_wheel: bool,
}

impl Interval {
    pub(crate) fn new(sleep: Sleep, period: Duration) -> Self {
        Interval {
            sleep,
            period,
            missed: MissedTickBehavior::default(),
            comes_by_wheel: false,
        }
    }

    /// Waits for the next tick. Returns the instant at which it was due.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, and is ready once for each. Only a pending poll registers the task
    /// to be woken.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(if self.comes_by_wheel {
            self.sleep.poll_fired(cx)
        } else {
            Pin::new(&mut self.sleep).poll(cx)
        });
        let due = self.sleep.deadline();
        let now = clock::now();
        let next = self.next(due, now);
        let can_come = next.is_none_or(|next| next > now || self.sleep.can_fire(next, now));
        self.comes_by_wheel = !can_come;
        self.sleep.rearm_when_polled(next);
        Poll::Ready(due)
    }

    /// Makes the next tick come one period from now.
    pub fn reset(&mut self) {
        self.reset_to(tick::after(self.period));
    }

    /// Makes the next tick come at once.
    pub fn reset_immediately(&mut self) {
        self.reset_to(Some(clock::now()));
    }

    /// Makes the next tick come after `after`, or never if that is too far to be represented.
    pub fn reset_after(&mut self, after: Duration) {
        self.reset_to(tick::after(after));
    }

    /// Makes the next tick come at `deadline`.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.reset_to(Some(deadline));
    }

    /// The time from one tick to the next.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// When the next tick comes after missed ones.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets when the next tick comes after missed ones.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    fn reset_to(&mut self, next: Option<Instant>) {
        self.comes_by_wheel = false;
        self.sleep.reset_or_never(next);
    }

    /// The tick that follows the one at `due`, which comes now.
    fn next(&self, due: Instant, now: Instant) -> Option<Instant> {
        match (self.missed, self.sleep.missed_by(now)) {
            (MissedTickBehavior::Burst, _) | (_, None) => due.checked_add(self.period),
            (MissedTickBehavior::Delay, Some(_)) => now.checked_add(self.period),
            (MissedTickBehavior::Skip, Some(late)) => {
                let into_period = late.as_nanos() % self.period.as_nanos();
                // The lateness does not fit if it is over 584 years. There is no next tick then.
                let into_period = Duration::from_nanos(u64::try_from(into_period).ok()?);
                let until = due.checked_add(late)?;
                until.checked_add(self.period)?.checked_sub(into_period)
            }
        }
    }
}

//! A sequence of ticks.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::sleep::Sleep;

/// A tick that comes this much late counts as missed.
const MISSED_AFTER: Duration = Duration::from_millis(5);

/// Completes [`tick`](Interval::tick) again and again, every period. Made by
/// [`TimerWheel::interval`](crate::TimerWheel::interval) and [`interval_at`](crate::TimerWheel::interval_at).
///
/// What [`tokio::time::Interval`] is, on a wheel: ticks that come more than 5 ms late count as missed, and
/// [`MissedTickBehavior`] says what to do about them; by default they follow each other at once (`Burst`).
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
/// heartbeat.tick().await; // the first comes at once
/// heartbeat.tick().await;
/// assert_eq!(start.elapsed(), Duration::from_secs(10));
/// # }
/// ```
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
}

impl Interval {
    pub(crate) fn new(sleep: Sleep, period: Duration) -> Self {
        Interval {
            sleep,
            period,
            missed: MissedTickBehavior::default(),
        }
    }

    /// Waits for the next tick; returns the instant it was due.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no tick.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick. Ready once for each; when it is ready no task is registered to be woken.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(cx));
        let due = self.sleep.deadline();
        let now = Instant::now();
        let missed = (due.checked_add(MISSED_AFTER)).is_some_and(|late| now > late);
        let next = if missed {
            self.next_after_missed(due, now)
        } else {
            due.checked_add(self.period)
        };
        self.set_next(next);
        Poll::Ready(due)
    }

    /// The next tick comes one period from now. Never panics.
    pub fn reset(&mut self) {
        self.set_next(Instant::now().checked_add(self.period));
    }

    /// The next tick comes at once. Never panics.
    pub fn reset_immediately(&mut self) {
        self.set_next(Some(Instant::now()));
    }

    /// The next tick comes after `after`. Never panics.
    pub fn reset_after(&mut self, after: Duration) {
        self.set_next(Instant::now().checked_add(after));
    }

    /// The next tick comes at `deadline`. Never panics.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.set_next(Some(deadline));
    }

    /// The time from one tick to the next. Never panics.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What is done about missed ticks. Never panics.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what is done about missed ticks. Never panics.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    fn set_next(&mut self, next: Option<Instant>) {
        self.sleep.reset_or_never(next);
    }

    fn next_after_missed(&self, due: Instant, now: Instant) -> Option<Instant> {
        match self.missed {
            MissedTickBehavior::Burst => due.checked_add(self.period),
            MissedTickBehavior::Delay => now.checked_add(self.period),
            MissedTickBehavior::Skip => {
                let late = now.duration_since(due).as_nanos();
                let into_period = late % self.period.as_nanos();
                // Under a period, which fits what it was made from.
                let into_period =
                    u64::try_from(into_period).map_or(self.period, Duration::from_nanos);
                now.checked_add(self.period)?.checked_sub(into_period)
            }
        }
    }
}

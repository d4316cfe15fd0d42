//! How long a timer that has failed waits for its next attempt.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::jitter::jittered;

/// The defaults of [`Backoff::exponential`].
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(3_600);

/// No delay is longer: a hundred years.
const MAX_DELAY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How long a timer that has failed waits for its next attempt. For
/// [`Builder::backoff`](crate::Builder::backoff).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel_durable::Backoff;
///
/// // 1 s, 2 s, 4 s .. an hour, each up to a tenth longer. The default.
/// let exponential = Backoff::exponential();
/// assert!(exponential.delay(3) >= Duration::from_secs(4));
///
/// // A quarter of a second, half a second .. a minute.
/// let quick = Backoff::exponential()
///     .first(Duration::from_millis(250))
///     .longest(Duration::from_secs(60));
/// assert!(quick.delay(1) < Duration::from_millis(276));
///
/// let fixed = Backoff::fixed(Duration::from_secs(5));
/// assert_eq!(fixed.delay(9), Duration::from_secs(5));
///
/// let linear = Backoff::from_fn(|attempt| Duration::from_secs(30) * attempt);
/// assert_eq!(linear.delay(2), Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct Backoff(Kind);

#[derive(Clone)]
enum Kind {
    Exponential { first: Duration, longest: Duration },
    Fixed(Duration),
    Function(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

impl Backoff {
    /// A second after the first attempt, and twice as long after each further one, up to an hour.
    /// Each delay is up to a tenth longer, at random, so that timers which fail together do not
    /// come back together.
    pub fn exponential() -> Self {
        Backoff(Kind::Exponential {
            first: FIRST,
            longest: LONGEST,
        })
    }

    /// The same delay after each attempt, exactly. With zero a timer that fails comes again at
    /// once.
    pub fn fixed(delay: Duration) -> Self {
        Backoff(Kind::Fixed(delay))
    }

    /// The delay that `delay` returns for the number of the attempt that has failed, counted
    /// from 1.
    ///
    /// If it panics, the timer waits as with [`exponential`](Self::exponential).
    pub fn from_fn(delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Backoff(Kind::Function(Arc::new(delay)))
    }

    /// Sets the delay after the first attempt of [`exponential`](Self::exponential). Other kinds
    /// ignore it.
    #[must_use]
    pub fn first(mut self, delay: Duration) -> Self {
        if let Kind::Exponential { first, .. } = &mut self.0 {
            *first = delay;
        }
        self
    }

    /// Sets the longest delay of [`exponential`](Self::exponential), before its random part. Other
    /// kinds ignore it.
    #[must_use]
    pub fn longest(mut self, delay: Duration) -> Self {
        if let Kind::Exponential { longest, .. } = &mut self.0 {
            *longest = delay;
        }
        self
    }

    /// The delay after the attempt with this number, counted from 1: at most a hundred years and a
    /// tenth.
    pub fn delay(&self, attempt: u32) -> Duration {
        match &self.0 {
            Kind::Exponential { first, longest } => {
                let doublings = 2_u32.saturating_pow(attempt.saturating_sub(1));
                let delay = first.saturating_mul(doublings).min(*longest);
                jittered(delay.min(MAX_DELAY))
            }
            Kind::Fixed(delay) => (*delay).min(MAX_DELAY),
            Kind::Function(delay) => {
                let delay = std::panic::AssertUnwindSafe(|| delay(attempt));
                match std::panic::catch_unwind(delay) {
                    Ok(delay) => delay.min(MAX_DELAY),
                    Err(_panic) => Backoff::exponential().delay(attempt),
                }
            }
        }
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::exponential()
    }
}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Exponential { first, longest } => f
                .debug_struct("Exponential")
                .field("first", first)
                .field("longest", longest)
                .finish(),
            Kind::Fixed(delay) => f.debug_tuple("Fixed").field(delay).finish(),
            Kind::Function(_) => f.debug_struct("Function").finish_non_exhaustive(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_delays_double_up_to_the_longest() {
        let backoff = Backoff::exponential();
        for (attempt, secs) in [(0, 1), (1, 1), (2, 2), (3, 4), (12, 2_048), (13, 3_600)] {
            let (delay, least) = (backoff.delay(attempt), Duration::from_secs(secs));
            assert!(delay >= least && delay <= least + least / 10, "{delay:?}");
        }
        for attempt in [33, u32::MAX] {
            let delay = backoff.delay(attempt);
            assert!(
                (LONGEST..=LONGEST + LONGEST / 10).contains(&delay),
                "{delay:?}"
            );
        }
    }

    /// Whether it is shorter than the default or longer.
    #[test]
    fn longest_delay_is_the_one_that_was_set() {
        for longest in [60, 7_200].map(Duration::from_secs) {
            let delay = Backoff::exponential().longest(longest).delay(30);
            let most = longest + longest / 10;
            assert!((longest..=most).contains(&delay), "{delay:?}");
        }
    }

    #[test]
    fn exponential_delays_spread() {
        let backoff = Backoff::exponential();
        let first = backoff.delay(9);
        assert!((0..50).any(|_| backoff.delay(9) != first));
    }

    #[test]
    fn delays_are_bounded_whatever_a_program_asks_for() {
        let endless = Backoff::exponential().longest(Duration::MAX);
        assert!(endless.delay(u32::MAX) <= MAX_DELAY + MAX_DELAY / 10);
        assert_eq!(Backoff::fixed(Duration::MAX).delay(1), MAX_DELAY);
        assert_eq!(Backoff::from_fn(|_| Duration::MAX).delay(1), MAX_DELAY);
    }

    #[test]
    fn function_that_panics_leaves_the_default_delay() {
        let backoff = Backoff::from_fn(|_| panic!("it panics, as the test wants"));
        for attempt in [1, 5] {
            let least = Backoff::exponential().first(FIRST).delay(attempt) / 2;
            assert!(backoff.delay(attempt) >= least, "attempt {attempt}");
        }
    }
}

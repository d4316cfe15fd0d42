//! The expiration of a timer.

use tokio::time::Instant;

/// A keyed timer or a watch that has expired.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Expired<K, V> {
    /// The key it was set under.
    pub key: K,
    /// The value it was set with.
    pub value: V,
    /// When it was due: the instant that a timer was last set or moved to, that a repeating one had
    /// reached, or at which a watch was idle or reached its maximum age.
    pub deadline: Instant,
    /// How many further periods of a [repeating timer](crate::KeyedTimers::set_interval) had passed
    /// when this expiration was received. They get no expirations of their own. Zero for every
    /// other timer.
    pub missed: u64,
    /// Why it expired.
    pub cause: Cause,
}

impl<K, V> Expired<K, V> {
    /// Makes the expiration of a timer that was due at `deadline`, to test code that handles one.
    /// No period was [missed](Self::missed), and the [cause](Self::cause) is [`Cause::Deadline`].
    ///
    /// # Examples
    ///
    /// ```
    /// use tickwheel::Expired;
    /// use tokio::time::Instant;
    ///
    /// fn reminder(expired: Expired<&str, u32>) -> String {
    ///     format!("{} is unpaid: {}", expired.key, expired.value)
    /// }
    ///
    /// let expired = Expired::new("order 7", 250, Instant::now());
    /// assert_eq!(reminder(expired), "order 7 is unpaid: 250");
    /// ```
    pub fn new(key: K, value: V, deadline: Instant) -> Self {
        Expired {
            key,
            value,
            deadline,
            missed: 0,
            cause: Cause::Deadline,
        }
    }
}

/// Why a keyed timer or a watch expired. It names a kind, as [`ErrorKind`](std::io::ErrorKind)
/// does; details would be fields of [`Expired`].
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tickwheel::Cause;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let wheel = tickwheel::TimerWheel::new();
/// let (reaper, mut ended) = wheel.reaper::<u32, ()>(Duration::from_secs(60));
/// let _silent = reaper.watch(1, ())?;
///
/// let reason = match ended.recv().await.ok_or("closed")?.cause {
///     Cause::Idle => "idle for a minute",
///     Cause::MaxAge => "too old",
///     Cause::Forced => "ended by the server",
///     _ => "expired",
/// };
/// assert_eq!(reason, "idle for a minute");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// The keyed timer reached its deadline.
    Deadline,
    /// Nothing touched what is watched for the idle duration.
    Idle,
    /// The watch reached its [maximum age](crate::WatchOptions::max_age).
    MaxAge,
    /// [`WatchGuard::expire_now`](crate::WatchGuard::expire_now) ended the watch.
    Forced,
}

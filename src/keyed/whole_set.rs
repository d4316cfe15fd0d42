//! The calls of [`KeyedTimers`] that are about the whole set.

use std::sync::Arc;

use tokio::time::Instant;

use super::error::ClosedError;
use super::timers::KeyedTimers;
use super::unexpired::Unexpired;
use super::weak_timers::WeakKeyedTimers;

impl<K, V, S> KeyedTimers<K, V, S> {
    /// The deadline of the timer that expires next; `None` if there is no timer, or the set is
    /// closed. One that is due and not received yet counts, and one that never expires counts
    /// with the instant that [`deadline`](Self::deadline) returns.
    ///
    /// It visits all timers, 256 at a time under the lock, as [`retain`](Self::retain) does: it is
    /// for tests and status pages.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<&str, ()>();
    /// assert_eq!(timers.next_deadline(), None);
    /// timers.set_timer("far", (), Duration::from_secs(60))?;
    /// timers.set_timer("near", (), Duration::from_secs(5))?;
    /// assert_eq!(timers.next_deadline(), Some(Instant::now() + Duration::from_secs(5)));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "peek")]
    pub fn next_deadline(&self) -> Option<Instant> {
        let mut next: Option<Instant> = None;
        let look = |_: &K, _: &mut V, deadline: Instant| {
            next = Some(next.map_or(deadline, |next| next.min(deadline)));
            true
        };
        // An error means that the set is closed.
        self.handles.set.retain(look).ok()?;
        next
    }

    /// Removes the timers for which `keep` returns `false`, as
    /// [`HashMap::retain`](std::collections::HashMap::retain) does. `keep` may change the value.
    ///
    /// The call visits each timer that is pending throughout it once, in no order, and perhaps
    /// timers set meanwhile, but none whose handler of a [`dispatch`](crate::Expirations::dispatch)
    /// runs. It drops keys and values of removed timers while the set is not
    /// locked.
    ///
    /// `keep` runs while the set is locked, for 256 timers at a time; other calls wait, and timers
    /// of this set are late meanwhile. It must be quick, and must not call back into the set.
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped, before or during the
    /// call.
    ///
    /// # Panics
    ///
    /// Panics if `keep` does. Earlier decisions of `keep` still hold.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<(&str, u32), ()>();
    /// for order in 0..10 {
    ///     timers.set_timer(("alice", order), (), Duration::from_secs(60))?;
    ///     timers.set_timer(("bob", order), (), Duration::from_secs(60))?;
    /// }
    /// // Alice has left.
    /// timers.retain(|(user, _), (), _deadline| *user != "alice")?;
    /// assert_eq!(timers.len(), 10);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "remove_all")]
    #[doc(alias = "iter")]
    pub fn retain(&self, keep: impl FnMut(&K, &mut V, Instant) -> bool) -> Result<(), ClosedError> {
        self.handles.set.retain(keep)
    }

    /// Removes every pending timer and returns them, earliest first. Timers that are set, set again
    /// or moved during the call stay. Repeating timers that fire meanwhile are removed too.
    ///
    /// # Errors
    ///
    /// [`ClosedError`] when the wheel is shut down or the stream dropped.
    /// [`Expirations::unexpired`](crate::Expirations::unexpired) returns the timers that were
    /// pending.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let wheel = tickwheel::TimerWheel::new();
    /// let (timers, _expirations) = wheel.keyed::<&str, u32>();
    /// timers.set_timer("later", 2, Duration::from_secs(20))?;
    /// timers.set_timer("soon", 1, Duration::from_secs(10))?;
    ///
    /// let pending: Vec<_> = timers.drain()?.into_iter().map(|timer| timer.key).collect();
    /// assert_eq!(pending, ["soon", "later"]);
    /// assert!(timers.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "clear")]
    pub fn drain(&self) -> Result<Vec<Unexpired<K, V>>, ClosedError> {
        self.handles.set.drain()
    }

    /// How many timers are pending, exactly.
    pub fn len(&self) -> usize {
        self.handles.set.len()
    }

    /// Whether no timer is pending.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no timer can be set any more: the wheel is shut down, or the stream dropped.
    pub fn is_closed(&self) -> bool {
        self.handles.set.is_closed()
    }

    /// A handle that does not keep the stream of expirations open.
    pub fn downgrade(&self) -> WeakKeyedTimers<K, V, S> {
        let handles = Arc::downgrade(&self.handles);
        WeakKeyedTimers { handles }
    }
}

//! The handle of a set of keyed timers.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::error::{Closed, SetTimerError};
use super::expirations::{Expirations, Expired};
use super::set::{Repeat, Set};
use super::stored::Plain;
use crate::panic::drop_caught;
use crate::tick::{Timestamp, after};
use crate::timer_wheel::TimerWheel;

/// Sets, moves and removes the timers of one set. Made by [`TimerWheel::keyed`].
///
/// Cheap to clone, and usable from any thread and task, also from synchronous code: no call waits for the actor or for
/// the consumer. Calls take effect in the order in which they are made. Those that are `async` are so for the
/// symmetry of the interface; they are ready when first polled, and do nothing if dropped before.
///
/// Where a key is only looked up it may be given by value or by reference.
///
/// # What ends a timer
///
/// Exactly one of: it fires; it is removed or taken; its key is set again; it is drained. A timer has fired when it
/// lies in the stream, received or not.
///
/// # Panics in keys and values
///
/// A `Hash`, `Eq`, `Clone` or `Drop` that panics is caught and logged, and costs that timer only. They run in the
/// caller or in the actor; `Hash`, `Eq` and `Clone` must not call back into the same set.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut expirations) = wheel.keyed::<u64, String>();
///
/// timers.set_timer(1, "first".to_owned(), Duration::from_secs(10))?;
/// timers.set_timer(2, "second".to_owned(), Duration::from_secs(20))?;
/// timers.move_timer(1, Duration::from_secs(30))?;
///
/// assert_eq!(expirations.recv().await.unwrap().key, 2);
/// assert_eq!(timers.take_timer(1).await?.as_deref(), Some("first"));
/// assert!(timers.is_empty());
/// # Ok(())
/// # }
/// ```
pub struct KeyedTimers<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    set: Arc<Set<K, Plain<V>>>,
    /// Dropped with the last handle of this set.
    #[allow(dead_code, reason = "it is there to be dropped")]
    handle: Arc<Handle<K, V>>,
}

/// Exists while a handle of the set does.
struct Handle<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    set: Arc<Set<K, Plain<V>>>,
    /// Keeps the actor.
    _wheel: TimerWheel,
}

impl<K, V> Drop for Handle<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn drop(&mut self) {
        self.set.handles_gone();
    }
}

/// A new set on the wheel.
pub(crate) fn pair<K, V>(wheel: &TimerWheel) -> (KeyedTimers<K, V>, Expirations<K, V>)
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    let set = Set::new(wheel.shared(), ());
    let handle = Arc::new(Handle {
        set: Arc::clone(&set),
        _wheel: wheel.clone(),
    });
    let timers = KeyedTimers {
        set: Arc::clone(&set),
        handle,
    };
    (timers, Expirations::new(set))
}

#[allow(clippy::unused_async)] // part of the interface
impl<K, V> KeyedTimers<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    /// Sets a timer to fire after `delay`. If the key has one already, its value and its deadline are replaced.
    ///
    /// The deadline is counted from this call. A delay of zero fires with the next tick; one too long to be
    /// represented never fires. Never panics.
    ///
    /// # Errors
    ///
    /// [`Full`](SetTimerError::Full) when the key is new and `max_keyed` timers are pending;
    /// [`Closed`](SetTimerError::Closed) when the wheel is shut down or the stream dropped. Both give key and value back.
    pub fn set_timer(&self, key: K, value: V, delay: Duration) -> Result<(), SetTimerError<K, V>> {
        self.set.set(key, value, self.timestamp_after(delay), None)
    }

    /// Sets a timer to fire at `deadline`; one in the past fires on the actor's next turn. Otherwise as
    /// [`set_timer`](Self::set_timer).
    ///
    /// # Errors
    ///
    /// As [`set_timer`](Self::set_timer).
    pub fn set_timer_at(
        &self,
        key: K,
        value: V,
        deadline: Instant,
    ) -> Result<(), SetTimerError<K, V>> {
        self.set.set(key, value, self.timestamp(deadline), None)
    }

    /// Sets a timer that fires every `period`, the first time one period from now, until it is removed or set again.
    ///
    /// It keeps to its schedule and does not drift: each deadline is a multiple of the period from this call. Times
    /// that have passed when the actor gets to them are left out, but for one. A period under a tick is a tick. Each
    /// expiration has a clone of key and value; if cloning panics the timer is removed. Moving it shifts the schedule.
    /// Never panics.
    ///
    /// # Errors
    ///
    /// As [`set_timer`](Self::set_timer).
    pub fn set_interval(
        &self,
        key: K,
        value: V,
        period: Duration,
    ) -> Result<(), SetTimerError<K, V>>
    where
        K: Clone,
        V: Clone,
    {
        let period = period.max(self.set.shared().ticks.tick());
        let period_nanos = i64::try_from(period.as_nanos()).unwrap_or(i64::MAX);
        let repeat = Repeat {
            period_nanos,
            clone: |key: &K, Plain(value): &Plain<V>| (key.clone(), value.clone()),
        };
        let deadline = self.timestamp_after(period);
        self.set.set(key, value, deadline, Some(repeat))
    }

    /// Moves the timer with this key to fire `delay` from now, earlier or later; its value stays. Without such a timer
    /// this does nothing.
    ///
    /// Counts as arming anew: within its tick the timer comes after those armed before this call. Never panics.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the wheel is shut down or the stream dropped.
    pub fn move_timer(&self, key: impl Borrow<K>, delay: Duration) -> Result<(), Closed> {
        self.set.move_to(key.borrow(), self.timestamp_after(delay))
    }

    /// Moves the timer with this key to fire at `deadline`. Otherwise as [`move_timer`](Self::move_timer).
    ///
    /// # Errors
    ///
    /// As [`move_timer`](Self::move_timer).
    pub fn move_timer_at(&self, key: impl Borrow<K>, deadline: Instant) -> Result<(), Closed> {
        self.set.move_to(key.borrow(), self.timestamp(deadline))
    }

    /// Forgets the timer with this key and drops its value. Without such a timer this does nothing. Never panics.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the wheel is shut down or the stream dropped.
    pub fn remove_timer(&self, key: impl Borrow<K>) -> Result<(), Closed> {
        if let Some((key, value)) = self.set.remove(key.borrow())? {
            drop_caught([key]);
            drop_caught([value]);
        }
        Ok(())
    }

    /// Removes the timer with this key and returns its value. `Some`: it will never fire. `None`: it has fired, or
    /// there was none. Never panics.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the wheel is shut down or the stream dropped; see
    /// [`unexpired`](super::Expirations::unexpired) for what was pending.
    ///
    /// # Cancel safety
    ///
    /// Ready when first polled; dropped before that it does nothing.
    pub async fn take_timer(&self, key: impl Borrow<K>) -> Result<Option<V>, Closed> {
        let taken = self.set.remove(key.borrow())?;
        Ok(taken.map(|(key, value)| {
            drop_caught([key]);
            value
        }))
    }

    /// When the timer with this key fires; `None` without one. Decades from now for one that never does. Never panics.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the wheel is shut down or the stream dropped.
    ///
    /// # Cancel safety
    ///
    /// Ready when first polled; has no effect.
    pub async fn deadline(&self, key: impl Borrow<K>) -> Result<Option<Instant>, Closed> {
        self.set.deadline(key.borrow())
    }

    /// Takes every pending timer out and returns them, earliest first. Those set or moved while this runs may stay.
    /// Never panics.
    ///
    /// # Errors
    ///
    /// [`Closed`] when the wheel is shut down or the stream dropped; see
    /// [`unexpired`](super::Expirations::unexpired) for what was pending.
    ///
    /// # Cancel safety
    ///
    /// Ready when first polled; dropped before that it does nothing.
    pub async fn drain(&self) -> Result<Vec<Expired<K, V>>, Closed> {
        self.set.drain()
    }

    /// How many timers are pending: set and not fired, removed or drained. Exact. Never panics.
    pub fn len(&self) -> usize {
        self.set.len()
    }

    /// Whether no timer is pending. Never panics.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether no timer can be set any more. Never panics.
    pub fn is_closed(&self) -> bool {
        self.set.is_closed()
    }

    fn timestamp(&self, deadline: Instant) -> Timestamp {
        self.set.shared().ticks.timestamp(deadline)
    }

    fn timestamp_after(&self, delay: Duration) -> Timestamp {
        after(delay).map_or(Timestamp::NEVER, |deadline| self.timestamp(deadline))
    }
}

impl<K, V> Clone for KeyedTimers<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn clone(&self) -> Self {
        KeyedTimers {
            set: Arc::clone(&self.set),
            handle: Arc::clone(&self.handle),
        }
    }
}

impl<K, V> fmt::Debug for KeyedTimers<K, V>
where
    K: Hash + Eq + Send + 'static,
    V: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedTimers")
            .field("len", &self.len())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

//! The handle of a set of keyed timers that does not keep its stream open.

use std::fmt;
use std::hash::RandomState;
use std::sync::Weak;

use super::payload::Plain;
use super::set::Handles;
use super::timers::KeyedTimers;

/// A handle that does not keep the stream of expirations open. Made by [`KeyedTimers::downgrade`].
///
/// The stream ends once no [`KeyedTimers`] and no timer is left. A consumer that sets timers of its
/// own set holds a weak handle, and [upgrades](Self::upgrade) it to set them; with a strong one it
/// would wait for itself. Keep a strong handle elsewhere; otherwise `upgrade` fails.
///
/// A handler that tries its own timer again needs no handle: it returns
/// [`Outcome::Again`](crate::Outcome::Again).
///
/// # Examples
///
/// Each order that is due sets a timer for its reminder:
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut expirations) = wheel.keyed::<&str, u32>();
/// let weak = timers.downgrade();
/// timers.set_timer("order", 7, Duration::from_secs(5)).unwrap();
///
/// let consumer = tokio::spawn(async move {
///     let mut received = Vec::new();
///     while let Some(expired) = expirations.recv().await {
///         if let Some(timers) = weak.upgrade().filter(|_| expired.key == "order") {
///             timers.set_timer("reminder", expired.value, Duration::from_secs(5)).unwrap();
///         }
///         received.push(expired.key);
///     }
///     received
/// });
/// tokio::time::sleep(Duration::from_secs(60)).await;
/// drop(timers); // the stream ends, and with it the consumer
/// assert_eq!(consumer.await.unwrap(), ["order", "reminder"]);
/// # }
/// ```
pub struct WeakKeyedTimers<K, V, S = RandomState> {
    pub(super) handles: Weak<Handles<K, Plain<V>, S>>,
}

impl<K, V, S> WeakKeyedTimers<K, V, S> {
    /// A strong handle; `None` once the last [`KeyedTimers`] is dropped.
    pub fn upgrade(&self) -> Option<KeyedTimers<K, V, S>> {
        let handles = self.handles.upgrade()?;
        Some(KeyedTimers { handles })
    }
}

impl<K, V, S> Clone for WeakKeyedTimers<K, V, S> {
    fn clone(&self) -> Self {
        let handles = Weak::clone(&self.handles);
        WeakKeyedTimers { handles }
    }
}

impl<K, V, S> fmt::Debug for WeakKeyedTimers<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakKeyedTimers")
            .field("is_open", &(self.handles.strong_count() > 0))
            .finish_non_exhaustive()
    }
}

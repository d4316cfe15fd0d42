//! The handle of a set of keyed timers that does not keep its stream open.

use std::fmt;
use std::hash::RandomState;
use std::sync::Weak;

use super::payload::Plain;
use super::set::Handles;
use super::timers::KeyedTimers;

/// A handle that does not keep the stream of expirations open. Made by [`KeyedTimers::downgrade`].
///
/// The stream ends once no [`KeyedTimers`] and no timer is left. A handler that sets timers of its
/// own set holds a weak handle, and [upgrades](Self::upgrade) it to set them. Keep a strong handle
/// elsewhere, or it can set none.
///
/// # Examples
///
/// A retry that arms itself again, until it has been tried three times:
///
/// ```
/// use std::time::Duration;
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// let wheel = tickwheel::TimerWheel::new();
/// let (timers, mut expirations) = wheel.keyed::<&str, u32>();
/// let retry = timers.downgrade();
/// timers.set_timer("upload", 1, Duration::from_secs(5)).unwrap();
///
/// let retries = async {
///     let mut tries = 0;
///     while let Some(expired) = expirations.recv().await {
///         tries = expired.value;
///         if let Some(timers) = retry.upgrade().filter(|_| tries < 3) {
///             timers.set_timer(expired.key, tries + 1, Duration::from_secs(5)).unwrap();
///         }
///     }
///     tries
/// };
/// // The last strong handle is dropped once the retries are over.
/// let holder = async {
///     tokio::time::sleep(Duration::from_secs(60)).await;
///     drop(timers);
/// };
/// assert_eq!(tokio::join!(retries, holder).0, 3);
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

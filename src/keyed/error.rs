//! Errors of keyed timers.

use std::error::Error;
use std::fmt;

/// A timer could not be set. The caller gets key and value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SetTimerError<K, V> {
    /// As many timers are pending as [`Builder::max_keyed`](crate::Builder::max_keyed) allows, and the key is new.
    Full(K, V),
    /// The wheel was shut down, or the stream of expirations dropped.
    Closed(K, V),
}

impl<K, V> SetTimerError<K, V> {
    /// The key and the value that were to be set. Never panics.
    pub fn into_inner(self) -> (K, V) {
        match self {
            SetTimerError::Full(key, value) | SetTimerError::Closed(key, value) => (key, value),
        }
    }

    /// Whether there may be room later. Never panics.
    pub fn is_full(&self) -> bool {
        matches!(self, SetTimerError::Full(..))
    }

    /// Whether no timer can be set any more. Never panics.
    pub fn is_closed(&self) -> bool {
        matches!(self, SetTimerError::Closed(..))
    }
}

impl<K, V> fmt::Debug for SetTimerError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetTimerError::Full(..) => "Full(..)",
            SetTimerError::Closed(..) => "Closed(..)",
        })
    }
}

impl<K, V> fmt::Display for SetTimerError<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SetTimerError::Full(..) => "as many timers are pending as max_keyed allows",
            SetTimerError::Closed(..) => "the timers are closed",
        })
    }
}

impl<K, V> Error for SetTimerError<K, V> {}

/// The wheel was shut down, or the stream of expirations dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Closed(());

impl Closed {
    pub(super) fn new() -> Self {
        Closed(())
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the timers are closed")
    }
}

impl Error for Closed {}

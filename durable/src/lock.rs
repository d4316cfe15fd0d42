//! Locking a mutex of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also if a thread has panicked while it had the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

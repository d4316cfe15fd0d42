//! Locking a mutex of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks it, also after a panic under the lock: nothing is left half changed then.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! Locks and atomics for the protocols between threads, and the number of a thread.
//!
//! Locks and atomics are the standard library's, loom's in the models (`--cfg tickwheel_loom`,
//! because plain `--cfg loom` switches Tokio's internals too), or shuttle's under the explorer
//! (`--cfg tickwheel_shuttle`).

#[cfg_attr(any(tickwheel_loom, tickwheel_shuttle), path = "sync/model.rs")]
mod threads;

use std::sync::{PoisonError, TryLockError};

pub(crate) use threads::{
    AtomicWaker, Mutex, MutexGuard, SpinMutex, atomic, spin_while, thread_local, thread_number,
    yield_now,
};

/// Whether this runs under the explorer. Its schedules are short, so limits are lower there, to be
/// reached.
pub(crate) const IN_EXPLORER: bool = cfg!(tickwheel_shuttle);

/// Locks a mutex, poisoned or not. Under these mutexes, code of a user runs only if its panics are
/// caught, or before anything is changed, so the value of a poisoned mutex is never half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Like [`lock`], but spins with exponential backoff before blocking.
///
/// Two threads that alternate at a lock move the guarded cache lines from one core to the other
/// each time. A thread that backs off lets the other take the lock several times in a row.
#[inline]
pub(crate) fn lock_with_backoff<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    try_lock_with_backoff(mutex).unwrap_or_else(|| lock(mutex))
}

/// Like [`lock_with_backoff`], but gives up instead of blocking: `None` if it is locked all the
/// time.
#[inline]
pub(crate) fn try_lock_with_backoff<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    try_lock(mutex).or_else(|| threads::back_off(mutex))
}

/// Like [`lock`], but `None` if it is locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A value on cache lines of its own: two of them, since processors fetch lines in pairs. Writing
/// it then does not slow down threads that read what lies next to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;
    use std::thread;

    /// Adds up from several threads, each of which yields between reading and writing.
    fn add_up(add: impl Fn() + Sync) {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| add()));
            }
        });
    }

    #[test]
    fn holder_that_yields_excludes_other_threads() {
        let sum = SpinMutex::new(0);
        add_up(|| {
            let mut guard = sum.lock();
            let read = *guard;
            thread::yield_now();
            *guard = read + 1;
        });
        assert_eq!(*sum.lock(), 2000);
    }

    #[test]
    fn locks_with_backoff_a_mutex_that_is_poisoned_or_taken() {
        let sum = Mutex::new(0);
        let poison = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _guard = sum.lock();
                panic!("while it is locked");
            });
            holder.join()
        });
        assert!(poison.is_err() && sum.is_poisoned());
        add_up(|| {
            let mut guard = lock_with_backoff(&sum);
            let read = *guard;
            thread::yield_now();
            *guard = read + 1;
        });
        let guard = lock_with_backoff(&sum);
        assert!(*guard == 2000 && try_lock_with_backoff(&sum).is_none());
    }
}

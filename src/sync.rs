//! The primitives that the protocols between threads are built on: the standard library's, or loom's when the
//! models are checked (`--cfg tickwheel_loom`; plain `--cfg loom` would switch Tokio's internals too).

use std::sync::PoisonError;
#[cfg(not(tickwheel_loom))]
use std::sync::TryLockError;

#[cfg(not(tickwheel_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tickwheel_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// Locks a mutex under which no code of a user runs unguarded, so that a poisoned one holds nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`], but who finds it taken waits longer each time before the next look, and sleeps only after that.
///
/// Two threads that take turns at a lock move what it guards from one core to the other each time. Who stays away for a
/// while lets the other do much at once.
#[cfg(not(tickwheel_loom))]
pub(crate) fn lock_with_backoff<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    for doublings in 0..BACKOFF_STEPS {
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                (0..1 << doublings).for_each(|_| std::hint::spin_loop());
            }
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(tickwheel_loom)]
pub(crate) use lock as lock_with_backoff;

/// How often the wait doubles before a thread sleeps: a few microseconds in all.
#[cfg(not(tickwheel_loom))]
const BACKOFF_STEPS: u32 = 8;

/// A mutex for sections of a few instructions that call nothing: what it costs to take and release one that nobody
/// else wants is what counts.
///
/// Releasing is a plain store, where a mutex that puts threads to sleep has to exchange the word to find out whether
/// any does; on the way of a timeout that is the difference between two and four such exchanges. Who finds it taken
/// tries again a little later, and soon lets the processor go: the holder may have been preempted. At last it sleeps,
/// so that also a holder of lower priority gets to run.
#[derive(Debug)]
pub(crate) struct SpinMutex<T>(Spin<T>);

/// How long who finds it taken sleeps at last.
#[cfg(not(tickwheel_loom))]
const NAP: std::time::Duration = std::time::Duration::new(0, 50_000);

#[cfg(not(tickwheel_loom))]
type Spin<T> = spin::mutex::SpinMutex<T>;
#[cfg(not(tickwheel_loom))]
pub(crate) type SpinGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

#[cfg(tickwheel_loom)]
type Spin<T> = Mutex<T>;
#[cfg(tickwheel_loom)]
pub(crate) type SpinGuard<'a, T> = MutexGuard<'a, T>;

impl<T> SpinMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinMutex(Spin::new(value))
    }

    #[cfg(tickwheel_loom)]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        lock(&self.0)
    }

    #[cfg(not(tickwheel_loom))]
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_later())
    }

    #[cfg(not(tickwheel_loom))]
    #[cold]
    fn lock_later(&self) -> SpinGuard<'_, T> {
        let mut attempts = 0_u32;
        loop {
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            attempts = attempts.saturating_add(1);
            match attempts {
                0..64 => std::hint::spin_loop(),
                64..256 => std::thread::yield_now(),
                _ => std::thread::sleep(NAP),
            }
        }
    }
}

/// A value on cache lines of its own: two of them, since processors fetch lines in pairs. Nobody who only reads what
/// lies next to it then waits for those who write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

#[cfg(all(test, not(tickwheel_loom)))]
mod tests {
    use super::*;
    use std::thread;

    /// Adds up from several threads, with a pause between reading and writing that invites the others in.
    fn add_up(add: impl Fn() + Sync) {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| add()));
            }
        });
    }

    #[test]
    fn a_brief_mutex_lets_one_in_at_a_time_also_when_the_holder_is_away_for_long() {
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
    fn who_waits_with_patience_gets_in_and_takes_a_poisoned_mutex_as_it_is() {
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
        assert_eq!(*lock_with_backoff(&sum), 2000);
    }
}

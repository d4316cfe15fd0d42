//! Locks and atomics for the protocols between threads, and the number of a thread.
//!
//! Locks and atomics are the standard library's, loom's in the models (`--cfg tickwheel_loom`,
//! because plain `--cfg loom` switches Tokio's internals too), or shuttle's under the explorer
//! (`--cfg tickwheel_shuttle`).

#[cfg(not(tickwheel_shuttle))]
use std::cell::Cell;
use std::sync::{PoisonError, TryLockError};

#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tickwheel_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

#[cfg(tickwheel_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

// The models have no thread-local state. Shuttle's threads are coroutines on one thread and need
// keys of their own.
#[cfg(not(tickwheel_shuttle))]
pub(crate) use std::thread_local;

#[cfg(tickwheel_shuttle)]
pub(crate) use shuttle::thread_local;

/// Whether this runs under the explorer. Its schedules are short, so limits are lower there, to be
/// reached.
pub(crate) const EXPLORED: bool = cfg!(tickwheel_shuttle);

/// A small number for this thread. Threads started one after the other have different ones.
#[cfg(not(tickwheel_shuttle))]
pub(crate) fn thread_number() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};

    static NEXT: AtomicUsize = AtomicUsize::new(0);
    std::thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER
        .try_with(|number| {
            if number.get() == usize::MAX {
                number.set(NEXT.fetch_add(1, Ordering::Relaxed));
            }
            number.get()
        })
        // The thread is ending.
        .unwrap_or(0)
}

/// Under the explorer it is the same each time a schedule is replayed.
#[cfg(tickwheel_shuttle)]
pub(crate) fn thread_number() -> usize {
    shuttle::current::me().into()
}

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
    try_lock(mutex).or_else(|| back_off(mutex))
}

/// Like [`lock`], but `None` if it is locked.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
#[cold]
fn back_off<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (0..BACKOFF_STEPS).find_map(|doublings| {
        (0..1 << doublings).for_each(|_| std::hint::spin_loop());
        try_lock(mutex)
    })
}

/// The models explore every moment at which a lock may be free. Waiting for it in between adds
/// nothing.
#[cfg(any(tickwheel_loom, tickwheel_shuttle))]
fn back_off<T>(_: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    None
}

#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
pub(crate) use std::thread::yield_now;

#[cfg(any(tickwheel_loom, tickwheel_shuttle))]
pub(crate) fn yield_now() {}

/// Spins for some microseconds, and then yields this often at most, while `goes_on`.
#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
pub(crate) fn spin_while(yields: u32, goes_on: impl Fn() -> bool) {
    for _ in 0..1 << BACKOFF_STEPS {
        if !goes_on() {
            return;
        }
        std::hint::spin_loop();
    }
    for _ in 0..yields {
        if !goes_on() {
            return;
        }
        std::thread::yield_now();
    }
}

/// The models explore every moment at which another thread may run.
#[cfg(any(tickwheel_loom, tickwheel_shuttle))]
pub(crate) fn spin_while(_: u32, _: impl Fn() -> bool) {}

/// How often the backoff doubles before a thread blocks: a few microseconds in all.
#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
const BACKOFF_STEPS: u32 = 8;

/// A mutex for critical sections of a few instructions that call nothing. It is made for the case
/// without contention.
///
/// Releasing it is a plain store. A mutex that blocks threads has to exchange a word to learn
/// whether one is blocked; a timeout then needs four such exchanges instead of two. A thread that
/// finds it locked spins, then yields, since the holder may have been preempted, and at last
/// sleeps, so that a holder of lower priority can run too.
///
/// With `parking_lot::Mutex` in its place, 384,000 timeouts took 1.035 times the CPU time on one
/// worker and 1.056 times on two (medians of 15 alternating runs, the tasks included): 6 to 10 ns
/// of a timeout.
#[derive(Debug)]
pub(crate) struct SpinMutex<T>(Spin<T>);

/// How long a thread that has spun and yielded sleeps before each further attempt.
#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
const SLEEP: std::time::Duration = std::time::Duration::new(0, 50_000);

#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
type Spin<T> = spin::mutex::SpinMutex<T>;
#[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
pub(crate) type SpinGuard<'a, T> = spin::mutex::SpinMutexGuard<'a, T>;

#[cfg(any(tickwheel_loom, tickwheel_shuttle))]
type Spin<T> = Mutex<T>;
#[cfg(any(tickwheel_loom, tickwheel_shuttle))]
pub(crate) type SpinGuard<'a, T> = MutexGuard<'a, T>;

impl<T> SpinMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinMutex(Spin::new(value))
    }

    #[cfg(any(tickwheel_loom, tickwheel_shuttle))]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        lock(&self.0)
    }

    /// `None` if it is locked.
    #[cfg(any(tickwheel_loom, tickwheel_shuttle))]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.0.try_lock().ok()
    }

    /// `None` if it is locked.
    #[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.0.try_lock()
    }

    #[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        self.0.try_lock().unwrap_or_else(|| self.lock_later())
    }

    #[cfg(not(any(tickwheel_loom, tickwheel_shuttle)))]
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
                _ => std::thread::sleep(SLEEP),
            }
        }
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

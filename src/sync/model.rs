//! The locks and atomics of loom's models and of shuttle's explorer. Both explore every moment at
//! which a lock may be free, so waiting for it in between adds nothing.

#[cfg(tickwheel_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};
#[cfg(tickwheel_shuttle)]
pub(crate) use shuttle::sync::{Mutex, MutexGuard, atomic};

// The models have no thread-local state. Shuttle's threads are coroutines on one thread and need
// other keys.
#[cfg(tickwheel_shuttle)]
pub(crate) use shuttle::thread_local;
#[cfg(tickwheel_loom)]
pub(crate) use std::thread_local;

use std::task::Waker;

/// The same number each time a schedule is replayed. The models need none.
pub(crate) fn thread_number() -> usize {
    #[cfg(tickwheel_shuttle)]
    return shuttle::current::me().into();
    #[cfg(tickwheel_loom)]
    return 0;
}

pub(super) fn back_off<T>(_: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    None
}

pub(crate) fn yield_now() {}

pub(crate) fn spin_while(_: u32, _: impl Fn() -> bool) {}

/// Stands for that of `futures_util`, whose steps the models do not see: each call is one.
#[derive(Debug, Default)]
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn register(&self, waker: &Waker) {
        let replaced = super::lock(&self.0).replace(waker.clone());
        drop(replaced);
    }

    pub(crate) fn take(&self) -> Option<Waker> {
        super::lock(&self.0).take()
    }

    pub(crate) fn wake(&self) {
        if let Some(waker) = self.take() {
            waker.wake();
        }
    }
}

/// A mutex that the models and the explorer know.
#[derive(Debug)]
pub(crate) struct SpinMutex<T> {
    mutex: Mutex<T>,
    /// Loom switches threads before an access, never as a mutex is unlocked. So an owner accesses
    /// this while it has the lock, and the actor before it tries to lock.
    #[cfg(tickwheel_loom)]
    in_between: atomic::AtomicBool,
}

impl<T> SpinMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        SpinMutex {
            mutex: Mutex::new(value),
            #[cfg(tickwheel_loom)]
            in_between: atomic::AtomicBool::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let guard = super::lock(&self.mutex);
        #[cfg(tickwheel_loom)]
        self.in_between.store(true, atomic::Ordering::Relaxed);
        guard
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.mutex.try_lock().ok()
    }

    pub(crate) fn try_lock_spinning(&self) -> Option<MutexGuard<'_, T>> {
        #[cfg(tickwheel_loom)]
        self.in_between.load(atomic::Ordering::Relaxed);
        self.try_lock()
    }
}

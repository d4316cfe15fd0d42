//! The primitives that the protocols between threads are built on: the standard library's, or loom's when the
//! models are checked (`--cfg tickwheel_loom`; plain `--cfg loom` would switch Tokio's internals too).

#[cfg(not(tickwheel_loom))]
pub(crate) use std::sync::{Mutex, MutexGuard, atomic};

#[cfg(tickwheel_loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard, atomic};

/// Locks a mutex under which no code of a user runs unguarded, so that a poisoned one holds nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A value on cache lines of its own: two of them, since processors fetch lines in pairs. Nobody who only reads what
/// lies next to it then waits for those who write it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

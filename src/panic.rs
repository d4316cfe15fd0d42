//! Calls a user's code, and catches and logs its panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Logged when waking a task panics.
pub(crate) const WOKEN: &str = "a waker panicked: its task may not be woken";

/// Logged when dropping a waker panics.
const DROPPED_WAKER: &str = "a waker panicked when it was dropped: what it owns may leak";

/// Runs `user_code`; `None` if it panicked. `what`, which is logged then, says whose code panicked
/// and what is lost.
///
/// The caller makes sure that everything the closure borrows is still consistent if it stops
/// halfway.
pub(crate) fn catch_panic<R>(what: &'static str, user_code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(user_code)) {
        Ok(result) => Some(result),
        Err(panic) => {
            report(what, panic);
            None
        }
    }
}

/// Wakes the task. A panic of its waker is caught.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        catch_panic(WOKEN, || waker.wake());
    }
}

/// Drops a waker that may belong to another task. Its panic must not end this poll.
pub(crate) fn drop_replaced(waker: Option<Waker>) {
    if let Some(waker) = waker {
        catch_panic(DROPPED_WAKER, || drop(waker));
    }
}

/// Drops values of a user, each on its own: a panic in one drop does not keep the others from being
/// dropped.
pub(crate) fn drop_caught<T>(values: impl IntoIterator<Item = T>) {
    for value in values {
        catch_panic(
            "a key or value panicked when it was dropped: what it owns may leak",
            || drop(value),
        );
    }
}

/// Drops a key and its value, as [`drop_caught`] does.
pub(crate) fn drop_pair<K, V>(key: K, value: V) {
    drop_caught([key]);
    drop_caught([value]);
}

/// Logs a panic that was caught.
#[cold]
pub(crate) fn report(what: &'static str, panic: Box<dyn Any + Send>) {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(panic = message, "{what}");
    // The payload is the user's too. If its drop panics, the second payload is leaked.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(panic);
    }
}

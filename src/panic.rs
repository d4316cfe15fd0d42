//! Calls of a user's code, in which a panic is caught and logged.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs `user_code`; `None` if it panicked. `what` names the code in the log.
///
/// The caller makes sure that everything the closure borrows is still consistent if it stops halfway.
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
        catch_panic("a waker", || waker.wake());
    }
}

/// Drops values of a user, each on its own: a panic in one drop does not keep the others from being dropped.
pub(crate) fn drop_caught<T>(values: impl IntoIterator<Item = T>) {
    for value in values {
        catch_panic("the drop of a key or value", || drop(value));
    }
}

/// Logs a panic that was caught.
#[cold]
pub(crate) fn report(what: &'static str, panic: Box<dyn Any + Send>) {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    tracing::error!(
        panic = message,
        "{what} panicked; only its own timer is lost"
    );
    // The payload is a user's too. If its drop panics, the second payload is leaked.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(panic);
    }
}

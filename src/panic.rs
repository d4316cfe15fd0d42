//! Where code of a user is called: a panic in it is caught, logged, and goes no further.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Runs `user_code`; `None` when it panicked. `what` says in the log whose code it was.
///
/// Whatever the closure borrows must stay sound if it stops halfway; the callers see to that.
pub(crate) fn catch_panic<R>(what: &'static str, user_code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(user_code)) {
        Ok(result) => Some(result),
        Err(panic) => {
            report(what, panic);
            None
        }
    }
}

/// Wakes the task, unless its waker panics.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        catch_panic("a waker", || waker.wake());
    }
}

/// Drops values of a user, each on its own, so that one that panics does not keep the others.
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
    // The payload is a user's too, and its drop may panic once more; then it is not dropped.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(panic);
    }
}

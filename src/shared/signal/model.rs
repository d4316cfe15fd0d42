//! Loom models of the signal. [`crate::model`] explains such models.

use std::sync::Arc;

use loom::thread;

use super::*;
use crate::model::{Wakes, check};

/// Two callers signal while the task begins to wait: it has the signal, or is woken.
///
/// Fails if [`Signal::poll`] looks at the flag before it registers the waker only, and if
/// [`Signal::set`] wakes the task before it sets the flag.
#[test]
fn model_signal_while_the_task_begins_to_wait() {
    check(None, || {
        let signal = Arc::new(Signal::new());
        let (wakes, waker) = Wakes::task();
        let callers = [(); 2].map(|()| {
            let signal = Arc::clone(&signal);
            thread::spawn(move || signal.set())
        });
        let mut cx = Context::from_waker(&waker);
        let polled = signal.poll(&mut cx);
        for caller in callers {
            caller.join().unwrap();
        }
        let later = signal.poll(&mut cx);
        if polled.is_pending() {
            assert!(wakes.count() > 0, "it was not woken");
            assert!(later.is_ready(), "the signal is lost");
        }
        // Two signals are one, or one was taken before the other came.
        assert!(signal.poll(&mut cx).is_pending());
    });
}

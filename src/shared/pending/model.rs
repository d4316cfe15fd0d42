//! Loom model of the wakers of a stream. [`crate::model`] explains such models.

use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::{Direction, Pending};
use crate::model::check;

struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An operation registers while the timer fires: it sees that, or is woken.
///
/// Fails without either fence.
#[test]
fn operation_registers_while_the_timer_fires() {
    check(None, || {
        let flag = || Arc::new(Flag(AtomicBool::new(false)));
        let (has_fired, woken) = (flag(), flag());
        let pending = Arc::new(Pending::new());
        let actor = thread::spawn({
            let (has_fired, pending) = (Arc::clone(&has_fired), Arc::clone(&pending));
            move || {
                has_fired.0.store(true, Ordering::Relaxed);
                pending.wake();
            }
        });
        let waker = Waker::from(Arc::clone(&woken));
        pending.register(Direction::Write, &waker, Waker::clone);
        let sees = has_fired.0.load(Ordering::Relaxed);
        actor.join().unwrap();
        assert!(sees || woken.0.load(Ordering::Relaxed));
    });
}

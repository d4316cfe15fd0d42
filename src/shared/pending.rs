//! The wakers of the two operations of a stream that may be pending.

use std::sync::Arc;
use std::task::{Wake, Waker};

use crate::panic::{drop_replaced, wake};
use crate::sync::SpinMutex;
use crate::sync::atomic::{Ordering, fence};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Direction {
    Read,
    Write,
}

/// The wakers of the pending operations, by [`Direction`]. Each is the last poller's.
///
/// A poll *registers* its waker, and then looks at the limits. The actor, which has set the timer
/// to fired, *wakes* who is registered. It waits for no lock: a direction that is locked is about
/// to look at the limits, or is being woken by another. With a fence on each side, one of them sees
/// what the other did before its fence: either the poll sees that the timer has fired, or the actor
/// finds the direction unlocked, with the waker.
///
/// No code of a user runs under the locks. So a waker whose clone or drop panics leaves nothing
/// half done that the next waker would need.
#[derive(Debug)]
pub(crate) struct Pending([SpinMutex<Option<Waker>>; 2]);

impl Pending {
    pub(crate) fn new() -> Self {
        Pending([(); 2].map(|()| SpinMutex::new(None)))
    }

    /// Makes `waker` the one that is woken for this direction. It is cloned only if the one before
    /// wakes another task.
    pub(crate) fn register(
        &self,
        direction: Direction,
        waker: &Waker,
        clone: impl Fn(&Waker) -> Waker,
    ) {
        let registered = &self.0[direction as usize];
        let knows = |registered: &Waker| registered.will_wake(waker);
        if !registered.lock().as_ref().is_some_and(knows) {
            let waker = clone(waker);
            let replaced = registered.lock().replace(waker);
            drop_replaced(replaced);
        }
        fence(Ordering::SeqCst);
    }
}

impl Wake for Pending {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        fence(Ordering::SeqCst);
        for registered in &self.0 {
            let registered = registered.try_lock();
            wake(registered.and_then(|mut registered| registered.take()));
        }
    }
}

#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counting() -> (Arc<Count>, Waker) {
        let count = Arc::<Count>::default();
        (Arc::clone(&count), Waker::from(count))
    }

    #[test]
    fn p12_waker_whose_clone_panics_leaves_the_one_before_and_the_next_to_be_woken() {
        let pending = Arc::new(Pending::new());
        let (before, waker) = counting();
        pending.register(Direction::Read, &waker, Waker::clone);
        let panicking = |_: &Waker| -> Waker { panic!("the clone of a waker panics") };
        let register = || pending.register(Direction::Read, Waker::noop(), panicking);
        assert!(catch_unwind(AssertUnwindSafe(register)).is_err());
        pending.wake_by_ref();
        assert_eq!(before.0.load(Ordering::Relaxed), 1);

        assert!(catch_unwind(AssertUnwindSafe(register)).is_err());
        let (next, waker) = counting();
        pending.register(Direction::Read, &waker, Waker::clone);
        pending.wake_by_ref();
        pending.wake_by_ref();
        let woken = [before, next].map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [1, 1]);
    }

    #[test]
    fn waker_stays_registered_though_others_are_woken_while_it_is_cloned() {
        let pending = Arc::new(Pending::new());
        let (before, waker) = counting();
        pending.register(Direction::Write, &waker, Waker::clone);
        let (next, waker) = counting();
        pending.register(Direction::Write, &waker, |waker| {
            pending.wake_by_ref();
            waker.clone()
        });
        assert_eq!(before.0.load(Ordering::Relaxed), 1);
        assert_eq!(next.0.load(Ordering::Relaxed), 0);
        pending.wake_by_ref();
        assert_eq!(next.0.load(Ordering::Relaxed), 1);
    }

    // The actor once waited for a thread that may be preempted.
    #[test]
    fn p11_waking_does_not_wait_for_a_direction_that_is_locked() {
        let pending = Arc::new(Pending::new());
        let wakers = [counting(), counting()];
        pending.register(Direction::Read, &wakers[0].1, Waker::clone);
        pending.register(Direction::Write, &wakers[1].1, Waker::clone);
        let locked = pending.0[Direction::Read as usize].lock();
        pending.wake_by_ref();
        drop(locked);
        let woken = wakers.map(|(count, _)| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1]);
    }
}

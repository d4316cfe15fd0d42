//! The end of the actor, and the tasks that wait for it.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use slab::Slab;

use crate::panic::{drop_replaced, wake};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock_with_backoff};

/// Whether the actor has ended. Each task that waits for it is woken on its own, so that a waker
/// that panics does not affect the others.
#[derive(Debug, Default)]
pub(crate) struct End {
    /// Written under the lock of `waiting`, so that no task begins to wait after the others were
    /// woken.
    ended: AtomicBool,
    waiting: Mutex<Slab<Waker>>,
    /// Whether a handle has shut the wheel down. Written before anything is closed.
    was_shut_down: AtomicBool,
}

impl End {
    #[inline]
    pub(crate) fn is_ended(&self) -> bool {
        // Acquire: observing the end happens after everything the actor did before it.
        self.ended.load(Ordering::Acquire)
    }

    /// The actor is about to end, since a handle has shut the wheel down.
    pub(crate) fn shut_down(&self) {
        self.was_shut_down.store(true, Ordering::Release);
    }

    /// Whether a handle has shut the wheel down, once anything is closed.
    pub(crate) fn was_shut_down(&self) -> bool {
        self.was_shut_down.load(Ordering::Acquire)
    }

    /// Publishes that the actor has ended.
    pub(crate) fn end(&self) {
        let waiting = {
            let mut waiting = lock_with_backoff(&self.waiting);
            self.ended.store(true, Ordering::Release);
            mem::take(&mut *waiting)
        };
        for (_, waker) in waiting {
            wake(Some(waker));
        }
    }

    /// Completes when the actor has ended.
    pub(crate) fn wait(&self) -> Ended<'_> {
        Ended {
            end: self,
            index: None,
        }
    }
}

/// See [`End::wait`].
#[derive(Debug)]
pub(crate) struct Ended<'a> {
    end: &'a End,
    /// The waker's index in the slab, from the first poll until the end.
    index: Option<usize>,
}

impl Future for Ended<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.end.is_ended() {
            return Poll::Ready(());
        }
        // The waker is cloned, and a replaced one dropped, while nothing is locked.
        let waker = cx.waker().clone();
        let mut waiting = lock_with_backoff(&self.end.waiting);
        if self.end.is_ended() {
            return Poll::Ready(());
        }
        let replaced = if let Some(index) = self.index {
            Some(mem::replace(&mut waiting[index], waker))
        } else {
            self.index = Some(waiting.insert(waker));
            None
        };
        drop(waiting);
        drop_replaced(replaced);
        Poll::Pending
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let Some(index) = self.index else {
            return;
        };
        let mut waiting = lock_with_backoff(&self.end.waiting);
        // After the end the list stays empty.
        let waker = waiting.try_remove(index);
        drop(waiting);
        drop_replaced(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Panicking;

    impl Wake for Panicking {
        fn wake(self: Arc<Self>) {
            panic!("a waker's own affair");
        }
    }

    fn poll(ended: Pin<&mut Ended<'_>>, waker: &Waker) -> Poll<()> {
        ended.poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn wakes_every_task_once_past_a_waker_that_panics() {
        let end = End::default();
        let count = Arc::<Count>::default();
        let (waker, panicking) = (Waker::from(Arc::clone(&count)), Arc::new(Panicking).into());
        let mut waiting: Vec<_> = (0..10).map(|_| Box::pin(end.wait())).collect();
        for (n, ended) in waiting.iter_mut().enumerate() {
            let waker = if n % 2 == 0 { &panicking } else { &waker };
            assert!(poll(ended.as_mut(), waker).is_pending());
        }
        assert!(!end.is_ended());
        end.end();
        assert!(end.is_ended());
        assert_eq!(count.0.load(Ordering::Relaxed), 5);
        for ended in &mut waiting {
            assert!(poll(ended.as_mut(), &waker).is_ready());
        }
        assert!(poll(pin!(end.wait()), &waker).is_ready());
        end.end();
        assert_eq!(count.0.load(Ordering::Relaxed), 5);
    }

    struct PanicsOnDrop;

    impl Wake for PanicsOnDrop {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("a waker's own affair");
        }
    }

    #[test]
    fn p12_replaced_waker_whose_drop_panics_harms_no_other_task() {
        let end = End::default();
        let count = Arc::<Count>::default();
        let mut ended = Box::pin(end.wait());
        assert!(poll(ended.as_mut(), &Arc::new(PanicsOnDrop).into()).is_pending());
        assert!(poll(ended.as_mut(), &Arc::clone(&count).into()).is_pending());
        end.end();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn last_poller_is_woken_and_a_dropped_one_is_not() {
        let end = End::default();
        let counts: [Arc<Count>; 3] = Default::default();
        let wakers = counts.clone().map(Waker::from);
        let mut moved = Box::pin(end.wait());
        assert!(poll(moved.as_mut(), &wakers[0]).is_pending());
        assert!(poll(moved.as_mut(), &wakers[1]).is_pending());
        let mut dropped = Box::pin(end.wait());
        assert!(poll(dropped.as_mut(), &wakers[2]).is_pending());
        drop((dropped, end.wait()));
        end.end();
        let woken = counts.map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!(woken, [0, 1, 0]);
    }
}

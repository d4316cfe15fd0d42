//! The actor's future, polled by its task and by the driver that its timer belongs to.
//!
//! A driver that wakes a task queues it, and a fired sleep then waits in two queues: the actor's
//! task in the first, its own task in the second. On a saturated worker it is twice as late as one
//! of Tokio's. So the actor's timer gets a waker that polls the actor's future at once, in the
//! driver. A turn takes place there, and queues the tasks that it wakes as Tokio's own timers
//! would. This also saves the workers that the actor would wake one by one as it wakes many tasks.
//!
//! A notification wakes the task, which polls the same future.
//!
//! # The protocol
//!
//! Two parties poll the future, the *task* and the *driver*. Each poll is asked for by adding one
//! to a count. Whoever adds the first polls; any other leaves it to that one.
//!
//! 1. *Neither party waits for the other,* which may have been preempted (P11). The future lies in
//!    a mutex that only the party with the first poll of the count locks, so it finds it free.
//! 2. *No wake-up is lost.* Both parties poll the future with the task's waker, and it passes the
//!    driver's waker to its timer alone. The driver's waker is called after the timer has elapsed.
//!    It polls the future, or adds to the count. The party that polls unlocks the mutex, and then
//!    sets the count to zero: if it was more than its own, it wakes the task, which polls again.
//!    The task's own poll ends so too.
//! 3. *The party that finishes the future takes it out.* A driver then wakes the task, which ends.
//!    A panic in a driver is an end too: Tokio must not see it. A task whose poll panics leaves the
//!    count as it is, so nobody polls the future again.
//! 4. *The task owns the future,* except while a driver polls it. The driver's waker refers to it
//!    weakly, since the timer in the future refers to the waker.

#[cfg(all(test, tickwheel_loom))]
mod model;
#[cfg(all(test, not(any(tickwheel_loom, tickwheel_shuttle))))]
mod tests;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};

use crate::panic::catch_panic;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, lock, try_lock};

type Hostable = Option<Pin<Box<dyn Future<Output = ()> + Send>>>;

/// See the module.
struct Hosted {
    /// How many polls were asked for since the last one ended.
    asked: AtomicUsize,
    /// `None` once it has ended.
    future: Mutex<Hostable>,
    /// The waker of the task, from its first poll on.
    task: OnceLock<Waker>,
}

/// Runs the future that `new` makes as a task. `new` gets the waker by which a driver polls it.
pub(crate) async fn run<F>(new: impl FnOnce(Waker) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let hosted = Arc::new(Hosted {
        asked: AtomicUsize::new(0),
        future: Mutex::new(None),
        task: OnceLock::new(),
    });
    let driver = Waker::from(Arc::new(DriverWaker(Arc::downgrade(&hosted))));
    *lock(&hosted.future) = Some(Box::pin(new(driver)));
    poll_fn(|cx| hosted.poll(cx)).await;
}

impl Hosted {
    /// The task polls.
    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        // Tokio gives a task the same waker each time.
        let task = self.task.get_or_init(|| cx.waker().clone());
        debug_assert!(task.will_wake(cx.waker()), "invariant 2: it is the task's");
        let Some(mut future) = self.begin() else {
            // The driver wakes the task after its own poll.
            return Poll::Pending;
        };
        let poll = match &mut *future {
            Some(polled) => polled.as_mut().poll(cx),
            None => Poll::Ready(()),
        };
        if poll.is_ready() {
            *future = None;
        }
        self.end(future, task);
        poll
    }

    /// The driver polls.
    fn poll_in_driver(&self) {
        // Nothing waits for a driver before the first poll.
        let Some(task) = self.task.get() else {
            return;
        };
        let Some(mut future) = self.begin() else {
            return;
        };
        if let Some(polled) = &mut *future {
            let poll = || polled.as_mut().poll(&mut Context::from_waker(task));
            if catch_panic("the actor panicked", poll) != Some(Poll::Pending) {
                *future = None;
                task.wake_by_ref();
            }
        }
        self.end(future, task);
    }

    /// Asks for a poll. `None` if another party polls, which then sees to it.
    fn begin(&self) -> Option<MutexGuard<'_, Hostable>> {
        let before = self.asked.fetch_add(1, Ordering::AcqRel);
        (before == 0).then(|| try_lock(&self.future))?
    }

    /// A poll has ended.
    fn end(&self, future: MutexGuard<'_, Hostable>, task: &Waker) {
        // First: the next party finds it free.
        drop(future);
        if self.asked.swap(0, Ordering::AcqRel) > 1 {
            task.wake_by_ref();
        }
    }
}

struct DriverWaker(Weak<Hosted>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if let Some(hosted) = self.0.upgrade() {
            hosted.poll_in_driver();
        }
    }
}

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
//! The future lies in a mutex. Two parties poll it, the *task* and the *driver*, and only while
//! they hold the lock.
//!
//! 1. *The driver does not wait.* If it finds the future locked, it wakes the task instead,
//!    which polls it once more. The task does wait for the driver, for the length of a turn.
//! 2. *No wake-up is lost.* Both parties poll the future with the task's waker, and it passes the
//!    driver's waker to its timer alone. The driver's waker is called after the timer has elapsed,
//!    and by 1 a poll then begins that sees it elapsed.
//! 3. *The party that finishes the future takes it out.* A driver then wakes the task, which ends.
//!    A panic in a driver is an end too: Tokio must not see it.
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
use crate::sync::{Mutex, lock, try_lock};

/// See the module.
struct Hosted {
    /// `None` once it has ended.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// The waker of the task, from its first poll on.
    task: OnceLock<Waker>,
}

/// Runs the future that `new` makes as a task. `new` gets the waker by which a driver polls it.
pub(crate) async fn run<F>(new: impl FnOnce(Waker) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let hosted = Arc::new(Hosted {
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
        let mut future = lock(&self.future);
        let Some(polled) = &mut *future else {
            return Poll::Ready(());
        };
        let poll = polled.as_mut().poll(cx);
        if poll.is_ready() {
            *future = None;
        }
        poll
    }

    /// The driver polls.
    fn poll_in_driver(&self) {
        // Nothing waits for a driver before the first poll.
        let Some(task) = self.task.get() else {
            return;
        };
        let Some(mut future) = try_lock(&self.future) else {
            return task.wake_by_ref();
        };
        let Some(polled) = &mut *future else {
            return;
        };
        let poll = || polled.as_mut().poll(&mut Context::from_waker(task));
        if catch_panic("the actor panicked", poll) != Some(Poll::Pending) {
            *future = None;
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

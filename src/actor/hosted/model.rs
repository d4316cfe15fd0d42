//! A loom model of a future that its task and drivers poll. [`crate::model`] explains such models.
//!
//! Each model names changes that make it fail; each change was tried.

use std::sync::Mutex as Unmodelled;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::*;
use crate::model::check;

/// The waker of the task.
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A task with a future that ends once all of `due` are set, and its waker for drivers.
struct Parties {
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Arc<Woken>,
    driver: Waker,
    due: Arc<[AtomicBool; 2]>,
}

impl Parties {
    /// The task has polled once.
    fn new() -> Self {
        let due = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
        let driver = Arc::<Unmodelled<Option<Waker>>>::default();
        let (seen, given) = (Arc::clone(&due), Arc::clone(&driver));
        let task = run(move |driver| {
            *given.lock().unwrap() = Some(driver);
            poll_fn(move |_| {
                let is_due = |due: &AtomicBool| due.load(Ordering::SeqCst);
                if seen.iter().all(is_due) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })
        });
        let waker = Arc::new(Woken(AtomicBool::new(false)));
        let mut parties = Parties {
            task: Box::pin(task),
            waker,
            driver: Waker::noop().clone(),
            due,
        };
        assert!(parties.poll().is_pending());
        parties.driver = driver.lock().unwrap().take().expect("it was given");
        parties
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.waker));
        self.task.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// In another thread, a driver finds a timer elapsed.
    fn elapse(&self, timer: usize) -> thread::JoinHandle<()> {
        let (due, driver) = (Arc::clone(&self.due), self.driver.clone());
        thread::spawn(move || {
            due[timer].store(true, Ordering::SeqCst);
            driver.wake();
        })
    }
}

// Fails if a party that finds another one polling does not count, or its count is not looked at
// after the poll; if the count is set to zero before the future is unlocked; and if the driver does
// not wake the task when it has finished the future.
#[test]
fn model_task_ends_while_two_drivers_poll() {
    check(None, || {
        let mut parties = Parties::new();
        let drivers = [parties.elapse(0), parties.elapse(1)];
        let mut has_ended = parties.poll().is_ready();
        for driver in drivers {
            driver.join().unwrap();
        }
        let is_woken = parties.waker.0.load(Ordering::SeqCst);
        if !has_ended && is_woken {
            has_ended = parties.poll().is_ready();
        }
        assert!(has_ended);
    });
}

// Fails if the driver's waker refers to the future strongly, as a timer in the future refers to the
// waker.
#[test]
fn model_future_is_dropped_with_its_task_while_a_driver_polls() {
    check(None, || {
        let parties = Parties::new();
        let due = Arc::downgrade(&parties.due);
        let driver = parties.elapse(0);
        drop(parties);
        driver.join().unwrap();
        assert!(due.upgrade().is_none());
    });
}

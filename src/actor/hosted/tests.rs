use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use super::*;

/// A task of a test: its future, how often it was woken, and the driver's waker.
struct Bench {
    task: Pin<Box<dyn Future<Output = ()> + Send>>,
    woken: Arc<Woken>,
    driver: Waker,
    /// How often the future was polled.
    polls: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bench {
    /// Each poll of the future calls `poll` with the number of the polls before.
    fn new(mut poll: impl FnMut(usize) -> Poll<()> + Send + 'static) -> Self {
        let polls = Arc::<AtomicUsize>::default();
        let (sender, receiver) = mpsc::channel();
        let counted = Arc::clone(&polls);
        let mut bench = Bench {
            task: Box::pin(run(move |driver| {
                sender.send(driver).unwrap();
                poll_fn(move |_| poll(counted.fetch_add(1, Ordering::SeqCst)))
            })),
            woken: Arc::default(),
            driver: Waker::noop().clone(),
            polls,
        };
        assert!(bench.poll().is_pending());
        bench.driver = receiver.recv().unwrap();
        bench
    }

    fn poll(&mut self) -> Poll<()> {
        let waker = Waker::from(Arc::clone(&self.woken));
        self.task.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// How often the future was polled, and the task woken.
    fn counts(&self) -> (usize, usize) {
        let counts = [&*self.polls, &self.woken.0].map(|count| count.load(Ordering::SeqCst));
        (counts[0], counts[1])
    }
}

#[test]
fn driver_polls_without_waking_the_task() {
    let bench = Bench::new(|_| Poll::Pending);
    bench.driver.wake_by_ref();
    bench.driver.wake_by_ref();
    assert_eq!(bench.counts(), (3, 0));
}

#[test]
fn driver_wakes_the_task_while_it_polls() {
    let (sender, receiver) = mpsc::channel::<Waker>();
    let mut bench = Bench::new(move |before| {
        // The timer elapses within the second poll, as it does when it is set to an instant that
        // has passed.
        if before == 1 {
            receiver.recv().unwrap().wake();
        }
        Poll::Pending
    });
    sender.send(bench.driver.clone()).unwrap();
    assert!(bench.poll().is_pending());
    assert_eq!(bench.counts(), (2, 1));
}

#[test]
fn task_ends_when_the_driver_has_finished_the_future() {
    let mut bench = Bench::new(|before| {
        if before < 1 {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    });
    bench.driver.wake_by_ref();
    assert_eq!(bench.counts(), (2, 1));
    bench.driver.wake_by_ref();
    assert_eq!(bench.counts(), (2, 1), "it is dropped");
    assert!(bench.poll().is_ready());
}

#[test]
fn panic_in_the_driver_ends_the_task() {
    let mut bench = Bench::new(|before| {
        assert!(before < 1, "on purpose");
        Poll::Pending
    });
    bench.driver.wake_by_ref();
    assert_eq!(bench.counts(), (2, 1));
    assert!(bench.poll().is_ready());
}

#[test]
fn dropped_task_drops_the_future_that_holds_its_waker() {
    let dropped = Arc::new(());
    let held = Arc::clone(&dropped);
    let (sender, receiver) = mpsc::channel::<Waker>();
    let bench = Bench::new({
        let mut timers = Vec::new();
        move |_| {
            timers.extend(receiver.try_recv());
            assert_eq!(Arc::strong_count(&held), 2);
            Poll::Pending
        }
    });
    sender.send(bench.driver.clone()).unwrap();
    bench.driver.wake_by_ref();
    let driver = bench.driver.clone();
    drop(bench);
    assert_eq!(Arc::strong_count(&dropped), 1);
    driver.wake();
}

// It waited for the driver's turn, in which the driver may be preempted.
#[test]
fn task_waits_for_no_driver_and_is_woken_to_poll_again() {
    let (began, begins) = mpsc::channel();
    let (go_on, goes_on) = mpsc::channel();
    let mut bench = Bench::new(move |before| {
        if before == 1 {
            began.send(()).unwrap();
            goes_on.recv().unwrap();
        }
        Poll::Pending
    });
    let driver = bench.driver.clone();
    thread::scope(|scope| {
        let turn = scope.spawn(move || driver.wake());
        begins.recv().unwrap();
        // Nobody lets the driver go on meanwhile.
        let (polled, polls) = mpsc::channel();
        let task = scope.spawn(move || {
            let is_pending = bench.poll().is_pending();
            polled.send(()).unwrap();
            (is_pending, bench)
        });
        let has_waited = polls.recv_timeout(Duration::from_secs(20)).is_err();
        go_on.send(()).unwrap();
        turn.join().unwrap();
        let (is_pending, mut bench) = task.join().unwrap();
        assert!(!has_waited && is_pending);
        assert_eq!(bench.counts(), (2, 1));
        assert!(bench.poll().is_pending());
        assert_eq!(bench.counts(), (3, 1));
    });
}

//! A virtual clock: what a test sees with `tickwheel::time` is what it sees with `tokio::time`.
//!
//! Each program runs with both, and they have to say the same. The last ones are about what only a
//! wheel has.

use std::future::Future;
use std::time::Duration;

use super::{current_thread, paused};
use crate::support::{HOUR, ms, received};
use tickwheel::{KeyedTimers, TimerWheel};
use tokio::runtime::Handle;
use tokio::time::{Instant, pause};

/// The programs, with the `time` of one side.
macro_rules! side {
    ($side:ident, $time:path) => {
        mod $side {
            use std::cell::Cell;
            use std::io::Write;
            use std::pin::pin;
            use std::rc::Rc;
            use std::thread;
            use std::time::Duration;

            use super::super::{current_thread, paused};
            use super::{HOUR, local, ms, pending_once, spin, two_sockets};
            use futures::future::{Either, select};
            use tokio::io::AsyncReadExt;
            use tokio::runtime::Handle;
            use tokio::sync::oneshot;
            use tokio::task::yield_now;
            use tokio::time::{Instant, advance, pause, resume};
            use tokio_test::{assert_pending, assert_ready, task};
            use $time as time;

            /// Timers a millisecond apart, when the clock was paused at no whole millisecond of the
            /// runtime.
            pub(super) fn neighbours() -> Vec<&'static str> {
                current_thread().block_on(async {
                    spin(Duration::from_micros(1_370));
                    pause();
                    let mut log = Vec::new();
                    for n in 0..50 {
                        let limited = time::timeout(ms(10), time::sleep(ms(11)));
                        log.push(if limited.await.is_ok() {
                            "ok"
                        } else {
                            "elapsed"
                        });
                        let later = pin!(time::sleep(ms(11)));
                        let earlier = pin!(time::sleep(ms(10)));
                        log.push(match select(later, earlier).await {
                            Either::Left(_) => "later",
                            Either::Right(_) => "earlier",
                        });
                        let length = ms(n % 7 + 2);
                        time::sleep(length - ms(1)).await;
                        let mut next = task::spawn(time::sleep(length));
                        log.push(if next.poll().is_ready() {
                            "ready"
                        } else {
                            "pending"
                        });
                        advance(Duration::from_micros(300 * (n % 5))).await;
                        let inner = time::timeout(ms(12), time::sleep(ms(11)));
                        let nested = time::timeout(ms(10), time::timeout(ms(11), inner));
                        log.push(match nested.await {
                            Err(_) => "outside",
                            Ok(Err(_)) => "between",
                            Ok(Ok(_)) => "inside",
                        });
                    }
                    log
                })
            }

            /// Where the clock stands after a cancelled timeout and something from outside.
            pub(super) fn outside() -> Vec<Duration> {
                local(async {
                    let start = Instant::now();
                    let mut log = Vec::new();
                    let _ = time::timeout(ms(30_000), time::sleep(ms(5))).await;
                    let (send, receive) = oneshot::channel();
                    let thread = thread::spawn(|| {
                        thread::sleep(ms(20));
                        send.send(()).unwrap();
                    });
                    receive.await.unwrap();
                    thread.join().unwrap();
                    log.push(start.elapsed());
                    let mut kept = Box::pin(time::sleep(HOUR));
                    assert!(futures::poll!(&mut kept).is_pending());
                    drop(kept);
                    let (mut near, mut far) = two_sockets().await;
                    let thread = thread::spawn(move || {
                        thread::sleep(ms(20));
                        far.write_all(b"x").unwrap();
                    });
                    near.read_exact(&mut [0]).await.unwrap();
                    thread.join().unwrap();
                    log.push(start.elapsed());
                    log
                })
            }

            /// The ticks that a task has counted, read right after each second.
            pub(super) fn counted() -> Vec<u32> {
                local(async {
                    let ticks = Rc::new(Cell::new(0));
                    let counted = Rc::clone(&ticks);
                    let counting = tokio::task::spawn_local(async move {
                        let mut interval = time::interval(ms(1000));
                        loop {
                            interval.tick().await;
                            counted.set(counted.get() + 1);
                        }
                    });
                    yield_now().await;
                    let mut log = vec![ticks.get()];
                    for _ in 0..5 {
                        advance(ms(1000)).await;
                        log.push(ticks.get());
                    }
                    counting.abort();
                    log
                })
            }

            /// Whether tasks are woken by resets of sleeps that wait, have completed, and were
            /// never polled.
            pub(super) fn resets() -> Vec<bool> {
                paused().block_on(async {
                    let mut log = Vec::new();
                    let mut sleep = task::spawn(time::sleep(HOUR));
                    assert_pending!(sleep.poll());
                    advance(ms(50)).await;
                    let now = Instant::now();
                    sleep.enter(|_, sleep| sleep.reset(now - ms(10)));
                    log.push(sleep.is_woken());
                    log.push(sleep.enter(|_, sleep| sleep.is_elapsed()));
                    assert_ready!(sleep.poll());
                    sleep.enter(|_, sleep| sleep.reset(now + ms(10)));
                    log.push(sleep.is_woken());
                    log.push(sleep.enter(|_, sleep| sleep.is_elapsed()));
                    time::sleep(ms(11)).await;
                    log.push(sleep.is_woken());
                    let mut unpolled = task::spawn(time::sleep(HOUR));
                    unpolled.enter(|_, sleep| sleep.reset(now + ms(20)));
                    time::sleep(ms(30)).await;
                    log.push(unpolled.enter(|_, sleep| sleep.is_elapsed()));
                    log
                })
            }

            /// Timers that were overdue when they were first polled, around a future that is
            /// pending once.
            pub(super) fn overdue() -> Vec<bool> {
                paused().block_on(async {
                    let mut log = Vec::new();
                    for late in [0, 1, 10, 11, 12, 100] {
                        let limited = time::timeout(ms(10), pending_once());
                        let sleep = time::sleep(ms(10));
                        let mut at = Instant::now();
                        at += ms(10);
                        let limited_at = time::timeout_at(at, pending_once());
                        advance(ms(late)).await;
                        let mut sleep = pin!(sleep);
                        log.push(futures::poll!(&mut sleep).is_ready());
                        log.push(limited.await.is_ok());
                        log.push(limited_at.await.is_ok());
                    }
                    log
                })
            }

            /// How many tasks the runtime has.
            pub(super) fn tasks() -> Vec<usize> {
                paused().block_on(async {
                    let metrics = Handle::current().metrics();
                    time::sleep(ms(10)).await;
                    let mut log = vec![metrics.num_alive_tasks()];
                    let _ = time::timeout(ms(10), time::interval(ms(3)).tick()).await;
                    log.push(metrics.num_alive_tasks());
                    tokio::spawn(time::sleep(ms(10)));
                    log.push(metrics.num_alive_tasks());
                    time::sleep(ms(20)).await;
                    log.push(metrics.num_alive_tasks());
                    log
                })
            }

            /// The order in which tasks run whose timers are due at one instant, also over
            /// `resume`.
            pub(super) fn order() -> Vec<usize> {
                local(async {
                    let log = Rc::new(std::cell::RefCell::new(Vec::new()));
                    let tasks: Vec<_> = (0..40)
                        .map(|n| {
                            let log = Rc::clone(&log);
                            tokio::task::spawn_local(async move {
                                for round in 0..4 {
                                    time::sleep(ms(5 + (n * 7 + round) as u64 % 3)).await;
                                    log.borrow_mut().push(n);
                                }
                            })
                        })
                        .collect();
                    yield_now().await;
                    advance(ms(7)).await;
                    resume();
                    pause();
                    for task in tasks {
                        task.await.unwrap();
                    }
                    log.take()
                })
            }
        }
    };
}

side!(tokios, tokio::time);
side!(ours, tickwheel::time);

/// Runs a program with tasks that are not `Send`, under a paused clock.
fn local<R>(program: impl Future<Output = R>) -> R {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, program)
}

/// Keeps the processor busy, as a computation does.
fn spin(length: Duration) {
    let start = std::time::Instant::now();
    while start.elapsed() < length {}
}

async fn pending_once() {
    tokio::task::yield_now().await;
}

/// Both ends of a connection; the second one for a thread of its own.
async fn two_sockets() -> (tokio::net::TcpStream, std::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (listener.accept().await.unwrap().0, far)
}

#[test]
fn sees_timers_a_millisecond_apart_as_tokio_does() {
    assert_eq!(ours::neighbours(), tokios::neighbours());
}

#[test]
fn cancelled_timer_does_not_move_the_clock() {
    assert_eq!(ours::outside(), tokios::outside());
    assert_eq!(ours::outside(), [ms(5), ms(5)]);
}

#[test]
fn counts_read_at_once_are_those_of_tokio() {
    assert_eq!(ours::counted(), tokios::counted());
}

#[test]
fn reset_wakes_tasks_as_tokio_does() {
    assert_eq!(ours::resets(), tokios::resets());
}

#[test]
fn overdue_timers_do_at_their_first_poll_what_tokios_do() {
    assert_eq!(ours::overdue(), tokios::overdue());
}

#[test]
fn timers_add_no_task_to_the_runtime() {
    assert_eq!(ours::tasks(), tokios::tasks());
}

#[test]
fn tasks_due_at_one_instant_run_in_tokios_order() {
    assert_eq!(ours::order(), tokios::order());
}

/// Pairs of sleeps, one of Tokio's and one of a wheel, that are armed before the clock is paused.
#[test]
fn sleeps_armed_before_the_pause_complete_at_tokios_instants() {
    for phase in 0..20 {
        current_thread().block_on(async {
            let wheel = TimerWheel::new();
            spin(Duration::from_micros(53 * phase));
            let start = Instant::now();
            let mut pairs = Vec::new();
            for n in 0..40 {
                let deadline = start + HOUR + Duration::from_micros(n * 77);
                let ours = wheel.sleep_until(deadline);
                pairs.push(tokio::spawn(async move {
                    ours.await;
                    Instant::now()
                }));
                let tokios = tokio::time::sleep_until(deadline);
                pairs.push(tokio::spawn(async move {
                    tokios.await;
                    Instant::now()
                }));
            }
            let cancelled = wheel.sleep(HOUR / 2);
            assert!(
                tokio::time::timeout(Duration::ZERO, cancelled)
                    .await
                    .is_err()
            );
            pause();
            // A timer has to find that the clock stands still.
            let _ = futures::poll!(&mut wheel.sleep(ms(1)));
            tokio::task::yield_now().await;
            let mut ends = Vec::new();
            for task in pairs {
                ends.push(task.await.unwrap());
            }
            for (n, pair) in ends.chunks(2).enumerate() {
                assert_eq!(pair[0], pair[1], "pair {n} in phase {phase}");
            }
        });
    }
}

/// Waits for 20 ms of the real clock. Meanwhile the virtual one moves to what is on the wheel.
async fn let_real_time_pass() {
    let (send, receive) = tokio::sync::oneshot::channel();
    let thread = std::thread::spawn(|| {
        std::thread::sleep(ms(20));
        send.send(()).unwrap();
    });
    receive.await.unwrap();
    thread.join().unwrap();
}

/// No timer is left to which the clock would move.
async fn assert_clock_stands_still() {
    let start = Instant::now();
    let_real_time_pass().await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

// A timer that is cancelled, and lies in the pool when the clock is paused, moved the clock to its
// deadline.
#[test]
fn timer_cancelled_before_the_pause_does_not_move_the_clock() {
    current_thread().block_on(async {
        let wheel = TimerWheel::new();
        let _ = wheel.timeout(HOUR, pending_once()).await;
        pause();
        let paused_at = Instant::now();
        wheel.sleep(ms(5)).await;
        let_real_time_pass().await;
        assert!(paused_at.elapsed() <= ms(6), "{:?}", paused_at.elapsed());
    });
}

#[test]
fn settle_waits_for_the_sleeps_that_tokio_fires() {
    paused().block_on(async {
        let wheel = TimerWheel::new();
        let mut sleep = tokio_test::task::spawn(wheel.sleep(ms(5)));
        tokio_test::assert_pending!(sleep.poll());
        crate::support::jump(ms(5));
        assert!(!sleep.is_woken());
        wheel.settle().await;
        assert!(sleep.is_woken());
        let metrics = wheel.metrics();
        assert_eq!((metrics.sleeps_made, metrics.sleeps_handed_over), (1, 1));
    });
}

#[test]
fn timers_of_a_runtime_without_a_wheel_never_fire_if_too_far() {
    use tickwheel::time;
    paused().block_on(async {
        let never = time::timeout(Duration::MAX, std::future::pending::<()>());
        let mut interval = time::interval(Duration::MAX);
        interval.tick().await;
        let far = Instant::now() + Duration::from_secs(1 << 40);
        let far = time::sleep_until(far);
        tokio::select! {
            biased;
            _ = never => unreachable!(),
            _ = interval.tick() => unreachable!(),
            () = far => unreachable!(),
            () = time::sleep(HOUR * 100_000) => {}
        }
        let tasks = Handle::current().metrics().num_alive_tasks();
        assert_eq!(tasks, 0, "they are Tokio's, which need none");
    });
}

// A timer that never fires was once one of Tokio's, decades away, to which the clock moved.
#[test]
fn timers_that_never_fire_do_not_move_the_clock() {
    use tickwheel::time;
    paused().block_on(async {
        let start = Instant::now();
        let never = time::timeout(Duration::MAX, std::future::pending::<()>());
        let mut interval = time::interval(Duration::MAX);
        interval.tick().await;
        tokio::select! {
            biased;
            _ = never => unreachable!(),
            _ = interval.tick() => unreachable!(),
            () = let_real_time_pass() => {}
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
        // One that is reset wakes the task that has waited for it.
        let mut sleep = Box::pin(time::sleep(Duration::MAX));
        let mut waiting = tokio_test::task::spawn(());
        let polled = waiting.enter(|cx, _| sleep.as_mut().poll(cx));
        assert!(polled.is_pending());
        sleep.as_mut().reset(start + HOUR);
        tokio::time::sleep(HOUR).await;
        assert!(waiting.is_woken() && sleep.is_elapsed());
    });
}

// --- what stays on the wheel ---

#[test]
fn removed_keyed_timer_does_not_move_the_clock() {
    for midway in [false, true] {
        let runtime = if midway { current_thread() } else { paused() };
        runtime.block_on(async {
            let wheel = TimerWheel::new();
            let (timers, _stream) = wheel.keyed::<u32, ()>();
            timers.set_timer(1, (), HOUR).unwrap();
            timers.set_timer(2, (), HOUR).unwrap();
            let idle = wheel.idle_timer(HOUR);
            let (reaper, _reaped) = wheel.reaper::<u32, ()>(HOUR);
            let watch = reaper.watch(1, ()).unwrap();
            wheel.settle().await;
            if midway {
                pause();
            }
            let start = Instant::now();
            timers.remove_timer(&1).unwrap();
            timers.remove_timer(&2).unwrap();
            drop(watch);
            let mut idle = Box::pin(idle);
            assert!(futures::poll!(&mut idle).is_pending());
            drop(idle);
            let_real_time_pass().await;
            assert_eq!(start.elapsed(), Duration::ZERO, "midway: {midway}");
        });
    }
}

// Its slot was kept for the next timer, with a node to which the clock moved.
#[test]
fn keyed_timer_removed_before_the_pause_does_not_move_the_clock() {
    current_thread().block_on(async {
        let wheel = tickwheel::time::wheel();
        let (timers, _stream) = wheel.keyed::<u32, ()>();
        timers.set_timer(1, (), HOUR).unwrap();
        wheel.settle().await;
        timers.remove_timer(&1).unwrap();
        tickwheel::time::pause();
        assert_clock_stands_still().await;
    });
}

// It once left its node on the wheel when it went to Tokio.
#[test]
fn sleep_armed_on_another_thread_and_cancelled_does_not_move_the_clock() {
    paused().block_on(async {
        let wheel = TimerWheel::new();
        let mut sleep = tokio_test::task::spawn(wheel.sleep(HOUR));
        let armed = std::thread::spawn(move || {
            assert!(sleep.poll().is_pending());
            sleep
        });
        let mut sleep = armed.join().unwrap();
        assert!(sleep.poll().is_pending());
        drop(sleep);
        assert_clock_stands_still().await;
    });
}

// The slot of a removed timer is kept there too.
#[test]
fn keyed_timer_removed_on_another_thread_does_not_move_the_clock() {
    paused().block_on(async {
        let wheel = TimerWheel::new();
        let (timers, _stream) = wheel.keyed::<u32, ()>();
        timers.set_timer(1, (), HOUR).unwrap();
        wheel.settle().await;
        let other = timers.clone();
        let removed = std::thread::spawn(move || other.remove_timer(&1));
        assert_eq!(removed.join().unwrap(), Ok(Some(())));
        assert_clock_stands_still().await;
    });
}

// Nothing else wakes the actor, which has to take the index off the wheel before the clock moves.
#[test]
fn removal_alone_takes_a_keyed_timer_off_a_virtual_clock() {
    let removals: [fn(&KeyedTimers<u32, ()>); 3] = [
        |timers| assert_eq!(timers.remove_timer(&1), Ok(Some(()))),
        |timers| assert_eq!(timers.retain(|_, (), _| false), Ok(())),
        |timers| assert_eq!(timers.drain().map(|drained| drained.len()), Ok(1)),
    ];
    for remove in removals {
        paused().block_on(async {
            let wheel = TimerWheel::new();
            let (timers, _stream) = wheel.keyed::<u32, ()>();
            timers.set_timer(1, (), HOUR).unwrap();
            // The actor waits for the timer.
            wheel.settle().await;
            tokio::task::yield_now().await;
            remove(&timers);
            assert_clock_stands_still().await;
        });
    }
}

#[test]
fn keyed_timers_are_exact_to_tokios_millisecond_after_a_pause() {
    for phase in 0..20 {
        current_thread().block_on(async {
            let wheel = TimerWheel::new();
            let (timers, mut stream) = wheel.keyed::<u64, ()>();
            timers.set_timer(1000, (), HOUR).unwrap();
            spin(Duration::from_micros(71 * phase));
            pause();
            for n in 0..50 {
                timers
                    .set_timer(n, (), Duration::from_micros(1000 + 777 * n))
                    .unwrap();
            }
            for _ in 0..51 {
                let expired = stream.recv().await.unwrap();
                let now = Instant::now();
                assert!(expired.deadline <= now, "early");
                let late = now - expired.deadline;
                // Tokio rounds to its milliseconds, and moves the clock by whole ones from where it
                // stood.
                assert!(late < wheel.tick_duration() + ms(2), "{late:?}");
            }
            assert!(received(&mut stream).is_empty());
        });
    }
}

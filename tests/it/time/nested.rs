//! Timers of a runtime that is driven, made on a thread that has just used the wheel of one that is
//! not.
//!
//! Each test makes an interval where a wheel that a thread had found less than a millisecond before
//! was once taken for the current one: the interval then waited for the other runtime, for seconds
//! or for good. Tokio's own interval runs beside it. The package `tests/plain` runs them too, in a
//! build without a clock that can be paused, as that of a service.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{self, Sender};
use std::thread;

use super::{HOUR, current_thread, ms, multi_thread};
use tickwheel::time::{self, Interval};
use tokio::runtime::{Handle, Runtime};
use tokio::task::{self, LocalSet};

const TICKS: u32 = 10;

/// Makes an interval, and checks that it ticks.
async fn keeps_ticking() {
    ticks(time::interval(ms(10))).await;
}

/// The interval ticks in another task, which nothing but the wheel wakes: each poll looks at
/// the clock. However busy the machine is, it ticks ten times while Tokio's own ticks fifty times
/// as often.
async fn ticks(mut ours: Interval) {
    let ticked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&ticked);
    let ticking = tokio::spawn(async move {
        loop {
            ours.tick().await;
            counter.fetch_add(1, Relaxed);
        }
    });
    let mut tokios = tokio::time::interval(ms(10));
    for _ in 0..50 * TICKS {
        tokios.tick().await;
        if ticked.load(Relaxed) >= TICKS {
            ticking.abort();
            return;
        }
    }
    panic!("{} ticks of {}", ticked.load(Relaxed), 50 * TICKS);
}

/// Uses the wheel of the current runtime, whether or not that is driven.
fn use_wheel() {
    drop(time::sleep(HOUR));
}

/// A multi-thread runtime: its only worker hangs until this is dropped.
struct Hung {
    runtime: Option<Runtime>,
    /// Dropping it lets the worker go on.
    _release: Sender<()>,
}

impl Hung {
    fn new() -> Self {
        let runtime = multi_thread(1);
        // Its wheel has started, and its actor waits.
        runtime.block_on(async { time::sleep(ms(1)).await });
        let (release, hangs) = mpsc::channel::<()>();
        let (entered, is_in) = mpsc::channel();
        runtime.spawn(async move {
            entered.send(()).unwrap();
            let _ = hangs.recv();
        });
        is_in.recv().unwrap();
        Hung {
            runtime: Some(runtime),
            _release: release,
        }
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().unwrap()
    }

    fn handle(&self) -> Handle {
        self.runtime().handle().clone()
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs a test in a task.
fn in_a_task_of<T>(runtime: &Runtime, test: impl Future<Output = T> + Send + 'static) -> T
where
    T: Send + 'static,
{
    runtime.block_on(runtime.spawn(test)).unwrap()
}

#[test]
fn interval_ticks_after_a_foreign_block_on_in_place() {
    let hung = Hung::new();
    let foreign = hung.handle();
    in_a_task_of(&multi_thread(2), async move {
        use_wheel();
        task::block_in_place(|| foreign.block_on(async { use_wheel() }));
        keeps_ticking().await;
    });
}

// The foreign runtime hangs from then on only.
#[test]
fn interval_ticks_after_a_foreign_block_on_that_computes() {
    let foreign = multi_thread(1);
    let (_done, computes) = mpsc::channel::<()>();
    let handle = foreign.handle().clone();
    in_a_task_of(&multi_thread(2), async move {
        task::block_in_place(|| {
            handle.block_on(async {
                use_wheel();
                tokio::spawn(async move {
                    let _ = computes.recv();
                });
            });
        });
        keeps_ticking().await;
    });
}

#[test]
fn interval_ticks_after_a_foreign_current_thread_runtime() {
    let foreign = Arc::new(current_thread());
    let not_driven = Arc::clone(&foreign);
    in_a_task_of(&multi_thread(2), async move {
        task::block_in_place(|| not_driven.block_on(async { use_wheel() }));
        keeps_ticking().await;
    });
}

#[test]
fn interval_ticks_inside_a_foreign_block_on() {
    // The worker around it is the only one, and no other thread may take over from it.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let builder = builder.worker_threads(1).max_blocking_threads(1);
    let outer = builder.enable_time().build().unwrap();
    let (release, stuck) = mpsc::channel::<()>();
    outer.spawn_blocking(move || stuck.recv());
    in_a_task_of(&outer, async move {
        for foreign in [current_thread(), multi_thread(1)] {
            use_wheel();
            task::block_in_place(|| foreign.block_on(keeps_ticking()));
            use_wheel();
            task::block_in_place(|| in_a_task_of(&foreign, keeps_ticking()));
            foreign.shutdown_background();
        }
        drop(release);
    });
}

#[test]
fn interval_ticks_after_another_runtime_was_entered() {
    let hung = Hung::new();
    let foreign = hung.handle();
    for runtime in [multi_thread(1), current_thread()] {
        let foreign = foreign.clone();
        in_a_task_of(&runtime, async move {
            {
                let _within = foreign.enter();
                use_wheel();
            }
            keeps_ticking().await;
        });
    }
}

// The interval is made in the task of a runtime that hangs soon, for another one.
#[test]
fn interval_ticks_in_the_runtime_that_was_entered() {
    let (outer, driven) = (multi_thread(1), multi_thread(1));
    let handle = driven.handle().clone();
    let (send, ticking) = mpsc::channel();
    let (release, hangs) = mpsc::channel::<()>();
    outer.spawn(async move {
        use_wheel();
        let within = handle.enter();
        let interval = time::interval(ms(10));
        drop(within);
        send.send(interval).unwrap();
        let _ = hangs.recv();
    });
    let ours = ticking.recv().unwrap();
    driven.block_on(ticks(ours));
    drop(release);
}

#[test]
fn interval_ticks_on_a_blocking_thread_after_a_block_on() {
    let hung = Hung::new();
    let foreign = hung.handle();
    for runtime in [multi_thread(1), current_thread()] {
        let foreign = foreign.clone();
        runtime.block_on(async {
            let blocking = move || {
                use_wheel();
                foreign.block_on(async { use_wheel() });
                Handle::current().block_on(keeps_ticking());
            };
            task::spawn_blocking(blocking).await.unwrap();
        });
    }
}

#[test]
fn interval_ticks_in_a_runtime_after_another_hung() {
    let hung = Hung::new();
    for runtime in [current_thread(), multi_thread(1)] {
        hung.runtime().block_on(async { use_wheel() });
        in_a_task_of(&runtime, keeps_ticking());
        hung.runtime().block_on(async { use_wheel() });
        runtime.block_on(keeps_ticking());
    }
}

#[test]
fn interval_ticks_after_a_hung_runtime_was_given_up() {
    for runtime in [current_thread(), multi_thread(1)] {
        let mut hung = Hung::new();
        let given_up = hung.runtime.take().unwrap();
        given_up.block_on(async { use_wheel() });
        given_up.shutdown_background();
        in_a_task_of(&runtime, keeps_ticking());
        runtime.block_on(keeps_ticking());
    }
}

#[test]
fn interval_ticks_in_whichever_runtime_is_driven() {
    // While one of them is driven, no thread drives the other.
    let idle = [current_thread(), current_thread()];
    let free = [multi_thread(1), multi_thread(1)];
    for _ in 0..2 {
        for runtime in idle.iter().chain(&free) {
            in_a_task_of(runtime, keeps_ticking());
            runtime.block_on(async { use_wheel() });
        }
    }
}

#[test]
fn interval_ticks_in_a_runtime_after_another_was_dropped() {
    for _ in 0..2 {
        for make in [current_thread, || multi_thread(1)] {
            let runtime = make();
            runtime.block_on(async { use_wheel() });
            drop(runtime);
            in_a_task_of(&make(), keeps_ticking());
        }
    }
}

#[test]
fn interval_ticks_in_a_local_set_after_another_runtime_hung() {
    let hung = Hung::new();
    for runtime in [current_thread(), multi_thread(1)] {
        let local = LocalSet::new();
        hung.runtime().block_on(async { use_wheel() });
        local.block_on(&runtime, async {
            let foreign = hung.handle();
            task::spawn_local(async move {
                {
                    let _within = foreign.enter();
                    use_wheel();
                }
                keeps_ticking().await;
            })
            .await
            .unwrap();
        });
    }
}

#[test]
fn interval_ticks_on_a_plain_thread_after_another_runtime_hung() {
    let hung = Hung::new();
    let runtime = multi_thread(1);
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            {
                let _within = hung.runtime().enter();
                use_wheel();
            }
            let _within = runtime.enter();
            futures::executor::block_on(keeps_ticking());
        });
        thread.join().unwrap();
    });
}

#[test]
fn interval_ticks_after_a_thousand_runtimes() {
    for n in 0..1000_u32 {
        let runtime = if n % 50 == 0 {
            multi_thread(1)
        } else {
            current_thread()
        };
        runtime.block_on(async {
            let wheel = time::wheel();
            assert_eq!(wheel.metrics().sleeps_made, 0, "it is a new wheel");
            use_wheel();
            assert_eq!(wheel.metrics().sleeps_made, 1);
        });
    }
    in_a_task_of(&current_thread(), keeps_ticking());
}

//! S3, S9, S11, S12 and S13: sleeps that fire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use tickwheel::TimerWheel;
use tokio::runtime::Runtime;
use tokio::sync::Notify;

use crate::measure::{Meter, Scale, emit, emit_lateness, max_rss, waits};
use crate::sides::{Side, Timer, runtime, wheel_of, wheel_on, with_side};

/// Lateness in microseconds, a place for each sleep, and who is still asleep.
struct Log {
    late: Box<[AtomicU32]>,
    early: AtomicUsize,
    tasks: AtomicUsize,
    done: Notify,
}

impl Log {
    fn new(tasks: usize, sleeps: usize) -> Arc<Self> {
        // Written to, so that its memory is there before memory is measured.
        let late = (0..sleeps).map(|_| AtomicU32::new(u32::MAX)).collect();
        Arc::new(Log {
            late,
            early: AtomicUsize::new(0),
            tasks: AtomicUsize::new(tasks),
            done: Notify::new(),
        })
    }

    /// Notes one sleep that was due at `due`.
    fn woke(&self, sleep: usize, due: Instant) {
        let now = Instant::now();
        if now < due {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        let late = now.saturating_duration_since(due).as_micros();
        let late = u32::try_from(late).unwrap_or(u32::MAX - 1);
        self.late[sleep].store(late, Ordering::Relaxed);
    }

    fn task_done(&self) {
        if self.tasks.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.notify_one();
        }
    }

    /// All recorded latenesses.
    fn read(&self) -> (Vec<u32>, usize) {
        let late: Vec<_> = self
            .late
            .iter()
            .map(|late| late.load(Ordering::Relaxed))
            .collect();
        assert!(!late.contains(&u32::MAX), "a sleep was not noted");
        (late, self.early.load(Ordering::Relaxed))
    }
}

fn millis(rng: &mut Rng, most: u64) -> Duration {
    Duration::from_millis(rng.u64(1..=most))
}

/// S3: a million tasks that each sleep three times.
pub fn many(scale: Scale, side: Side) {
    let tasks = scale.pick(100_000, 1_000_000);
    let most = scale.pick(1_000, 5_000);
    let runtime = runtime(2);
    let wheel = wheel_on(&runtime);
    with_side!(side, wheel, |timer| sleep_thrice(
        &runtime, &timer, side, tasks, most
    ));
}

const ROUNDS: usize = 3;

fn sleep_thrice<T: Timer>(runtime: &Runtime, timer: &T, side: Side, tasks: usize, most: u64) {
    let log = Log::new(tasks, tasks * ROUNDS);
    let empty = max_rss();
    let meter = Meter::start();
    runtime.block_on(async {
        // From a worker: a task that is spawned elsewhere takes a lock.
        let (log, timer) = (Arc::clone(&log), timer.clone());
        let spawner = tokio::spawn(async move {
            let mut rng = Rng::with_seed(tasks as u64);
            for task in 0..tasks {
                let lengths: [u16; ROUNDS] = std::array::from_fn(|_| {
                    u16::try_from(millis(&mut rng, most).as_millis()).expect("at most 5000")
                });
                let (log, timer) = (Arc::clone(&log), timer.clone());
                tokio::spawn(async move {
                    for (round, length) in lengths.into_iter().enumerate() {
                        let length = Duration::from_millis(u64::from(length));
                        let due = Instant::now() + length;
                        timer.sleep(length).await;
                        log.woke(task * ROUNDS + round, due);
                    }
                    log.task_done();
                });
                if task % 256 == 255 {
                    tokio::task::yield_now().await;
                }
            }
            log.done.notified().await;
        });
        spawner.await.expect("it does not panic");
    });
    let spent = meter.stop();
    let series = side.name();
    emit(series, "cpu", spent.cpu.as_secs_f64());
    emit(series, "rss", (max_rss() - empty) / tasks as f64);
    let (late, early) = log.read();
    emit_lateness(series, late, early);
}

/// S12: a hundred tasks that sleep 20 ms, again and again, on an otherwise idle runtime.
pub fn few(scale: Scale, side: Side) {
    const TASKS: usize = 100;
    const LENGTH: Duration = Duration::from_millis(20);
    let sleeps = scale.pick(20, 100);
    let runtime = runtime(2);
    // The ticks of a wheel and Tokio's milliseconds lie differently in each process.
    let mut rng = Rng::new();
    std::thread::sleep(Duration::from_micros(rng.u64(0..1_000)));
    let wheel = wheel_of(side, &runtime);
    let log = Log::new(TASKS, TASKS * sleeps);
    with_side!(side, wheel, |timer| runtime.block_on(async {
        for task in 0..TASKS {
            let (log, timer) = (Arc::clone(&log), timer.clone());
            let start = Duration::from_micros(rng.u64(0..20_000));
            tokio::spawn(async move {
                timer.sleep(start).await;
                for sleep in 0..sleeps {
                    let due = Instant::now() + LENGTH;
                    timer.sleep(LENGTH).await;
                    log.woke(task * sleeps + sleep, due);
                }
                log.task_done();
            });
        }
        log.done.notified().await;
    }));
    let (late, early) = log.read();
    emit_lateness(side.name(), late, early);
}

/// S13: twenty tasks sleep 20 ms on four workers, and the task that armed the last of these sleeps
/// blocks its worker.
pub fn blocked(scale: Scale, side: Side) {
    const TASKS: usize = 20;
    const LENGTH: Duration = Duration::from_millis(20);
    const BLOCKED: Duration = Duration::from_millis(300);
    let runtime = runtime(4);
    let wheel = wheel_of(side, &runtime);
    for _ in 0..scale.pick(3, 20) {
        let log = Log::new(TASKS, TASKS);
        with_side!(side, wheel, |timer| runtime.block_on(async {
            let (inner, timer) = (Arc::clone(&log), timer.clone());
            let blocking = tokio::spawn(async move {
                for task in 0..TASKS {
                    let (log, timer) = (Arc::clone(&inner), timer.clone());
                    tokio::spawn(async move {
                        let due = Instant::now() + LENGTH;
                        timer.sleep(LENGTH).await;
                        log.woke(task, due);
                        log.task_done();
                    });
                }
                // Its own sleep is armed and cancelled; it is this worker that told the actor of
                // it.
                tokio::select! {
                    biased;
                    () = timer.sleep(LENGTH) => {}
                    () = tokio::task::yield_now() => {}
                }
                std::thread::sleep(BLOCKED);
            });
            log.done.notified().await;
            blocking.await.expect("it does not panic");
        }));
        let (late, early) = log.read();
        emit_lateness(side.name(), late, early);
    }
}

/// S9: a million sleeps that are due at one tick.
pub fn storm(scale: Scale, side: Side) {
    let sleeps = scale.pick(100_000, 1_000_000);
    let mut time_to_arm = Duration::from_secs(scale.pick(1, 4));
    // Sleeps that are armed after their deadline make no storm: then there is to be more time.
    for _ in 0..4 {
        let runtime = runtime(2);
        let wheel = wheel_on(&runtime);
        let armed = with_side!(side, wheel, |timer| storm_of(
            &runtime,
            &timer,
            &wheel,
            side,
            sleeps,
            time_to_arm
        ));
        if armed {
            return;
        }
        time_to_arm *= 2;
    }
    panic!("the sleeps could not be armed before their deadline");
}

/// Spawns a task for each place of the log, which sleeps until `deadline`. False when they were not
/// armed by then.
async fn arm_all<T: Timer>(log: Arc<Log>, timer: T, deadline: Instant) -> bool {
    for sleep in 0..log.late.len() {
        let (log, timer) = (Arc::clone(&log), timer.clone());
        tokio::spawn(async move {
            timer.sleep_until(deadline).await;
            log.woke(sleep, deadline);
            log.task_done();
        });
        if sleep % 256 == 255 {
            tokio::task::yield_now().await;
        }
    }
    // The spawned tasks run before this one does again, or soon after.
    tokio::task::yield_now().await;
    Instant::now() < deadline
}

/// False when they were not armed in time.
fn storm_of<T: Timer>(
    runtime: &Runtime,
    timer: &T,
    wheel: &TimerWheel,
    side: Side,
    sleeps: usize,
    time_to_arm: Duration,
) -> bool {
    let log = Log::new(sleeps, sleeps);
    let meter = Meter::start();
    let deadline = Instant::now() + time_to_arm;
    let armed = runtime.block_on(async {
        let armed = tokio::spawn(arm_all(Arc::clone(&log), timer.clone(), deadline));
        let armed = armed.await.expect("it does not panic");
        log.done.notified().await;
        armed
    });
    if !armed {
        return false;
    }
    let spent = meter.stop();
    let series = side.name();
    let (late, early) = log.read();
    emit(series, "cpu", spent.cpu.as_secs_f64());
    emit(series, "fired", late.len() as f64);
    if side == Side::Tickwheel {
        let metrics = wheel.metrics();
        emit(
            series,
            "longest turn",
            metrics.longest_turn.as_secs_f64() * 1e3,
        );
        assert_eq!(metrics.sleeps_fired, sleeps as u64, "not all of them fired");
    }
    emit_lateness(series, late, early);
    true
}

/// S9: the CPU time of the actor's longest turn in such a storm. Wall time counts whatever else the
/// machine does meanwhile.
///
/// A turn is one poll of the actor's task, which is the first that this runtime polls. The process
/// is started without the fast bins of glibc's allocator: a `free` that merges a million of them
/// takes 10 to 30 ms, in any caller.
#[cfg(tokio_unstable)]
pub fn turns(scale: Scale) {
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::AtomicU64;

    use nix::time::{ClockId, clock_gettime};

    thread_local! {
        static BEGAN: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }
    fn thread_cpu() -> Duration {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
        time.expect("a thread may ask for its own time").into()
    }

    let sleeps = scale.pick(100_000, 1_000_000);
    let longest = Arc::<AtomicU64>::default();
    let (polled, actor) = (Arc::clone(&longest), OnceLock::new());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .on_before_task_poll(|_| BEGAN.set(thread_cpu()))
        .on_after_task_poll(move |task| {
            if *actor.get_or_init(|| task.id()) != task.id() {
                return;
            }
            let took = thread_cpu().saturating_sub(BEGAN.get()).as_nanos();
            polled.fetch_max(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
        })
        .build()
        .expect("the runtime starts");
    let wheel = wheel_on(&runtime);
    runtime.block_on(wheel.settle());
    let deadline = Instant::now() + Duration::from_secs(scale.pick(2, 10));
    let log = Log::new(sleeps, sleeps);
    runtime.block_on(async {
        let armed = tokio::spawn(arm_all(
            Arc::clone(&log),
            crate::sides::Tickwheel(wheel.clone()),
            deadline,
        ));
        assert!(
            armed.await.expect("it does not panic"),
            "the sleeps could not be armed before their deadline"
        );
        log.done.notified().await;
    });
    let nanos = longest.load(Ordering::Relaxed);
    emit(
        Side::Tickwheel.name(),
        "longest turn, cpu",
        nanos as f64 / 1e6,
    );
}

/// S11: nothing to do for a while.
pub fn idle(scale: Scale, with: Idle) {
    let time = Duration::from_secs(scale.pick(2, 10));
    let year = Duration::from_hours(365 * 24);
    let runtime = runtime(2);
    let wheel = (with != Idle::NoWheel).then(|| wheel_on(&runtime));
    let sleeper = (with == Idle::OneFarTimer).then(|| {
        let wheel = wheel.clone().expect("there is one");
        runtime.spawn(async move { wheel.sleep(year).await })
    });
    std::thread::sleep(Duration::from_millis(200)); // all that begins has begun
    let wake_ups = || wheel.as_ref().map_or(0, |wheel| wheel.metrics().wake_ups);
    let before = (wake_ups(), waits());
    std::thread::sleep(time);
    let (woke, waited) = (wake_ups() - before.0, waits() - before.1);
    emit(with.name(), "wake-ups", woke as f64);
    // This thread's own sleep is one of them.
    emit(with.name(), "waits", waited as f64 - 1.0);
    drop(sleeper);
}

/// The state of an idle process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    NoWheel,
    NoTimers,
    OneFarTimer,
}

impl Idle {
    pub fn name(self) -> &'static str {
        match self {
            Idle::NoWheel => "no wheel",
            Idle::NoTimers => "no timers",
            Idle::OneFarTimer => "one timer",
        }
    }
}

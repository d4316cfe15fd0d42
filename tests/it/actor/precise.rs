//! The precise timer on the real clock, against a wheel without it in the same process. The package
//! `tests/plain` runs them too, in a build where no clock can be paused.

use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

fn us(micros: u64) -> Duration {
    Duration::from_micros(micros)
}

/// A runtime of each kind, one with an I/O driver.
fn runtimes() -> [Runtime; 2] {
    let (mut one, mut two) = (Builder::new_current_thread(), Builder::new_multi_thread());
    let two = two.worker_threads(2);
    [one.enable_time(), two.enable_all()].map(|builder| builder.build().unwrap())
}

fn wheel(precise: bool) -> TimerWheel {
    TimerWheel::builder().precise(precise).start().unwrap()
}

/// Delays of two to three milliseconds, anywhere between Tokio's.
fn delays() -> impl Iterator<Item = Duration> {
    (0..40).map(|n| us(2_000 + n * 617 % 1_000))
}

/// The lower quartile: on a busy machine a system that wakes threads late makes the others useless.
fn quartile(mut late: Vec<Duration>) -> Duration {
    late.sort();
    late[late.len() / 4]
}

/// The lower quartile of how late timers are that `fire` waits for. None may be early.
async fn lateness(fire: impl AsyncFn(Duration)) -> Duration {
    let mut late = Vec::new();
    for delay in delays() {
        let deadline = Instant::now() + delay;
        fire(delay).await;
        let now = Instant::now();
        assert!(now >= deadline, "early by {:?}", deadline - now);
        late.push(now - deadline);
    }
    quartile(late)
}

/// The precise one has to be less than half as late, in one of several attempts.
async fn assert_more_punctual(precise: impl AsyncFn(Duration), control: impl AsyncFn(Duration)) {
    let mut seen = Vec::new();
    for _ in 0..10 {
        let (precise, control) = (lateness(&precise).await, lateness(&control).await);
        if precise * 2 < control {
            return;
        }
        seen.push((precise, control));
    }
    panic!("precise and not: {seen:?}");
}

#[test]
fn sleeps_are_punctual_below_a_millisecond() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (precise, control) = (wheel(true), wheel(false));
            assert_more_punctual(
                async |delay| precise.sleep(delay).await,
                async |delay| control.sleep(delay).await,
            )
            .await;
        });
    }
}

#[test]
fn tokios_sleeps_are_less_punctual() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let precise = wheel(true);
            assert_more_punctual(
                async |delay| precise.sleep(delay).await,
                async |delay| tokio::time::sleep(delay).await,
            )
            .await;
        });
    }
}

#[test]
fn lone_sleep_is_punctual_after_a_dense_load() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let (precise, control) = (wheel(true), wheel(false));
            let (timers, mut expirations) = precise.keyed();
            for n in 0..1_000 {
                timers.set_timer(n, (), us(n * 100)).unwrap();
            }
            for _ in 0..1_000 {
                expirations.recv().await.unwrap();
            }
            assert_more_punctual(
                async |delay| precise.sleep(delay).await,
                async |delay| control.sleep(delay).await,
            )
            .await;
        });
    }
}

/// How many threads of this process have that name.
fn threads_named(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    // One may end meanwhile.
    names
        .filter(|is| is.as_deref().is_ok_and(|is| is.trim_end() == name))
        .count()
}

#[test]
fn only_a_precise_wheel_has_a_thread_until_it_ends() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let name = "one-of-precise";
        let builder = TimerWheel::builder().name(name);
        let default = builder.clone().start().unwrap();
        default.sleep(us(100)).await;
        assert_eq!(
            threads_named(name),
            0,
            "the feature is on, and nobody asked for it"
        );
        let precise = builder.precise(true).start().unwrap();
        precise.sleep(us(100)).await;
        assert_eq!(threads_named(name), 1);
        precise.shutdown().await;
        while threads_named(name) > 0 {
            tokio::time::sleep(us(1_000)).await;
        }
    });
}

/// How often the actor went to sleep in this time, once it had done what it was told: the least of
/// three times, since its thread may be paused as it goes to sleep at first.
async fn wake_ups(wheel: &TimerWheel, time: Duration) -> u64 {
    let mut least = u64::MAX;
    for _ in 0..3 {
        wheel.settle().await;
        tokio::time::sleep(us(20_000)).await;
        let before = wheel.metrics().wake_ups;
        tokio::time::sleep(time).await;
        least = least.min(wheel.metrics().wake_ups - before);
        if least == 0 {
            break;
        }
    }
    least
}

#[test]
fn p13_wakes_for_nothing_when_empty_or_when_timers_are_far() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = wheel(true);
            let time = us(100_000);
            assert_eq!(wake_ups(&wheel, time).await, 0, "empty");
            let (timers, _expirations) = wheel.keyed();
            timers.set_timer("far", (), HOUR).unwrap();
            assert_eq!(wake_ups(&wheel, time).await, 0, "one far timer");
            timers.set_timer("near", (), us(5_000)).unwrap();
            assert_eq!(wake_ups(&wheel, time).await, 0, "one has fired");
            drop(timers);
            assert_eq!(wake_ups(&wheel, time).await, 0, "empty again");
        });
    }
}

#[test]
fn dense_timers_share_wake_ups() {
    for runtime in runtimes() {
        runtime.block_on(async {
            let wheel = wheel(true);
            let (timers, mut expirations) = wheel.keyed();
            // A timer for each tick.
            for n in 0..5_000 {
                let delay = us(50_000 + n * 100);
                timers.set_timer(n, (), delay).unwrap();
            }
            wheel.settle().await;
            let (before, begin) = (wheel.metrics().wake_ups, Instant::now());
            for _ in 0..5_000 {
                expirations.recv().await.unwrap();
            }
            let woken = wheel.metrics().wake_ups - before;
            let millis = u64::try_from(begin.elapsed().as_millis()).unwrap();
            // The pace allows 1.4 in a millisecond, and expirations of a former setting add some. A
            // wake-up for each timer would be nine.
            assert!(woken < millis * 3 + 50, "{woken} in {millis} ms");
        });
    }
}

//! A wheel on a thread of its own: a runtime there, and `Builder::runtime`, as in the recipe of the
//! guide.

use std::time::Duration;

use tickwheel::TimerWheel;
use tokio::time::Instant;

use crate::support::{HANG_TIMEOUT, ms, start_on_thread};

fn start() -> TimerWheel {
    start_on_thread(TimerWheel::builder().tick(Duration::from_micros(50)))
}

#[test]
fn fires_keyed_timers_without_any_runtime() {
    let wheel = start();
    let (timers, mut expirations) = wheel.keyed();
    timers.set_timer(2, "later", ms(20)).expect("it is open");
    timers.set_timer(1, "sooner", ms(5)).expect("it is open");
    timers
        .set_timer(3, "never", Duration::MAX)
        .expect("it is open");
    futures::executor::block_on(async {
        let mut keys = Vec::new();
        for _ in 0..2 {
            let expired = expirations.recv().await.expect("two fire");
            assert!(Instant::now() >= expired.deadline);
            keys.push(expired.key);
        }
        // On a machine that stops for long enough, the later one is due before the sooner one is
        // set.
        keys.sort_unstable();
        assert_eq!(keys, [1, 2]);
        wheel.shutdown().await;
        assert!(expirations.recv().await.is_none());
    });
    assert_eq!(expirations.unexpired().len(), 1);
}

#[test]
fn fires_while_the_only_worker_is_blocked() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("it starts");
    runtime.block_on(async {
        let wheel = start();
        let (timers, mut expirations) = wheel.keyed();
        timers.set_timer("due", (), ms(5)).expect("it is open");
        // The test awaits nothing from here on, so no task can run.
        let blocked = std::time::Instant::now();
        let expired = loop {
            match expirations.try_recv() {
                Ok(expired) => break expired,
                Err(_) if blocked.elapsed() < HANG_TIMEOUT => std::thread::yield_now(),
                Err(error) => panic!("it does not fire: {error}"),
            }
        };
        assert_eq!(expired.key, "due");
        wheel.shutdown().await;
    });
}

#[tokio::test]
async fn keeps_a_fine_tick_and_fires_no_sleep_early() {
    let wheel = start();
    for micros in [1, 50, 300, 999, 1700] {
        let (real, start) = (std::time::Instant::now(), Instant::now());
        let duration = Duration::from_micros(micros);
        wheel.sleep(duration).await;
        assert!(real.elapsed() >= duration);
        assert!(start.elapsed() >= duration);
    }
    wheel.settle().await;
    assert!(!wheel.is_shutdown());
    assert_eq!(wheel.metrics().sleeps_fired, 5);
}

#[test]
fn its_thread_rests_with_nothing_to_wait_for() {
    let (wheel, other) = (start(), start());
    let (timers, mut expirations) = other.keyed();
    for key in 0..5 {
        timers.set_timer(key, (), ms(20)).expect("it is open");
        assert!(futures::executor::block_on(expirations.recv()).is_some());
    }
    // A thread may be unparked for no reason, but not each millisecond.
    assert!(wheel.metrics().turns < 20, "{:?}", wheel.metrics());
}

#[test]
fn ends_its_thread_with_the_last_handle() {
    let wheel = start();
    let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    drop((wheel, timers));
    let ended = futures::executor::block_on(expirations.recv());
    assert!(ended.is_none());
}

/// Whether this process has a thread of this name.
#[cfg(target_os = "linux")]
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it");
    tasks.filter_map(Result::ok).any(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm"));
        comm.is_ok_and(|comm| comm.trim_end() == name)
    })
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn its_thread_is_gone_after_shutdown() {
    let builder = TimerWheel::builder().name("wheel-that-ends");
    let wheel = start_on_thread(builder);
    wheel.settle().await;
    assert!(has_thread("wheel-that-ends"));
    wheel.shutdown().await;
    // The thread ends shortly after it has published the actor's end.
    let waiting = Instant::now();
    while has_thread("wheel-that-ends") {
        assert!(waiting.elapsed() < HANG_TIMEOUT, "it stays");
        tokio::time::sleep(ms(1)).await;
    }
    drop(wheel);
}

//! Callers that take the locks of sets and sleeps again and again, from more threads than there are
//! cores. Heartbeats are compared with Tokio's on the same runtime, at the same time.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::Duration;

use futures::executor::block_on;
use tickwheel::{Cause, KeyedTimers, TimerWheel, WatchGuard};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{self, Instant};

use crate::support::{HOUR, ms, start_on_thread};

/// How long the hearts beat.
const TIME: Duration = Duration::from_secs(1);

const BEAT: Duration = ms(5);

const KEYS: std::ops::Range<u64> = 1_000..1_500;

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn more_than_cores() -> usize {
    2 * available_parallelism().map_or(2, usize::from) + 1
}

/// How long each beat took, sorted.
async fn beats(mut beat: impl AsyncFnMut()) -> Vec<Duration> {
    let mut took = Vec::new();
    let start = Instant::now();
    while start.elapsed() < TIME {
        let before = Instant::now();
        beat().await;
        took.push(before.elapsed());
    }
    took.sort_unstable();
    took
}

/// Beats of ours, and Tokio's beside them.
struct Compared {
    ours: Vec<(&'static str, Vec<Duration>)>,
    theirs: Vec<Duration>,
}

impl Compared {
    /// Names our beats whose median is far above that of Tokio's. It was ten times as long and
    /// more.
    fn behind(&self) -> Option<String> {
        let median = |beats: &[Duration]| beats[beats.len() / 2];
        let their_median = median(&self.theirs);
        let is_behind = |beats: &[Duration]| median(beats) > 3 * their_median + ms(20);
        let (what, beats) = self.ours.iter().find(|(_, beats)| is_behind(beats))?;
        let our_median = median(beats);
        Some(format!(
            "{what}: {our_median:?} in {} beats, Tokio's {their_median:?} in {}",
            beats.len(),
            self.theirs.len()
        ))
    }
}

/// Asserts that our beats keep up with Tokio's, in one of three attempts: the machine may run
/// something else meanwhile. One test runs at a time, so that they do not disturb each other.
fn assert_keeps_up(compare: impl Fn() -> Compared) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let behind: Vec<_> = (0..3).map_while(|_| compare().behind()).collect();
    assert!(behind.len() < 3, "{behind:#?}");
}

/// Threads that call in a loop.
struct Callers {
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Callers {
    /// `caller` makes the call of each thread.
    fn start<C: FnMut() + Send + 'static>(threads: usize, caller: impl Fn() -> C) -> Self {
        let has_ended = Arc::<AtomicBool>::default();
        let start = |_| {
            let (mut call, has_ended) = (caller(), Arc::clone(&has_ended));
            thread::spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    call();
                }
            })
        };
        let threads = (0..threads).map(start).collect();
        Callers { has_ended, threads }
    }

    fn end(self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Sleeps and keyed timers of the wheel beat while callers call.
fn compare<C: FnMut() + Send + 'static>(wheel: &TimerWheel, caller: impl Fn() -> C) -> Compared {
    let callers = Callers::start(more_than_cores(), caller);
    let compared = runtime().block_on(async {
        let sleeper = wheel.clone();
        let sleeps = tokio::spawn(beats(async move || sleeper.sleep(BEAT).await));
        let (timers, mut stream) = wheel.keyed();
        let keyed = tokio::spawn(beats(async move || {
            timers.set_timer(1, 1, BEAT).unwrap();
            assert_eq!(stream.recv().await.map(|expired| expired.key), Some(1));
        }));
        let theirs = tokio::spawn(beats(async || time::sleep(BEAT).await));
        Compared {
            ours: vec![
                ("sleeps", sleeps.await.unwrap()),
                ("keyed timers", keyed.await.unwrap()),
            ],
            theirs: theirs.await.unwrap(),
        }
    });
    callers.end();
    compared
}

/// On a runtime, and on a thread of its own.
fn compare_on_both<C: FnMut() + Send + 'static>(caller: impl Fn(&TimerWheel) -> C) {
    let runtime = runtime();
    let wheel = TimerWheel::builder().runtime(runtime.handle().clone());
    let wheel = wheel.start().unwrap();
    assert_keeps_up(|| compare(&wheel, || caller(&wheel)));
    let wheel = start_on_thread(TimerWheel::builder());
    assert_keeps_up(|| compare(&wheel, || caller(&wheel)));
}

/// Sets, moves and removes far timers.
fn change_all(timers: &KeyedTimers<u64, u64>) {
    for key in KEYS {
        timers.set_timer(key, 0, 3 * HOUR).unwrap();
    }
    for key in KEYS {
        assert_eq!(timers.move_timer(&key, 2 * HOUR), Ok(true));
    }
    for key in KEYS {
        assert_eq!(timers.remove_timer(&key), Ok(Some(0)));
    }
}

// The actor waited for the lock of a set after some attempts. Its holder was preempted, or took the
// lock again at once.
#[test]
fn p11_heartbeats_keep_up_with_tokios_beside_callers_in_a_loop() {
    compare_on_both(|wheel| {
        let (timers, stream) = wheel.keyed();
        move || {
            let _open = &stream;
            change_all(&timers);
        }
    });
}

/// A timer of the caller's own set beats.
fn beat_in_the_callers_set<C: FnMut() + Send + 'static>(
    caller: impl Fn(&KeyedTimers<u64, u64>) -> C,
) {
    let runtime = runtime();
    let wheel = TimerWheel::builder().runtime(runtime.handle().clone());
    let wheel = wheel.start().unwrap();
    assert_keeps_up(|| {
        let (timers, mut stream) = wheel.keyed();
        let callers = Callers::start(1, || caller(&timers));
        let compared = runtime.block_on(async {
            let theirs = tokio::spawn(beats(async || time::sleep(BEAT).await));
            let ours = beats(async || {
                timers.set_timer(1, 1, BEAT).unwrap();
                assert_eq!(stream.recv().await.map(|expired| expired.key), Some(1));
            });
            Compared {
                ours: vec![("the caller's set", ours.await)],
                theirs: theirs.await.unwrap(),
            }
        });
        callers.end();
        compared
    });
}

#[test]
fn p11_due_set_is_delivered_beside_callers_in_a_loop() {
    beat_in_the_callers_set(|timers| {
        let timers = timers.clone();
        move || change_all(&timers)
    });
}

#[test]
fn p11_due_set_is_delivered_beside_retain_in_a_loop() {
    beat_in_the_callers_set(|timers| {
        let timers = timers.clone();
        for key in KEYS {
            timers.set_timer(key, 0, HOUR).unwrap();
        }
        move || assert_eq!(timers.retain(|_, _, _| true), Ok(()))
    });
}

#[test]
fn p11_heartbeats_keep_up_beside_reapers() {
    compare_on_both(|wheel| {
        let (reaper, mut ended) = wheel.reaper::<u64, ()>(HOUR);
        move || {
            let watch = |key| reaper.watch(key, ()).unwrap();
            let guards: Vec<_> = KEYS.map(watch).collect();
            assert!(guards.iter().all(WatchGuard::touch));
            assert!(guards[0].expire_now());
            drop(guards);
            let expired = block_on(ended.recv()).unwrap();
            assert_eq!(expired.cause, Cause::Forced);
        }
    });
}

#[test]
fn p11_heartbeats_keep_up_beside_settle_in_a_loop() {
    compare_on_both(|wheel| {
        let (timers, stream) = wheel.keyed();
        let wheel = wheel.clone();
        move || {
            let _open = &stream;
            change_all(&timers);
            block_on(wheel.settle());
        }
    });
}

#[test]
fn p11_heartbeats_keep_up_beside_drain_and_retain_in_a_loop() {
    compare_on_both(|wheel| {
        let (timers, stream) = wheel.keyed();
        move || {
            let _open = &stream;
            for key in KEYS {
                timers.set_timer(key, (), HOUR).unwrap();
            }
            assert_eq!(timers.retain(|&key, (), _| key % 2 == 0), Ok(()));
            assert_eq!(timers.drain().unwrap().len(), 250);
        }
    });
}

// Reading the counts of many sets takes a lock that the end of a set takes, too.
#[test]
fn p11_heartbeats_keep_up_beside_metrics_in_a_loop() {
    compare_on_both(|wheel| {
        let sets: Vec<_> = (0..500).map(|_| wheel.keyed::<u64, ()>()).collect();
        let wheel = wheel.clone();
        move || {
            assert!(sets.iter().all(|(timers, _)| timers.is_empty()));
            assert_eq!(wheel.metrics().keyed_removed, 0);
        }
    });
}

// The actor waited for the lock of the list of sets when it came to know a set, and when it forgot
// one.
#[test]
fn p11_heartbeats_keep_up_beside_sets_that_come_and_go() {
    compare_on_both(|wheel| {
        let wheel = wheel.clone();
        move || {
            let (timers, stream) = wheel.keyed();
            for key in 0..10 {
                timers.set_timer(key, (), ms(key)).unwrap();
            }
            drop(stream);
            assert!(timers.set_timer(10, (), HOUR).is_err());
        }
    });
}

#[test]
fn p11_heartbeats_keep_up_beside_resets_in_a_loop() {
    compare_on_both(|wheel| {
        let mut sleep = Box::pin(wheel.sleep(HOUR));
        move || {
            for length in [0, 1, 1_000, 3_600_000] {
                sleep.as_mut().reset(Instant::now() + ms(length));
                let mut cx = Context::from_waker(Waker::noop());
                let _ = pin!(&mut sleep).poll(&mut cx);
            }
        }
    });
}

//! Callers that take the lock of a set again and again, from more threads than there are cores.
//! Heartbeats are compared with Tokio's on the same runtime, at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, available_parallelism};
use std::time::Duration;

use tickwheel::{KeyedTimers, TimerWheel};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{self, Instant};

use crate::support::{HOUR, ms};

/// How long the hearts beat.
const TIME: Duration = Duration::from_secs(2);

const BEAT: Duration = ms(5);

fn runtime() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Threads that change far timers in a loop.
struct Callers {
    has_ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Callers {
    /// Each has a set of `sets`.
    fn start(sets: impl Iterator<Item = KeyedTimers<u64, u64>>) -> Self {
        let has_ended = Arc::<AtomicBool>::default();
        let start = |timers: KeyedTimers<u64, u64>| {
            let has_ended = Arc::clone(&has_ended);
            thread::spawn(move || {
                while !has_ended.load(Ordering::Relaxed) {
                    change_all(&timers);
                }
            })
        };
        let threads = sets.map(start).collect();
        Callers { has_ended, threads }
    }

    fn end(self) {
        self.has_ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Sets, moves and removes far timers.
fn change_all(timers: &KeyedTimers<u64, u64>) {
    let keys = 1_000..1_500;
    for key in keys.clone() {
        timers.set_timer(key, 0, 3 * HOUR).unwrap();
    }
    for key in keys.clone() {
        assert_eq!(timers.move_timer(&key, 2 * HOUR), Ok(true));
    }
    for key in keys {
        assert_eq!(timers.remove_timer(&key), Ok(Some(0)));
    }
}

fn more_than_cores() -> usize {
    2 * available_parallelism().map_or(2, usize::from) + 1
}

/// How long each beat took, sorted.
async fn beats<F: Future<Output = ()>>(mut beat: impl FnMut() -> F) -> Vec<Duration> {
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

/// Tokio's beats, which take place beside ours.
fn tokios() -> impl Future<Output = Vec<Duration>> {
    beats(|| time::sleep(BEAT))
}

/// Asserts that the median of our beats is near that of Tokio's: it was ten times as long and more.
fn assert_keeps_up(ours: &[Duration], theirs: &[Duration]) {
    let median = |beats: &[Duration]| beats[beats.len() / 2];
    let (our_median, their_median) = (median(ours), median(theirs));
    assert!(
        our_median <= 3 * their_median + ms(30),
        "{our_median:?} in {} beats, Tokio's {their_median:?} in {}",
        ours.len(),
        theirs.len()
    );
}

// The actor waited for the lock of a set after some attempts. Its holder was preempted, or took the
// lock again at once.
#[test]
fn p11_heartbeats_keep_up_with_tokios_beside_callers_in_a_loop() {
    runtime().block_on(async {
        let wheel = TimerWheel::new();
        let sets: Vec<_> = (0..more_than_cores()).map(|_| wheel.keyed()).collect();
        let callers = Callers::start(sets.iter().map(|(timers, _)| timers.clone()));
        let ours = tokio::spawn({
            let wheel = wheel.clone();
            async move { beats(|| wheel.sleep(BEAT)).await }
        });
        let theirs = tokio::spawn(tokios());
        let (ours, theirs) = (ours.await.unwrap(), theirs.await.unwrap());
        callers.end();
        assert_keeps_up(&ours, &theirs);
    });
}

#[test]
fn p11_due_set_is_delivered_beside_callers_in_a_loop() {
    runtime().block_on(async {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        let callers = Callers::start(std::iter::once(timers.clone()));
        let ours = tokio::spawn(async move {
            let mut took = Vec::new();
            let start = Instant::now();
            while start.elapsed() < TIME {
                let before = Instant::now();
                timers.set_timer(1, 1, BEAT).unwrap();
                assert_eq!(stream.recv().await.map(|expired| expired.key), Some(1));
                took.push(before.elapsed());
            }
            took.sort_unstable();
            (took, stream)
        });
        let theirs = tokio::spawn(tokios());
        let ((ours, _stream), theirs) = (ours.await.unwrap(), theirs.await.unwrap());
        callers.end();
        assert_keeps_up(&ours, &theirs);
    });
}

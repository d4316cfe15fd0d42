//! Keyed timers from many threads at once, by the real clock: every timer ends in exactly one way,
//! and the counters are exact.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tickwheel::{Expired, KeyedTimers, TimerWheel, TryRecvError};

use crate::support::{HANG_TIMEOUT, Numbers, ms};

/// How often each value has ended, and in which way.
struct Ends {
    of_each: Vec<AtomicU32>,
    dropped: AtomicU64,
    received: AtomicU64,
}

/// A value that counts its end: the test received it, or it was dropped.
struct Value {
    id: usize,
    ends: Option<Arc<Ends>>,
}

impl Ends {
    fn new(n: usize) -> Arc<Self> {
        Arc::new(Ends {
            of_each: (0..n).map(|_| AtomicU32::new(0)).collect(),
            dropped: AtomicU64::new(0),
            received: AtomicU64::new(0),
        })
    }

    fn value(self: &Arc<Self>, id: usize) -> Value {
        let ends = Some(Arc::clone(self));
        Value { id, ends }
    }

    fn assert_each_ended_once(&self) {
        for (id, ends) in self.of_each.iter().enumerate() {
            assert_eq!(ends.load(Ordering::SeqCst), 1, "value {id}");
        }
    }
}

impl Value {
    fn receive(mut self) {
        let ends = self.ends.take().expect("it has not ended");
        ends.of_each[self.id].fetch_add(1, Ordering::SeqCst);
        ends.received.fetch_add(1, Ordering::SeqCst);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(ends) = self.ends.take() {
            ends.of_each[self.id].fetch_add(1, Ordering::SeqCst);
            ends.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The counts of one thread, to compare with the wheel's metrics.
#[derive(Default)]
struct Tally {
    set: u64,
    moved: u64,
    replaced: u64,
    taken: u64,
    drained: u64,
    refused: u64,
}

/// Makes `n` random calls on keys that all threads use. The values are numbered from `first`.
fn storm(timers: &KeyedTimers<u64, Value>, ends: &Arc<Ends>, first: usize, n: usize) -> Tally {
    let mut random = Numbers(0x9E37_79B9_7F4A_7C15 ^ (first as u64 + 1));
    let mut tally = Tally::default();
    let mut next = first;
    while next < first + n {
        let key = random.below(64);
        let delay = Duration::from_micros(random.below(4000));
        match random.below(100) {
            0..50 => {
                match timers.set_timer(key, ends.value(next), delay) {
                    Ok(replaced) => {
                        tally.set += 1;
                        if let Some(replaced) = replaced {
                            replaced.receive();
                            tally.replaced += 1;
                        }
                    }
                    Err(refused) => {
                        refused.into_inner().1.receive();
                        tally.refused += 1;
                    }
                }
                next += 1;
            }
            50..70 => tally.moved += u64::from(timers.move_timer(&key, delay) == Ok(true)),
            70..95 => {
                if let Ok(Some(value)) = timers.remove_timer(&key) {
                    value.receive();
                    tally.taken += 1;
                }
            }
            95 => {
                for expired in timers.drain().unwrap_or_default() {
                    expired.value.receive();
                    tally.drained += 1;
                }
            }
            _ => {
                assert!(timers.len() <= 64);
                let _ = timers.deadline(&key);
            }
        }
    }
    tally
}

fn joined(threads: Vec<thread::JoinHandle<Tally>>) -> Tally {
    let mut sum = Tally::default();
    for thread in threads {
        let tally = thread.join().expect("no thread panics");
        sum.set += tally.set;
        sum.moved += tally.moved;
        sum.replaced += tally.replaced;
        sum.taken += tally.taken;
        sum.drained += tally.drained;
        sum.refused += tally.refused;
    }
    sum
}

const THREADS: usize = 4;
const CALLS: usize = 10_000;

fn start_storm(
    timers: &KeyedTimers<u64, Value>,
    ends: &Arc<Ends>,
) -> Vec<thread::JoinHandle<Tally>> {
    (0..THREADS)
        .map(|n| {
            let (timers, ends) = (timers.clone(), Arc::clone(ends));
            thread::spawn(move || storm(&timers, &ends, n * CALLS, CALLS))
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p6_p16_every_timer_ends_once_whatever_threads_do() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, Value>();
    let ends = Ends::new(THREADS * CALLS);
    let threads = start_storm(&timers, &ends);
    drop(timers);
    let consumer = tokio::spawn(async move {
        let mut received = 0;
        while let Some(expired) = stream.recv().await {
            expired.value.receive();
            received += 1;
        }
        received
    });
    let sum = tokio::task::spawn_blocking(move || joined(threads))
        .await
        .unwrap();
    let received: u64 = consumer.await.unwrap();
    ends.assert_each_ended_once();

    wheel.settle().await;
    let m = wheel.metrics();
    let dropped = ends.dropped.load(Ordering::SeqCst);
    assert_eq!(sum.refused, 0);
    assert_eq!(m.keyed_set, sum.set);
    assert_eq!(m.keyed_fired, received);
    assert_eq!(m.keyed_drained, sum.drained);
    assert_eq!(m.keyed_moved, sum.moved);
    assert_eq!(m.keyed_removed, sum.taken);
    assert_eq!(m.keyed_replaced, sum.replaced);
    assert_eq!(dropped, 0, "every value was received");
    assert_eq!(m.keyed_pending, 0);
    assert_eq!(sum.set, received + sum.drained + sum.taken + sum.replaced);
    assert!(
        received > 0 && sum.taken > 0 && sum.replaced > 0 && sum.moved > 0,
        "all ways were taken"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_shutdown_amid_a_storm_loses_no_value() {
    let mut refused = 0;
    for round in 0..4 {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed::<u64, Value>();
        let ends = Ends::new(THREADS * CALLS);
        let threads = start_storm(&timers, &ends);
        tokio::time::sleep(ms(2 + 5 * round)).await;
        wheel.shutdown().await;
        let mut unexpired = stream.unexpired();
        let sum = tokio::task::spawn_blocking(move || joined(threads))
            .await
            .unwrap();
        unexpired.extend(stream.unexpired());
        assert_eq!(timers.len(), 0, "nothing was set after the end");
        let mut received = 0;
        while let Ok(Expired { value, .. }) = stream.try_recv() {
            value.receive();
            received += 1;
        }
        let left = unexpired.len() as u64;
        for expired in unexpired {
            expired.value.receive();
        }
        ends.assert_each_ended_once();
        let m = wheel.metrics();
        refused += sum.refused;
        assert_eq!(m.keyed_set, sum.set);
        assert_eq!(m.keyed_fired, received);
        assert_eq!(
            (m.keyed_removed, m.keyed_replaced),
            (sum.taken, sum.replaced)
        );
        assert_eq!(m.keyed_drained, sum.drained + left);
        assert_eq!(m.keyed_pending, 0);
        let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
        assert_eq!(m.keyed_set, ended);
    }
    assert!(refused > 0, "a storm outlived its wheel");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p15_drops_every_value_with_a_stream_amid_a_storm() {
    for round in 0..4 {
        let wheel = TimerWheel::new();
        let (timers, stream) = wheel.keyed::<u64, Value>();
        let ends = Ends::new(THREADS * CALLS);
        let threads = start_storm(&timers, &ends);
        tokio::time::sleep(ms(2 + 5 * round)).await;
        drop(stream);
        let sum = tokio::task::spawn_blocking(move || joined(threads))
            .await
            .unwrap();
        assert_eq!(timers.len(), 0);
        ends.assert_each_ended_once();
        wheel.settle().await;
        let m = wheel.metrics();
        let ended = m.keyed_fired + m.keyed_removed + m.keyed_replaced + m.keyed_drained;
        assert_eq!((m.keyed_set, m.keyed_pending), (sum.set, 0));
        assert_eq!(m.keyed_set, ended);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p5_calls_of_one_thread_apply_in_order() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<(usize, u64), u64>();
    let fired = tokio::spawn(async move {
        let mut fired = Vec::new();
        while let Some(expired) = stream.recv().await {
            fired.push((expired.key, expired.value));
        }
        fired
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let timers = timers.clone();
            thread::spawn(move || {
                for round in 0..3000 {
                    let key = |n| (thread, round % 100 * 10 + n);
                    let far = ms(3_600_000);
                    assert_eq!(timers.set_timer(key(0), round, far), Ok(None));
                    assert_eq!(timers.move_timer(&key(0), ms(0)), Ok(true));
                    // It was due for a moment, and may have fired with the first value, but not
                    // with the second.
                    let is_pending = timers.move_timer(&key(0), far).unwrap();
                    let replaced = timers.set_timer(key(0), round + 1, far);
                    assert_eq!(replaced, Ok(is_pending.then_some(round)));
                    assert_eq!(timers.remove_timer(&key(0)), Ok(Some(round + 1)));
                    assert_eq!(timers.set_timer(key(1), round, far), Ok(None));
                    assert_eq!(timers.remove_timer(&key(1)), Ok(Some(round)));
                    assert_eq!(timers.set_timer(key(2), round, far), Ok(None));
                    let replaced = timers.set_timer(key(2), round + 1, far);
                    assert_eq!(replaced, Ok(Some(round)));
                    assert_eq!(timers.remove_timer(&key(2)), Ok(Some(round + 1)));
                    assert_eq!(timers.remove_timer(&key(3)), Ok(None));
                    assert_eq!(timers.move_timer(&key(3), far), Ok(false));
                    assert_eq!(timers.set_timer(key(3), round, far), Ok(None));
                    assert!(timers.deadline(&key(3)).is_some());
                    assert_eq!(timers.remove_timer(&key(3)), Ok(Some(round)));
                }
            })
        })
        .collect();
    tokio::task::spawn_blocking(move || threads.into_iter().for_each(|t| t.join().unwrap()))
        .await
        .unwrap();
    assert_eq!(timers.len(), 0);
    drop(timers);
    let fired = fired.await.unwrap();
    let mut seen = std::collections::HashSet::new();
    for ((thread, key), round) in fired {
        assert_eq!(
            key,
            round % 100 * 10,
            "only the first key's timer was due, with its first value"
        );
        assert!(seen.insert((thread, round)), "at most once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_limit_exact_while_setting_races_with_receiving() {
    const LIMIT: usize = 16;
    let wheel = TimerWheel::builder().max_keyed(LIMIT).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let accepted = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS as u64)
        .map(|thread| {
            let (timers, accepted) = (timers.clone(), Arc::clone(&accepted));
            thread::spawn(move || {
                let mut random = Numbers(thread + 1);
                for n in 0..20_000 {
                    let key = n * THREADS as u64 + thread;
                    let delay = Duration::from_micros(random.below(1500));
                    if timers.set_timer(key, (), delay).is_ok() {
                        accepted.fetch_add(1, Ordering::SeqCst);
                    }
                    assert!(timers.len() <= LIMIT);
                    if random.below(3) == 0 {
                        timers.remove_timer(&key).unwrap();
                    }
                }
            })
        })
        .collect();
    let join = move || threads.into_iter().for_each(|t| t.join().unwrap());
    let mut joined = tokio::task::spawn_blocking(join);
    let mut received = 0;
    loop {
        tokio::select! {
            Some(_) = stream.recv() => received += 1,
            joined = &mut joined => break joined.unwrap(),
        }
    }
    tokio::time::sleep(ms(5)).await;
    wheel.settle().await;
    while stream.try_recv().is_ok() {
        received += 1;
    }
    assert_eq!(timers.len(), 0);
    let m = wheel.metrics();
    assert_eq!(m.keyed_set, accepted.load(Ordering::SeqCst));
    assert_eq!(m.keyed_set, m.keyed_fired + m.keyed_removed);
    assert_eq!(m.keyed_fired, received);
    let room = (0..).take_while(|&key| timers.set_timer(key, (), ms(10_000)).is_ok());
    assert_eq!(room.count(), LIMIT, "the limit is as before");
}

/// Spins, because the states that matter last for nanoseconds, and yields now and then.
fn wait_a_little(spins: &mut u32) {
    *spins += 1;
    if *spins % 256 == 0 {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frees_its_share_of_the_limit_once_received() {
    let wheel = TimerWheel::builder().max_keyed(1).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let done = tokio::task::spawn_blocking(move || {
        let mut spins = 0;
        for key in 0..500 {
            // No other thread sets timers, so there has to be room.
            timers
                .set_timer(key, (), ms(0))
                .expect("the one before was received");
            while let Err(empty) = stream.try_recv() {
                assert_eq!(empty, TryRecvError::Empty);
                wait_a_little(&mut spins);
            }
        }
    });
    done.await.unwrap();
}

/// Sets one timer again and again under a limit of one, while another thread takes it out each
/// time: whenever no timer is pending, there has to be room.
async fn sets_while_another_takes_out(take_out: impl Fn(&KeyedTimers<u64, ()>) + Send + 'static) {
    let wheel = TimerWheel::builder().max_keyed(1).start().unwrap();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    let stop = Arc::new(AtomicBool::new(false));
    let taker = {
        let (timers, stop) = (timers.clone(), Arc::clone(&stop));
        thread::spawn(move || {
            let mut spins = 0;
            while !stop.load(Ordering::SeqCst) {
                // A lock takes longer to release when another thread waits for it.
                take_out(&timers);
                wait_a_little(&mut spins);
            }
        })
    };
    let setter = tokio::task::spawn_blocking(move || {
        let mut spins = 0;
        // Threads that share a core hand over once in a round of its queue.
        let end = Instant::now() + ms(10_000);
        for _ in (0..3000).take_while(|_| Instant::now() < end) {
            while !timers.is_empty() {
                wait_a_little(&mut spins);
            }
            let set = timers.set_timer(0, (), ms(10_000));
            set.expect("no timer is pending");
        }
        stop.store(true, Ordering::SeqCst);
    });
    setter.await.unwrap();
    taker.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frees_its_share_of_the_limit_once_removed() {
    sets_while_another_takes_out(|timers| assert!(timers.remove_timer(&0).is_ok())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frees_its_share_of_the_limit_once_drained() {
    sets_while_another_takes_out(|timers| assert!(timers.drain().is_ok())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p1_p11_fires_all_and_none_early_while_threads_flood() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u64, u64>();
    let stop = Arc::new(AtomicBool::new(false));
    let floods: Vec<_> = (0..2_u64)
        .map(|thread| {
            let (timers, stop) = (timers.clone(), Arc::clone(&stop));
            thread::spawn(move || {
                let mut random = Numbers(thread + 77);
                while !stop.load(Ordering::Relaxed) {
                    let key = 1_000_000 + random.below(2000);
                    match random.below(3) {
                        0 => {
                            let far = ms(60_000 + random.below(999));
                            timers.set_timer(key, 0, far).unwrap();
                        }
                        1 => {
                            let far = ms(60_000 + random.below(999));
                            timers.move_timer(&key, far).unwrap();
                        }
                        _ => drop(timers.remove_timer(&key).unwrap()),
                    }
                }
            })
        })
        .collect();
    for n in 0..500 {
        timers
            .set_timer(n, n, Duration::from_micros(n * 400))
            .unwrap();
    }
    let mut last = None;
    for _ in 0..500 {
        let expired = stream.recv().await.expect("the stream goes on");
        assert!(expired.deadline <= tokio::time::Instant::now(), "early");
        assert!(expired.key < 500);
        assert!(last < Some(expired.key), "in the order of deadlines");
        last = Some(expired.key);
    }
    stop.store(true, Ordering::Relaxed);
    for thread in floods {
        thread.join().unwrap();
    }
    assert!(timers.len() <= 2000);
    timers.drain().unwrap();
    wheel.settle().await;
    assert_eq!(wheel.metrics().keyed_pending, 0);
}

/// The near timer of each round is armed while other tasks set and remove far ones in the same set.
/// In an earlier version, a thread paused between marking the set as queued and pushing the command
/// kept the others from pushing theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p2_near_timer_expires_among_calls_that_need_no_wake() {
    const NEAR: u64 = u64::MAX;
    let wheel = TimerWheel::builder()
        .tick(Duration::from_micros(100))
        .start()
        .unwrap();
    let (timers, mut stream) = wheel.keyed::<u64, ()>();
    let began = std::time::Instant::now();
    let mut round = 0;
    while began.elapsed() < ms(3_000) || round <= 10 {
        let others: Vec<_> = (0..3)
            .map(|task| {
                let timers = timers.clone();
                tokio::spawn(async move {
                    for n in 0..20 {
                        timers.set_timer(task, (), ms(3_600_000)).unwrap();
                        if (n + round) % 3 == 0 {
                            tokio::task::yield_now().await;
                        }
                        timers.remove_timer(&task).unwrap();
                    }
                })
            })
            .collect();
        let near = timers.clone();
        let near = tokio::spawn(async move {
            near.set_timer(NEAR, (), ms(1)).unwrap();
        });
        near.await.unwrap();
        for other in others {
            other.await.unwrap();
        }
        // Only the near timer itself is left to wake the actor.
        let expired = tokio::time::timeout(HANG_TIMEOUT, stream.recv()).await;
        let expired = expired.unwrap_or_else(|_| panic!("lost in round {round}"));
        assert_eq!(expired.map(|expired| expired.key), Some(NEAR));
        round += 1;
    }
    assert!(timers.is_empty());
}

//! Promise P15: nothing is lost at a shutdown, or when the runtime or all handles are dropped.

use std::pin::pin;
use std::sync::Arc;

use futures::poll;
use tickwheel::{ClosedError, SetTimerError, TimerWheel, TryRecvError};
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, jump, ms, received};

#[tokio::test(start_paused = true)]
async fn p15_unexpired_timers_are_returned_once_earliest_first() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    let start = Instant::now();
    for (key, delay) in [(1, 30), (2, 10), (3, 5), (4, 20), (5, 10)] {
        timers.set_timer(key, key * 2, ms(delay)).unwrap();
    }
    advance(&wheel, ms(5)).await;
    timers.set_interval(6, 12, ms(7)).unwrap();
    timers.set_timer(7, 14, std::time::Duration::MAX).unwrap();
    assert_eq!(stream.unexpired(), [], "the wheel runs");
    wheel.shutdown().await;
    assert!(wheel.is_shutdown() && timers.is_closed());
    let left: Vec<_> = (stream.unexpired().iter())
        .map(|e| (e.key, e.value, e.deadline - start))
        .collect();
    assert_eq!(
        left[..6],
        [
            (3, 6, ms(5)),
            (2, 4, ms(10)),
            (5, 10, ms(10)),
            (6, 12, ms(12)),
            (4, 8, ms(20)),
            (1, 2, ms(30))
        ]
    );
    assert_eq!((left.len(), left[6].0), (7, 7));
    assert_eq!(stream.unexpired(), []);
    assert_eq!(timers.len(), 0);
    assert_eq!(stream.recv().await, None);
    assert_eq!(stream.try_recv(), Err(TryRecvError::Closed));
    assert_balanced(&wheel);
}

/// What was due comes by `recv`, in order, and nothing that becomes due after the end. The rest
/// comes by `unexpired`, whichever is called first.
#[tokio::test(start_paused = true)]
async fn p15_due_timers_are_received_after_shutdown_and_then_none() {
    for receives in 0..=5 {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        for (key, delay) in [(1, 30), (2, 10), (3, 5), (4, 20), (5, 10)] {
            timers.set_timer(key, (), ms(delay)).unwrap();
        }
        timers.set_interval(6, (), ms(10)).unwrap();
        advance(&wheel, ms(10)).await;
        // This one is due too, and the actor has not heard of it.
        timers.set_timer(7, (), ms(0)).unwrap();
        wheel.shutdown().await;
        assert_eq!(timers.len(), 7, "all are in the set");
        jump(ms(1_000));
        let due = [3, 2, 5, 6, 7];
        for key in &due[..receives] {
            assert_eq!(stream.recv().await.map(|e| e.key), Some(*key));
        }
        if receives == due.len() {
            assert_eq!(stream.recv().await, None);
        }
        let left: Vec<_> = stream.unexpired().iter().map(|e| e.key).collect();
        let mut expected = due[receives..].to_vec();
        // The interval goes on as it is received, and is left again.
        expected.extend([4, 1]);
        expected.extend((receives > 3).then_some(6));
        assert_eq!(left, expected, "{receives} were received");
        assert_eq!(stream.recv().await, None);
        assert_eq!(stream.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(timers.len(), 0);
        assert_balanced(&wheel);
    }
}

#[tokio::test(start_paused = true)]
async fn p15_gives_values_back_after_shutdown() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer("left", 1, ms(10)).unwrap();
    wheel.shutdown().await;
    wheel.shutdown().await;
    wheel.settle().await;
    let at = Instant::now();
    assert_eq!(
        timers.set_timer("k", 2, ms(1)),
        Err(SetTimerError::Closed("k", 2, ClosedError::Shutdown))
    );
    assert_eq!(
        timers.set_timer_at("k", 3, at),
        Err(SetTimerError::Closed("k", 3, ClosedError::Shutdown))
    );
    assert_eq!(
        timers.set_interval("k", 4, ms(1)),
        Err(SetTimerError::Closed("k", 4, ClosedError::Shutdown))
    );
    assert!(timers.move_timer("left", ms(1)).is_err());
    assert!(timers.move_timer_at("left", at).is_err());
    assert!(timers.remove_timer("left").is_err());
    assert!(
        timers.deadline("left").is_some(),
        "the set keeps it until `unexpired` is called"
    );
    assert!(timers.drain().is_err());
    assert_eq!(stream.unexpired().len(), 1);
    assert_eq!(timers.deadline("left"), None);
    wheel.shutdown().await;
    assert_eq!(stream.unexpired(), []);

    let (timers, mut stream) = wheel.keyed();
    assert!(timers.is_closed(), "a set made after the end");
    assert!(timers.set_timer(1, (), ms(1)).is_err());
    assert_eq!(stream.recv().await, None);
}

#[tokio::test(start_paused = true)]
async fn p15_wakes_a_waiting_stream_at_shutdown() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 1, ms(1_000_000)).unwrap();
    let waiting = tokio::spawn(async move { (stream.recv().await, stream.unexpired().len()) });
    tokio::task::yield_now().await;
    wheel.shutdown().await;
    assert_eq!(waiting.await.unwrap(), (None, 1));
}

#[tokio::test(start_paused = true)]
async fn p15_shuts_down_though_the_future_is_dropped() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, (), ms(10)).unwrap();
    {
        let mut shutdown = pin!(wheel.shutdown());
        assert!(poll!(&mut shutdown).is_pending());
    }
    assert_eq!(stream.recv().await, None);
    assert!(wheel.is_shutdown());
    assert_eq!(stream.unexpired().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn p15_returns_ten_thousand_leftovers_to_their_own_sets() {
    let wheel = TimerWheel::new();
    let mut sets: Vec<_> = (0..10).map(|_| wheel.keyed::<u64, u64>()).collect();
    for n in 0..10_000_u64 {
        let set = usize::try_from(n % 10).unwrap();
        sets[set]
            .0
            .set_timer(n, n, ms(n * 7919 % 10_000 + 1))
            .unwrap();
    }
    wheel.shutdown().await;
    for (set, (_, stream)) in sets.iter_mut().enumerate() {
        let left = stream.unexpired();
        assert_eq!(left.len(), 1000);
        assert!(left.is_sorted_by_key(|e| e.deadline));
        assert!(
            left.iter()
                .all(|e| e.key == e.value && e.key % 10 == set as u64)
        );
    }
    assert_eq!(wheel.metrics().keyed_drained, 10_000);
    assert_balanced(&wheel);
}

#[test]
fn p15_neither_panics_nor_leaks_when_its_runtime_drops() {
    let value = Arc::new(());
    let count = || Arc::strong_count(&value) - 1;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (wheel, timers, mut stream) = runtime.block_on(async {
        let wheel = TimerWheel::new();
        let (timers, mut stream) = wheel.keyed();
        for key in 0..100_000_u64 {
            let value = Arc::clone(&value);
            timers.set_timer(key, value, ms(key % 5000)).unwrap();
        }
        advance(&wheel, ms(999)).await;
        assert_eq!(received(&mut stream).len(), 20_000);
        advance(&wheel, ms(500)).await;
        (wheel, timers, stream)
    });
    drop(runtime);
    assert!(wheel.is_shutdown());
    assert!(timers.set_timer(0, Arc::clone(&value), ms(1)).is_err());
    assert_eq!(count(), 80_000);
    assert_eq!(received(&mut stream).len(), 10_000);
    assert_eq!(count(), 70_000);
    let left = stream.unexpired();
    assert_eq!(left.len(), 70_000);
    assert_balanced(&wheel);
    drop(left);
    assert_eq!(count(), 0);

    let again = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert_eq!(again.block_on(stream.recv()).map(|e| e.key), None);
}

#[test]
fn p15_drops_values_of_a_set_dropped_after_its_runtime() {
    let value = Arc::new(());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    for stream_first in [false, true] {
        let wheel = runtime.block_on(async { TimerWheel::new() });
        let (timers, stream) = wheel.keyed();
        for key in 0..1000 {
            timers.set_timer(key, Arc::clone(&value), ms(1000)).unwrap();
        }
        if stream_first {
            drop(stream);
            drop(timers);
        } else {
            drop(timers);
            drop(stream);
        }
        assert_eq!(Arc::strong_count(&value), 1);
        assert_balanced(&wheel);
    }
    let wheel = runtime.block_on(async { TimerWheel::new() });
    let (timers, stream) = wheel.keyed();
    timers.set_timer(1, Arc::clone(&value), ms(1000)).unwrap();
    drop(runtime);
    drop((wheel, timers, stream));
    assert_eq!(Arc::strong_count(&value), 1);
}

#[tokio::test(start_paused = true)]
async fn ends_the_actor_without_handles_and_armed_timers() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed();
    timers.set_timer(1, (), ms(50)).unwrap();
    drop(wheel);
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 1, "a set is a handle");
    timers.set_timer(2, (), ms(100)).unwrap();
    drop(timers);
    assert_eq!(
        stream.recv().await.map(|e| e.key),
        Some(1),
        "an armed timer keeps it"
    );
    assert_eq!(stream.recv().await.map(|e| e.key), Some(2));
    assert_eq!(stream.recv().await, None);
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn ends_the_actor_when_stream_and_handles_are_dropped() {
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    for settle in [false, true] {
        for order in [false, true] {
            let wheel = TimerWheel::new();
            let (timers, stream) = wheel.keyed();
            for key in 0..1000 {
                timers.set_timer(key, (), ms(1_000_000)).unwrap();
            }
            if settle {
                wheel.settle().await;
            }
            if order {
                drop(stream);
                drop((timers, wheel));
            } else {
                drop((timers, wheel));
                drop(stream);
            }
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
            assert_eq!(tasks(), 0, "settled {settle}, stream first {order}");
        }
    }
}

//! Tests of the pool: entries that a thread keeps, that a new sleep takes, and that are released.

use super::*;
use std::future::Future;
use std::pin::pin;
use std::sync::Weak;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::{Sleep, TimerWheel};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A sleep that waits, without a task.
fn armed(wheel: &TimerWheel, length: Duration) -> Sleep {
    let mut sleep = wheel.sleep(length);
    let polled = pin!(&mut sleep).poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending());
    sleep
}

fn entry_of(sleep: &Sleep) -> Weak<SleepEntry> {
    sleep.entry.as_ref().map(Arc::downgrade).unwrap_or_default()
}

/// Leaves an entry in the pool that is on the wheel, `length` from now.
async fn pool_entry(wheel: &TimerWheel, length: Duration) -> Weak<SleepEntry> {
    let sleep = armed(wheel, length);
    wheel.settle().await;
    let entry = entry_of(&sleep);
    drop(sleep);
    assert!(entry.strong_count() > 1, "in the pool and on the wheel");
    entry
}

/// The wheels that this thread has pools for, in order.
fn pooled_wheels() -> Vec<*const Shared> {
    let of = |pool: &Pool| Arc::as_ptr(&pool.shared);
    POOLS.with(|pools| pools.borrow().iter().map(of).collect())
}

fn id(wheel: &TimerWheel) -> *const Shared {
    Arc::as_ptr(wheel.shared())
}

#[tokio::test(start_paused = true)]
async fn evicts_the_least_recently_used_pool() {
    let wheels: Vec<_> = (0..=POOLS_PER_THREAD).map(|_| TimerWheel::new()).collect();
    let (last, first) = wheels.split_last().expect("some");
    let mut entries = Vec::new();
    for wheel in first {
        entries.push(pool_entry(wheel, ms(100)).await);
    }
    // The first four are used again in another order: now the fifth is the least recently used.
    for at in [2, 0, 3, 1] {
        drop(armed(&first[at], ms(100)));
    }
    let mut expected: Vec<_> = [1, 3, 0, 2].iter().map(|&at| id(&first[at])).collect();
    expected.extend(first[4..].iter().rev().map(id));
    assert_eq!(pooled_wheels(), expected);

    drop(armed(last, ms(100)));
    expected.insert(0, id(last));
    assert_eq!(expected.pop(), Some(id(&first[4])));
    assert_eq!(pooled_wheels(), expected);
    first[4].settle().await;
    for (at, entry) in entries.iter().enumerate() {
        let is_kept = entry.strong_count() > 0;
        assert_eq!(is_kept, at != 4, "the entry of wheel {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn entries_of_eight_wheels_are_reused_in_turn() {
    let mut wheels = Vec::from([(); 8].map(|()| TimerWheel::new()));
    for _ in 0..3 {
        let mut before = Vec::new();
        for wheel in &wheels {
            pool_entry(wheel, ms(100)).await;
            before.push(wheel.metrics().commands);
        }
        for _ in 0..50 {
            for wheel in &wheels {
                drop(armed(wheel, ms(100)));
            }
        }
        for (wheel, before) in wheels.iter().zip(before) {
            wheel.settle().await;
            let the_barrier = 1;
            assert_eq!(wheel.metrics().commands - before - the_barrier, 0);
        }
        // When one of them has ended and another takes its place, the others stay.
        wheels.remove(1).shutdown().await;
        wheels.push(TimerWheel::new());
    }
}

#[tokio::test(start_paused = true)]
async fn entry_scheduled_too_late_is_not_taken() {
    let wheel = TimerWheel::new();
    let late = pool_entry(&wheel, ms(100)).await;
    let before = wheel.metrics().commands;
    let early = armed(&wheel, ms(99));
    assert!(!entry_of(&early).ptr_eq(&late), "the actor is late for it");
    let fits = armed(&wheel, ms(100));
    assert!(entry_of(&fits).ptr_eq(&late));
    wheel.settle().await;
    let commands = wheel.metrics().commands - before;
    assert_eq!(commands, 2, "the new entry, and the barrier");
}

#[tokio::test(start_paused = true)]
async fn latest_entry_that_is_early_enough_is_taken() {
    let wheel = TimerWheel::new();
    let lengths = [20, 100, 60, 40, 80].map(ms);
    let sleeps = lengths.map(|length| armed(&wheel, length));
    wheel.settle().await;
    let entries = sleeps.map(|sleep| entry_of(&sleep));
    let taken = [70, 70, 200, 90, 25].map(|n| armed(&wheel, ms(n)));
    for (sleep, at) in taken.iter().zip([2, 3, 1, 4, 0]) {
        assert!(entry_of(sleep).ptr_eq(&entries[at]), "{sleep:?}");
    }
}

// Short timeouts find their entries among those of many long ones, far from the end of the pool.
#[tokio::test(start_paused = true)]
async fn many_entries_stay_in_the_order_of_their_ticks() {
    let wheel = TimerWheel::new();
    let length = |n: usize| ms(u64::try_from(n * 37 % 101).expect("it is small") + 1);
    let sleeps: Vec<_> = (0..101).map(|n| armed(&wheel, length(n))).collect();
    wheel.settle().await;
    drop(sleeps);
    let before = wheel.metrics().commands;
    let again: Vec<_> = (0..101).map(|n| armed(&wheel, length(n * 59))).collect();
    wheel.settle().await;
    let commands = wheel.metrics().commands - before;
    assert_eq!(commands, 1, "the barrier: each length has found its entry");
    drop(again);
    let latest = POOLS.with(|pools| {
        let entries = &pools.borrow()[0].entries;
        let filled = &entries.slots[..entries.filled];
        assert!(filled.iter().all(|slot| slot.entry.is_some()));
        assert!(filled.is_sorted_by_key(|slot| slot.scheduled));
        filled.len()
    });
    assert_eq!(latest, 101);
}

#[tokio::test(start_paused = true)]
async fn full_pool_keeps_no_more_entries() {
    let wheel = TimerWheel::new();
    let many = POOLED_ENTRIES + 10;
    let sleeps: Vec<_> = (0..many).map(|_| armed(&wheel, ms(100))).collect();
    wheel.settle().await;
    let entries: Vec<_> = sleeps.iter().map(entry_of).collect();
    drop(sleeps);
    wheel.settle().await;
    let kept = entries.iter().filter(|entry| entry.strong_count() > 0);
    assert_eq!(kept.count(), POOLED_ENTRIES);
    assert_eq!(wheel.metrics().sleeps_cancelled, many as u64);
}

// A sleep that was reset before its first poll has the entry that fitted its first deadline.
#[tokio::test(start_paused = true)]
async fn entry_is_pooled_with_the_tick_of_the_wheel() {
    let wheel = TimerWheel::new();
    let entry = pool_entry(&wheel, ms(100)).await;
    let mut sleep = wheel.sleep(ms(150));
    assert!(entry_of(&sleep).ptr_eq(&entry));
    sleep.set_deadline(tokio::time::Instant::now() + ms(10));
    drop(sleep);
    let early = wheel.sleep(ms(50));
    assert!(
        !entry_of(&early).ptr_eq(&entry),
        "it is scheduled at 100 ms"
    );
}

// The actor reads the idle clock of such an entry before it fires the sleep.
#[tokio::test(start_paused = true)]
async fn pool_keeps_no_entry_of_an_idle_timer() {
    let wheel = TimerWheel::new();
    for pools_others in [false, true] {
        if pools_others {
            pool_entry(&wheel, ms(50)).await;
        }
        let mut idle = wheel.idle_timer(ms(100));
        let polled = pin!(&mut idle).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        wheel.settle().await;
        // Touched, it would fire 50 ms later.
        tokio::time::advance(ms(50)).await;
        idle.touch();
        drop(idle);
        let start = tokio::time::Instant::now();
        wheel.sleep(ms(50)).await;
        assert_eq!(start.elapsed(), ms(50));
    }
}

// A timeout whose future is ready at once leaves such an entry.
#[tokio::test(start_paused = true)]
async fn entry_of_an_unpolled_sleep_keeps_its_tick() {
    let wheel = TimerWheel::new();
    let entry = pool_entry(&wheel, ms(100)).await;
    for _ in 0..3 {
        drop(wheel.sleep(ms(100)));
        let early = wheel.sleep(ms(50));
        assert!(
            !entry_of(&early).ptr_eq(&entry),
            "it is scheduled at 100 ms"
        );
    }
    assert!(entry_of(&wheel.sleep(ms(100))).ptr_eq(&entry));
}

#[test]
fn pool_releases_its_entries_when_its_thread_ends() {
    use futures::executor::block_on;

    let wheel = TimerWheel::builder()
        .dedicated_thread()
        .start()
        .expect("a thread");
    let pooling = thread::spawn({
        let wheel = wheel.clone();
        move || block_on(pool_entry(&wheel, Duration::from_secs(3600)))
    });
    let entry = pooling.join().expect("no panic");
    block_on(wheel.settle());
    assert_eq!(entry.strong_count(), 0, "it waits on the wheel for an hour");
}

#[tokio::test(start_paused = true)]
async fn pools_of_ended_wheels_are_dropped() {
    let [ended, orphaned, lives] = [(); 3].map(|()| TimerWheel::new());
    let mut entries = Vec::new();
    for wheel in [&ended, &orphaned, &lives] {
        entries.push(pool_entry(wheel, ms(100)).await);
    }
    ended.shutdown().await;
    let shared = [&ended, &orphaned].map(|wheel| Arc::downgrade(wheel.shared()));
    drop(ended);
    let its_end = Arc::clone(orphaned.shared());
    drop(orphaned);
    its_end.end.wait().await;
    drop(its_end);
    let another = TimerWheel::new();
    drop(armed(&another, ms(1)));
    assert_eq!(pooled_wheels(), [id(&another), id(&lives)]);
    let kept = entries.iter().map(|entry| entry.strong_count() > 0);
    assert!(kept.eq([false, false, true]));
    assert!(shared.iter().all(|shared| shared.strong_count() == 0));
}

//! Tests of the pool: entries that a thread keeps, that a new sleep takes, and that are released.

use super::*;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use crate::shared::stale::STALE_KEPT;
use crate::sleep::timer::Timer;
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

/// An entry that a test holds besides others.
struct Held(EntryArc<SleepEntry>);

impl Held {
    /// How many others hold it.
    fn count(&self) -> usize {
        EntryArc::strong_count(&self.0) - 1
    }

    fn is(&self, other: &Held) -> bool {
        EntryArc::ptr_eq(&self.0, &other.0)
    }
}

fn entry_of(sleep: &Sleep) -> Held {
    match &sleep.timer {
        Timer::Wheel(timer) => Held(timer.entry.clone().expect("it is on the wheel")),
        Timer::Tokio(_) => panic!("it is on the wheel"),
    }
}

/// Leaves an entry in the pool that is on the wheel, `length` from now.
async fn pool_entry(wheel: &TimerWheel, length: Duration) -> Held {
    let sleep = armed(wheel, length);
    wheel.settle().await;
    let entry = entry_of(&sleep);
    drop(sleep);
    assert!(entry.count() > 1, "in the pool and on the wheel");
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
        let is_kept = entry.count() > 0;
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
            let the_settle = 1;
            assert_eq!(wheel.metrics().commands - before - the_settle, 0);
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
    assert!(!entry_of(&early).is(&late), "the actor is late for it");
    let fits = armed(&wheel, ms(100));
    assert!(entry_of(&fits).is(&late));
    wheel.settle().await;
    let commands = wheel.metrics().commands - before;
    assert_eq!(commands, 2, "the new entry, and the settle");
}

#[tokio::test(start_paused = true)]
async fn last_entry_that_is_early_enough_is_taken() {
    let wheel = TimerWheel::new();
    let sleeps = [80, 20, 40, 60].map(|n| armed(&wheel, ms(n)));
    wheel.settle().await;
    let entries = sleeps.map(|sleep| entry_of(&sleep));
    let taken = [50, 60, 25, 90].map(|n| armed(&wheel, ms(n)));
    for (sleep, at) in taken.iter().zip([2, 3, 1, 0]) {
        assert!(entry_of(sleep).is(&entries[at]), "{sleep:?}");
    }
}

// Its next use sends a command anyway, so it is left to a sleep that no other entry fits.
#[tokio::test(start_paused = true)]
async fn entry_that_has_fired_is_taken_if_no_other_fits() {
    let wheel = TimerWheel::new();
    let cancelled = pool_entry(&wheel, ms(100)).await;
    let mut sleep = wheel.sleep(ms(5));
    (&mut sleep).await;
    let fired = entry_of(&sleep);
    drop(sleep);
    let long = armed(&wheel, ms(200));
    assert!(entry_of(&long).is(&cancelled));
    let short = armed(&wheel, ms(5));
    assert!(entry_of(&short).is(&fired));
}

// A sleep that fires within a timeout that does not would else take the timeout's entry, and send
// one more command.
#[tokio::test(start_paused = true)]
async fn sleep_within_a_timeout_sends_one_command() {
    let wheel = TimerWheel::new();
    wheel.timeout(ms(500), wheel.sleep(ms(5))).await.unwrap();
    let before = wheel.metrics().commands;
    for _ in 0..20 {
        wheel.timeout(ms(500), wheel.sleep(ms(5))).await.unwrap();
    }
    wheel.settle().await;
    let the_settle = 1;
    assert_eq!(wheel.metrics().commands - before - the_settle, 20);
}

#[tokio::test(start_paused = true)]
async fn late_entry_is_taken_if_there_are_several() {
    let wheel = TimerWheel::new();
    for late in 1..=NEAR {
        let sleeps: Vec<_> = (0..late).map(|_| armed(&wheel, ms(100))).collect();
        wheel.settle().await;
        let last = sleeps.last().map(entry_of).expect("there is one");
        drop(sleeps);
        let before = wheel.metrics().commands;
        let early = armed(&wheel, ms(50));
        assert_eq!(entry_of(&early).is(&last), late == NEAR, "{late} late");
        wheel.settle().await;
        let commands = wheel.metrics().commands - before;
        // Under a virtual clock the stale node leaves the wheel at once.
        let sweep = u64::from(late == NEAR);
        assert_eq!(commands, 2 + sweep, "the tick, and the settle");
        // The next wheel's pool is empty.
        drop(early);
        POOLS.with(RefCell::take);
    }
}

// The entries of many tasks go from one to another. Each is scheduled earlier whenever it has to
// be, and serves more lengths from then on.
#[tokio::test(start_paused = true)]
async fn timeouts_of_mixed_lengths_soon_send_few_commands() {
    const TASKS: u64 = 50;
    let wheel = TimerWheel::new();
    let mut sleeps = Vec::new();
    let mut round = |n: u64| {
        sleeps.extend((0..TASKS).map(|task| armed(&wheel, ms(1 + (task * 37 + n * 59) % 101))));
        // Each task drops its own sleep and makes the next one.
        for task in 0..TASKS {
            drop(sleeps.remove(0));
            sleeps.push(armed(&wheel, ms(1 + (task * 41 + n * 61) % 101)));
        }
        sleeps.clear();
    };
    (0..50).for_each(&mut round);
    wheel.settle().await;
    let before = wheel.metrics().commands;
    (50..150).for_each(&mut round);
    wheel.settle().await;
    let commands = wheel.metrics().commands - before;
    assert!(commands < 100 * 2 * TASKS / 20, "{commands} commands");
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
    let kept = entries.iter().filter(|entry| entry.count() > 0);
    assert_eq!(kept.count(), POOLED_ENTRIES);
    assert_eq!(wheel.metrics().sleeps_cancelled, many as u64);
}

#[tokio::test(start_paused = true)]
async fn sleep_that_was_moved_earlier_leaves_no_node_beyond_a_full_pool() {
    let wheel = TimerWheel::new();
    let sleep = |_| armed(&wheel, ms(100));
    let mut sleeps: Vec<_> = (0..POOLED_ENTRIES + 2).map(sleep).collect();
    let context = Arc::clone(entry_of(&sleeps[0]).0.context());
    wheel.settle().await;
    let mut moved = sleeps.pop().expect("it is the last one");
    // The second node of `moved` gets the place of this one, before that of its first.
    let last = sleeps.pop();
    drop((sleeps, last));
    wheel.settle().await;
    let entries = Arc::strong_count(&context);
    moved.set_deadline(tokio::time::Instant::now() + ms(50));
    drop(moved);
    wheel.settle().await;
    assert_eq!(Arc::strong_count(&context), entries - 1);
}

// A sleep that was reset before its first poll has the entry that fitted its first deadline.
#[tokio::test(start_paused = true)]
async fn entry_is_pooled_with_the_tick_of_the_wheel() {
    let wheel = TimerWheel::new();
    let entry = pool_entry(&wheel, ms(100)).await;
    let mut sleep = wheel.sleep(ms(150));
    assert!(entry_of(&sleep).is(&entry));
    sleep.set_deadline(tokio::time::Instant::now() + ms(10));
    drop(sleep);
    let early = wheel.sleep(ms(50));
    assert!(!entry_of(&early).is(&entry), "it is scheduled at 100 ms");
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

// A timeout leaves such an entry if its future is ready at once.
#[tokio::test(start_paused = true)]
async fn entry_of_an_unpolled_sleep_keeps_its_tick() {
    let wheel = TimerWheel::new();
    let entry = pool_entry(&wheel, ms(100)).await;
    let mut earlier = Vec::new();
    for _ in 0..3 {
        drop(wheel.sleep(ms(100)));
        let early = wheel.sleep(ms(50));
        assert!(!entry_of(&early).is(&entry), "it is scheduled at 100 ms");
        earlier.push(early);
    }
    assert!(entry_of(&wheel.sleep(ms(100))).is(&entry));
}

#[test]
fn pool_releases_its_entries_when_its_thread_ends() {
    use futures::executor::block_on;

    let runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = { runtime }.enable_time().build().unwrap();
    let wheel = TimerWheel::builder().runtime(runtime.handle().clone());
    let wheel = wheel.start().unwrap();
    let pool_one = || {
        let wheel = wheel.clone();
        let pooling =
            thread::spawn(move || block_on(pool_entry(&wheel, Duration::from_secs(3600))));
        pooling.join().expect("no panic")
    };
    let entry = pool_one();
    // A few may stay on the wheel.
    (0..STALE_KEPT).for_each(|_| drop(pool_one()));
    // The actor sweeps in the turn after it has applied all commands.
    (0..2).for_each(|_| block_on(wheel.settle()));
    assert_eq!(entry.count(), 0, "it waits on the wheel for an hour");
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
    let kept = entries.iter().map(|entry| entry.count() > 0);
    assert!(kept.eq([false, false, true]));
    drop(entries);
    assert!(shared.iter().all(|shared| shared.strong_count() == 0));
}

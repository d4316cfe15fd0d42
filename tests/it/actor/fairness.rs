//! Fairness: timers progress under a flood of commands, commands under a storm of expirations, and
//! other tasks under both. The tests count turns and commands, and measure no time.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use crate::support::{
    HOUR, Wakes, jump, less_than_an_hour, ms, poll_idly, poll_with, received, reset, start_wheel,
};
use tickwheel::TimerWheel;
use tokio::time::{self, Instant};
use tokio_test::assert_pending;

/// No turn of the actor applies more commands, cascades more items, or fires more timers, than
/// this.
const MOST_PER_TURN: u64 = 4096;

/// Another task of the same runtime. It records the most commands and fired sleeps between two of
/// its own polls.
struct Witness {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    polls: u64,
    most_commands: u64,
    most_fired: u64,
}

impl Witness {
    fn of(wheel: &TimerWheel) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let (stopped, wheel) = (Arc::clone(&stop), wheel.clone());
        let task = tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut last = wheel.metrics();
            while !stopped.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
                let now = wheel.metrics();
                seen.polls += 1;
                seen.most_commands = seen.most_commands.max(now.commands - last.commands);
                seen.most_fired = seen.most_fired.max(now.sleeps_fired - last.sleeps_fired);
                last = now;
            }
            seen
        });
        Witness { stop, task }
    }

    async fn report(self) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn p11_turns_are_bounded_in_a_storm_of_expirations() {
    const SLEEPS: u64 = 100_000;
    for one_tick in [true, false] {
        let wheel = start_wheel();
        let (woken, waker) = Wakes::new();
        let length = |n| ms(if one_tick { 1_000 } else { 1 + n % 1_000 });
        let mut sleeps: Vec<_> = (0..SLEEPS).map(|n| wheel.sleep(length(n))).collect();
        for sleep in &mut sleeps {
            assert_pending!(poll_with(sleep, &waker));
        }
        wheel.settle().await;
        let before = wheel.metrics();
        jump(ms(1_000));
        let witness = Witness::of(&wheel);
        wheel.settle().await;
        let seen = witness.report().await;
        let after = wheel.metrics();
        assert_eq!(woken.count() as u64, SLEEPS);
        assert!(seen.most_fired <= 2 * MOST_PER_TURN, "{seen:?}");
        assert!(seen.polls >= SLEEPS / MOST_PER_TURN, "{seen:?}");
        assert!(after.turns - before.turns >= SLEEPS / MOST_PER_TURN);
    }
}

#[tokio::test(start_paused = true)]
async fn p11_turns_are_bounded_in_a_flood_of_commands() {
    const SLEEPS: u64 = 100_000;
    let wheel = start_wheel();
    wheel.settle().await;
    let witness = Witness::of(&wheel);
    tokio::task::yield_now().await;
    let mut sleeps: Vec<_> = (0..SLEEPS)
        .map(|n| wheel.sleep(less_than_an_hour(n)))
        .collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    wheel.settle().await;
    let seen = witness.report().await;
    assert!(wheel.metrics().commands >= SLEEPS);
    // The runtime may poll one task twice before it polls another.
    assert!(seen.most_commands <= 2 * MOST_PER_TURN, "{seen:?}");
    assert!(seen.polls >= SLEEPS / MOST_PER_TURN, "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn p11_commands_progress_in_a_storm_of_expirations() {
    const SLEEPS: u64 = 200_000;
    let wheel = start_wheel();
    let mut sleeps: Vec<_> = (0..SLEEPS).map(|_| wheel.sleep(ms(1_000))).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_idly(sleep));
    }
    let (woken, waker) = Wakes::new();
    let mut far = wheel.sleep(HOUR);
    assert_pending!(poll_with(&mut far, &waker));
    wheel.settle().await;
    jump(ms(1_000));
    tokio::task::yield_now().await;
    let before = wheel.metrics();
    assert!(
        before.sleeps_pending > SLEEPS / 2,
        "the storm has only begun"
    );
    // A hundred new sleeps need a command each.
    let mut near: Vec<_> = (0..100).map(|n| wheel.sleep(ms(500 - n))).collect();
    for sleep in &mut near {
        assert_pending!(poll_idly(sleep));
    }
    for _ in 0..5 {
        tokio::task::yield_now().await;
    }
    let after = wheel.metrics();
    assert!(after.commands >= before.commands + 100);
    assert!(after.sleeps_pending > SLEEPS / 2, "the storm goes on");
    // One that is moved to the past waits for the cascade at most, and the storm is as long again.
    reset(&mut far, Instant::now() - ms(500));
    let mut turns = 0;
    while woken.count() == 0 {
        tokio::task::yield_now().await;
        turns += 1;
        assert!(turns < 1_000, "it never fires");
    }
    let left = wheel.metrics().sleeps_pending;
    assert!(left > SLEEPS / 2, "it waited for the storm: {left} left");
}

#[tokio::test(start_paused = true)]
async fn p11_heartbeat_keeps_its_pace_in_a_flood_of_commands() {
    const PER_MILLISECOND: u64 = 3_000;
    let wheel = start_wheel();
    let start = Instant::now();
    let beats = Arc::<AtomicU64>::default();
    let (beating, counted) = (wheel.clone(), Arc::clone(&beats));
    tokio::spawn(async move {
        let mut heartbeat = beating.interval(ms(10));
        loop {
            let due = heartbeat.tick().await;
            assert!(due.elapsed() <= ms(3), "late by {:?}", due.elapsed());
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    tokio::task::yield_now().await;
    let before = wheel.metrics().commands;
    // Each of them takes a command to arm it and one to take it off.
    while start.elapsed() < ms(200) {
        let mut sleeps: Vec<_> = (0..PER_MILLISECOND / 2)
            .map(|n| wheel.sleep(less_than_an_hour(n)))
            .collect();
        for sleep in &mut sleeps {
            assert_pending!(poll_idly(sleep));
        }
        time::advance(ms(1)).await;
    }
    let commands = wheel.metrics().commands - before;
    assert!(
        commands > 200 * PER_MILLISECOND / 3,
        "not much of a flood: {commands}"
    );
    assert!(beats.load(Ordering::Relaxed) >= 20);
}

/// Records how many commands were applied when it was woken.
struct CommandsWhenWoken(TimerWheel, AtomicU64);

impl Wake for CommandsWhenWoken {
    fn wake(self: Arc<Self>) {
        let CommandsWhenWoken(wheel, commands) = &*self;
        commands.store(wheel.metrics().commands, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn p11_due_timer_fires_after_the_commands_before_it() {
    const FLOOD: u64 = 100_000;
    let wheel = start_wheel();
    let woken = Arc::new(CommandsWhenWoken(wheel.clone(), AtomicU64::new(0)));
    let mut due = wheel.sleep(ms(10));
    assert_pending!(poll_with(&mut due, &Arc::clone(&woken).into()));
    wheel.settle().await;
    time::advance(ms(5)).await;
    let mut sleeps: Vec<_> = (0..2 * FLOOD)
        .map(|n| wheel.sleep(less_than_an_hour(n % 1_000)))
        .collect();
    let (first, second) = sleeps.split_at_mut(100_000);
    for sleep in first {
        assert_pending!(poll_idly(sleep));
    }
    tokio::task::yield_now().await; // the actor begins with those
    let before = wheel.metrics().commands;
    jump(ms(10));
    for sleep in second {
        assert_pending!(poll_idly(sleep));
    }
    while woken.1.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    let waited_for = woken.1.load(Ordering::Relaxed) - before;
    // Commands that were pushed after its deadline are behind it.
    assert!(waited_for <= FLOOD + 2 * MOST_PER_TURN, "{waited_for}");
}

#[tokio::test(start_paused = true)]
async fn p11_sleeps_that_are_always_ready_let_others_run() {
    let wheel = start_wheel();
    let other = tokio::spawn(async {});
    let mut rounds = 0;
    while !other.is_finished() {
        rounds += 1;
        assert!(rounds < 10_000, "the other task was starved");
        wheel.sleep(Duration::ZERO).await;
    }
}

/// A loop around `sleep(ZERO)` yields as often as one around any other resource of Tokio's.
#[tokio::test]
async fn a_ready_sleep_takes_one_unit_of_the_budget() {
    let wheel = start_wheel();
    let mut units = Vec::new();
    std::future::poll_fn(|cx| {
        let is_first = units.is_empty();
        let mut is_ready = || {
            let mut sleep = wheel.sleep(Duration::ZERO);
            if is_first {
                std::pin::Pin::new(&mut sleep).poll(cx).is_ready()
            } else {
                let unit = tokio::task::coop::poll_proceed(cx);
                unit.map(|unit| unit.made_progress()).is_ready()
            }
        };
        units.push((0..10_000).take_while(|_| is_ready()).count());
        if is_first {
            return std::task::Poll::Pending; // its refusal has woken this task
        }
        std::task::Poll::Ready(())
    })
    .await;
    assert_eq!(units[0], units[1]);
    assert!(units[0] < 10_000);
}

#[tokio::test(start_paused = true)]
async fn stays_ready_when_polled_without_budget() {
    let wheel = start_wheel();
    let mut polls = 0;
    std::future::poll_fn(|cx| {
        polls += 1;
        let mut refused = wheel.sleep(Duration::ZERO);
        for n in 0..10_000 {
            let mut sleep = wheel.sleep(Duration::ZERO);
            if std::pin::Pin::new(&mut sleep).poll(cx).is_pending() {
                assert!(n > 10, "after {n}");
                refused = sleep;
                break;
            }
        }
        assert!(refused.is_elapsed(), "no budget was ever used up");
        if polls < 3 {
            return std::task::Poll::Pending; // its refusal has woken this task
        }
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn p10_unread_streams_and_sleeps_delay_no_timer() {
    let wheel = start_wheel();
    let start = Instant::now();
    let (timers, mut expirations) = wheel.keyed::<u64, ()>();
    for key in 0..20_000 {
        timers.set_timer(key, (), ms(1 + key % 50)).unwrap();
    }
    // It was woken, and is never polled again.
    let mut ignored: Vec<_> = (0..20_000).map(|n| wheel.sleep(ms(1 + n % 50))).collect();
    for sleep in &mut ignored {
        assert_pending!(poll_idly(sleep));
    }
    for n in 1..=100 {
        wheel.sleep(ms(1)).await;
        assert_eq!(start.elapsed(), ms(n));
    }
    wheel.settle().await;
    let metrics = wheel.metrics();
    assert_eq!((metrics.keyed_fired, metrics.sleeps_fired), (0, 20_100));
    assert_eq!(received(&mut expirations).len(), 20_000);
}

#[tokio::test(start_paused = true)]
async fn settles_once_all_that_was_due_has_fired() {
    let wheel = start_wheel();
    let (woken, waker) = Wakes::new();
    let mut sleeps: Vec<_> = (0..10_000).map(|n| wheel.sleep(ms(1 + n % 100))).collect();
    for sleep in &mut sleeps {
        assert_pending!(poll_with(sleep, &waker));
    }
    jump(ms(50));
    {
        let mut settled = pin!(wheel.settle());
        let mut cx = Context::from_waker(Waker::noop());
        while settled.as_mut().poll(&mut cx).is_pending() {
            // Others keep the actor busy all the while.
            let mut more = wheel.sleep(less_than_an_hour(woken.count() as u64 % 60_000));
            assert_pending!(poll_idly(&mut more));
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(woken.count(), 5_000);
}

/// Timers are armed while the actor is late, and are due before it applies their commands: its
/// wheel is at a later tick by then, and the next backlog is not applied.
#[tokio::test(start_paused = true)]
async fn p3_timers_that_come_due_in_a_backlog_fire() {
    const BACKLOG: u64 = 2 * MOST_PER_TURN + 10;
    for turns in 0..4 {
        for ahead in 0..8 {
            let wheel = start_wheel();
            let (timers, mut expirations) = wheel.keyed::<u64, ()>();
            let (woken, waker) = Wakes::new();
            let arm = |n: u64| {
                let mut sleep = wheel.sleep(ms(1 + n % 3));
                assert_pending!(poll_with(&mut sleep, &waker));
                timers.set_timer(n, (), ms(1 + n % 3)).unwrap();
                sleep
            };
            let mut sleeps: Vec<_> = (0..BACKLOG).map(&arm).collect();
            for _ in 0..turns {
                tokio::task::yield_now().await;
                jump(ms(1));
            }
            sleeps.extend((BACKLOG..2 * BACKLOG).map(arm));
            for _ in 0..ahead {
                jump(ms(1));
                tokio::task::yield_now().await;
            }
            time::advance(ms(3)).await;
            wheel.settle().await;
            assert_eq!(
                woken.count() as u64,
                2 * BACKLOG,
                "{turns} and {ahead} turns"
            );
            assert_eq!(wheel.metrics().sleeps_pending, 0);
            for _ in 0..2 * BACKLOG {
                assert!(expirations.try_recv().is_ok(), "{turns} and {ahead} turns");
            }
        }
    }
}

/// A keyed timer and two of Tokio's are due at the same instant. The tasks that Tokio's wake in
/// turn run after all three.
#[tokio::test(start_paused = true)]
async fn due_timer_waits_in_one_queue_as_tokios_does() {
    let wheel = start_wheel();
    let end = Instant::now() + ms(10);
    let order = Arc::<Mutex<Vec<&str>>>::default();
    let ran = |who| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(who)
    };
    let wakes_another = || {
        let (runs, woken) = (ran("Tokio's"), ran("woken by Tokio's"));
        tokio::spawn(async move {
            time::sleep_until(end).await;
            runs();
            tokio::spawn(async move { woken() }).await.unwrap();
        })
    };
    // The actor arms its timer after the one and before the other.
    let before = wakes_another();
    tokio::task::yield_now().await;
    let (timers, mut expirations) = wheel.keyed::<u32, ()>();
    timers.set_timer(1, (), ms(10)).unwrap();
    wheel.settle().await;
    let after = wakes_another();
    expirations.recv().await.expect("it expires");
    ran("keyed")();
    before.await.unwrap();
    after.await.unwrap();
    let order = order.lock().unwrap();
    let place = |who| order.iter().position(|&ran| ran == who);
    assert!(place("keyed") < place("woken by Tokio's"), "{order:?}");
}

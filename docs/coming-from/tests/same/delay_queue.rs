//! `DelayQueue` of tokio-util, owned by a task, against a set of keyed timers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::StreamExt;
use tickwheel::{KeyedTimers, TimerWheel};
use tickwheel_coming_from::delay_queue::after;
use tickwheel_coming_from::delay_queue::before::{self, Command};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue::Expired;

use crate::support::{Choices, SCRIPTS, STEPS, at, ms, pause};

/// When which order expired, and with what.
type Log = Vec<(u128, String, u32)>;

enum Side {
    Before(mpsc::Sender<Command>),
    After(KeyedTimers<String, u32>),
}

impl Side {
    fn before(expired: UnboundedSender<(String, u32)>) -> Self {
        let (commands, received) = mpsc::channel(16);
        tokio::spawn(before::run(received, expired));
        Side::Before(commands)
    }

    fn after(wheel: &TimerWheel, expired: UnboundedSender<(String, u32)>) -> Self {
        let (timers, expirations) = wheel.keyed();
        tokio::spawn(after::run(expirations, expired));
        Side::After(timers)
    }

    async fn apply(&self, command: Command) {
        match (self, command) {
            (Side::Before(commands), command) => {
                let sent = commands.send(command).await;
                assert!(sent.is_ok(), "the task runs");
            }
            (Side::After(timers), Command::Set(order, items, delay)) => {
                after::remind(timers, order, items, delay).expect("it is open");
            }
            (Side::After(timers), Command::Move(order, delay)) => {
                after::postpone(timers, &order, delay).expect("it is open");
            }
            (Side::After(timers), Command::Remove(order)) => {
                after::paid(timers, &order).expect("it is open");
            }
        }
    }
}

fn command(choices: &mut Choices) -> Command {
    match choices.one_of(4) {
        0 | 1 => Command::Set(choices.key(), choices.value(), choices.delay()),
        2 => Command::Move(choices.key(), choices.delay()),
        _ => Command::Remove(choices.key()),
    }
}

async fn play(side: Side, mut expired: UnboundedReceiver<(String, u32)>, seed: u64) -> Log {
    let start = Instant::now();
    let listening = tokio::spawn(async move {
        let mut log = Vec::new();
        while let Some((order, items)) = expired.recv().await {
            log.push((at(start), order, items));
        }
        // Neither side promises the same order at one instant.
        log.sort();
        log
    });
    let mut choices = Choices::new(seed);
    for _ in 0..STEPS {
        side.apply(command(&mut choices)).await;
        pause(choices.pause()).await;
    }
    pause(ms(1000)).await;
    drop(side);
    listening.await.expect("it does not panic")
}

#[tokio::test(start_paused = true)]
async fn same_orders_expire_at_the_same_instants() {
    let wheel = TimerWheel::new();
    for seed in 0..SCRIPTS {
        let (expired, received) = mpsc::unbounded_channel();
        let before = play(Side::before(expired), received, seed).await;
        let (expired, received) = mpsc::unbounded_channel();
        let after = play(Side::after(&wheel, expired), received, seed).await;
        assert_eq!(before, after, "seed {seed}");
        assert!(before.len() > 10, "seed {seed}: {before:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn far_deadline_panics_there_and_is_kept_here() {
    let three_years = Duration::from_hours(3 * 365 * 24);
    let mut queue = DelayQueue::new();
    let there = catch_unwind(AssertUnwindSafe(|| queue.insert("order 17", three_years)));
    assert!(there.is_err());

    let (timers, _expirations) = TimerWheel::new().keyed();
    timers
        .set_timer("order 17", (), three_years)
        .expect("it is open");
    assert_eq!(
        timers.deadline("order 17"),
        Some(Instant::now() + three_years)
    );
}

#[tokio::test(start_paused = true)]
async fn stale_key_names_another_item_there() {
    let mut queue = DelayQueue::new();
    let stale = queue.insert("first", ms(1));
    assert_eq!(queue.next().await.map(Expired::into_inner), Some("first"));
    queue.insert("second", ms(1));
    assert_eq!(
        queue.try_remove(&stale).map(Expired::into_inner),
        Some("second")
    );
}

#[tokio::test(start_paused = true)]
async fn timers_of_one_instant_expire_as_armed_here() {
    let (timers, mut expirations) = TimerWheel::new().keyed();
    for order in 0..100 {
        timers.set_timer(order, (), ms(5)).expect("it is open");
    }
    for order in 0..100 {
        assert_eq!(
            expirations.recv().await.map(|expired| expired.key),
            Some(order)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn empty_stream_ends_there_and_waits_here() {
    assert!(DelayQueue::<()>::new().next().await.is_none());

    let (timers, mut expirations) = TimerWheel::new().keyed::<&str, ()>();
    let waits = tokio::time::timeout(ms(1000), expirations.recv()).await;
    assert!(waits.is_err());
    drop(timers);
    assert!(expirations.recv().await.is_none());
}

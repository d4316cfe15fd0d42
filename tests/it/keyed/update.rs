//! `update` and `set_or_update`: several steps that no other call comes between.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier};
use std::thread;

use tickwheel::{SetTimerError, TimerWheel};
use tokio::time::Instant;

use crate::support::{advance, assert_balanced, ms};

#[tokio::test(start_paused = true)]
async fn update_reads_and_changes_a_timer() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<&str, u32>();
    let start = Instant::now();
    timers.set_timer("a", 1, ms(10)).unwrap();
    let read = timers.update("a", |mut timer| {
        assert_eq!((*timer.key(), *timer.value()), ("a", 1));
        assert_eq!(timer.deadline(), start + ms(10));
        *timer.value_mut() += 1;
        timer.set_deadline(start + ms(20));
        timer.deadline()
    });
    assert_eq!(read, Ok(Some(start + ms(20))));
    assert_eq!(timers.update("b", |_| ()), Ok(None));
    let expired = stream.recv().await.unwrap();
    assert_eq!((expired.value, expired.deadline), (2, start + ms(20)));
    assert_eq!(Instant::now(), start + ms(20));
    assert_eq!(wheel.metrics().keyed_moved, 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn update_moves_a_timer_earlier() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<&str, ()>();
    let start = Instant::now();
    timers.set_timer("a", (), ms(1000)).unwrap();
    let earlier = |at| timers.update("a", |mut timer| timer.set_deadline(at));
    assert_eq!(earlier(start + ms(5)), Ok(Some(())));
    stream.recv().await.unwrap();
    assert_eq!(Instant::now(), start + ms(5));
}

#[tokio::test(start_paused = true)]
async fn update_removes_a_timer_and_returns_its_value() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<&str, String>();
    for key in ["a", "b"] {
        timers.set_timer(key, key.to_owned(), ms(10)).unwrap();
    }
    let remove_a = |key| timers.update(key, |timer| (timer.value() == "a").then(|| timer.remove()));
    assert_eq!(remove_a("a"), Ok(Some(Some("a".to_owned()))));
    assert_eq!(remove_a("a"), Ok(None));
    assert_eq!(remove_a("b"), Ok(Some(None)));
    assert_eq!(stream.recv().await.unwrap().key, "b");
    assert_eq!(wheel.metrics().keyed_removed, 1);
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn update_works_until_the_timer_is_received() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<&str, ()>();
    timers.set_timer("a", (), ms(10)).unwrap();
    advance(&wheel, ms(50)).await;
    let overdue = timers.update("a", |timer| timer.deadline() < Instant::now());
    assert_eq!(overdue, Ok(Some(true)));
    assert!(stream.try_recv().is_ok());
    assert_eq!(timers.update("a", |_| ()), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn update_that_panics_leaves_the_set_usable() {
    let wheel = TimerWheel::new();
    let (timers, mut stream) = wheel.keyed::<&str, u32>();
    timers.set_timer("a", 1, ms(10)).unwrap();
    let update = || {
        timers.update("a", |mut timer| {
            *timer.value_mut() = 2;
            timer.set_deadline(Instant::now() + ms(5));
            panic!("an update panics");
        })
    };
    assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
    let start = Instant::now();
    assert_eq!(stream.recv().await.unwrap().value, 2);
    assert_eq!(Instant::now(), start + ms(5), "the note was sent");
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn update_of_a_closed_set_is_an_error() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed::<u32, u32>();
    timers.set_timer(1, 1, ms(10)).unwrap();
    drop(stream);
    assert!(timers.update(&1, |_| ()).is_err());
    let refused = timers.set_or_update(1, 2, ms(1), |_, _| ());
    assert!(matches!(refused, Err(SetTimerError::Closed(1, 2, _))));
}

#[tokio::test(start_paused = true)]
async fn set_or_update_sets_a_timer_or_updates_it() {
    let wheel = TimerWheel::builder().max_keyed(1).start().unwrap();
    let (timers, mut stream) = wheel.keyed::<&str, u32>();
    let add = |key, value| {
        timers.set_or_update(key, value, ms(10), |mut timer, value| {
            *timer.value_mut() += value;
            *timer.value()
        })
    };
    assert_eq!(add("a", 1), Ok(None));
    assert_eq!(add("a", 2), Ok(Some(3)));
    assert_eq!(add("b", 4), Err(SetTimerError::Full("b", 4)));
    assert_eq!(stream.recv().await.unwrap().value, 3);
    assert_eq!(add("b", 4), Ok(None));
    assert_balanced(&wheel);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_earliest_of_racing_deadlines_counts() {
    const KEYS: u64 = 20_000;
    let wheel = TimerWheel::new();
    let (timers, _stream) = wheel.keyed::<u64, ()>();
    let base = Instant::now() + ms(3_600_000);
    let barrier = Arc::new(Barrier::new(2));
    thread::scope(|scope| {
        for later in [10, 100] {
            let (timers, barrier) = (timers.clone(), Arc::clone(&barrier));
            scope.spawn(move || {
                barrier.wait();
                let at = base + ms(later);
                for key in 0..KEYS {
                    let earlier = timers.set_or_update_at(key, (), at, |mut timer, ()| {
                        timer.set_deadline(at.min(timer.deadline()));
                    });
                    assert!(earlier.is_ok());
                }
            });
        }
    });
    let wrong = (0..KEYS).filter(|key| timers.deadline(key) != Some(base + ms(10)));
    assert_eq!(wrong.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn loses_no_item_of_batches_that_producers_share() {
    const ITEMS: u64 = 20_000;
    let wheel = TimerWheel::new();
    let (batches, mut flushes) = wheel.keyed::<u64, Vec<u64>>();
    let producers: Vec<_> = (0..2)
        .map(|producer| {
            let batches = batches.clone();
            thread::spawn(move || {
                for item in (0..ITEMS).map(|item| item * 2 + producer) {
                    let linger = ms(0);
                    let added =
                        batches.set_or_update(item % 4, vec![item], linger, |mut batch, items| {
                            batch.value_mut().extend(items);
                        });
                    assert!(added.is_ok());
                }
            })
        })
        .collect();
    drop(batches);
    let mut flushed = Vec::new();
    while let Some(flush) = flushes.recv().await {
        assert!(flush.value.iter().all(|item| item % 4 == flush.key));
        flushed.extend(flush.value);
    }
    for producer in producers {
        producer.join().unwrap();
    }
    flushed.sort_unstable();
    assert!(flushed.into_iter().eq(0..2 * ITEMS));
}

#[tokio::test(start_paused = true)]
async fn handles_are_shown_inside_closures_of_their_set() {
    let wheel = TimerWheel::new();
    let (timers, stream) = wheel.keyed::<&str, ()>();
    timers.set_timer("a", (), ms(10)).unwrap();
    let shown = timers.update("a", |timer| format!("{timer:?} {timers:?} {stream:?}"));
    let shown = shown.unwrap().unwrap();
    assert!(
        shown.starts_with("TimerMut { key: \"a\", value: (), deadline: "),
        "{shown}"
    );
    assert!(
        shown.contains("KeyedTimers { state: <locked>, .. }"),
        "{shown}"
    );
    assert!(
        shown.contains("set: Set { state: <locked>, .. }"),
        "{shown}"
    );
}

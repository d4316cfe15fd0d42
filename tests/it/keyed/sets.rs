//! Many sets on one wheel, of many types, made and dropped.

use std::sync::Arc;

use tickwheel::{Expirations, KeyedTimers, TimerWheel, TryRecvError};

use crate::support::{advance, assert_balanced, ms, received};

#[tokio::test(start_paused = true)]
async fn keeps_sets_of_different_types_apart_on_one_wheel() {
    let wheel = TimerWheel::new();
    let (by_number, mut numbers) = wheel.keyed::<u64, String>();
    let (by_name, mut names) = wheel.keyed::<String, u64>();
    let (by_pair, mut pairs) = wheel.keyed::<(u8, Vec<u8>), Box<dyn Fn() -> u8 + Send>>();
    by_number.set_timer(1, "one".into(), ms(5)).unwrap();
    by_name.set_timer("1".into(), 1, ms(5)).unwrap();
    by_pair
        .set_timer((1, vec![1]), Box::new(|| 11), ms(5))
        .unwrap();
    let (again, mut again_stream) = wheel.keyed::<u64, String>();
    again.set_timer(1, "another".into(), ms(5)).unwrap();
    by_number.remove_timer(&1).unwrap();
    advance(&wheel, ms(5)).await;
    assert_eq!(received(&mut numbers), []);
    assert_eq!(received(&mut names), [("1".to_owned(), 1)]);
    assert_eq!(
        received(&mut pairs).pop().map(|(k, v)| (k, v())),
        Some(((1, vec![1]), 11))
    );
    assert_eq!(received(&mut again_stream), [(1, "another".to_owned())]);
}

type Set = (KeyedTimers<u64, u64>, Expirations<u64, u64>);

/// Sets 100 timers in each of the first ten sets; returns the turns and commands that took.
async fn cost(wheel: &TimerWheel, sets: &mut [Set]) -> (u64, u64) {
    wheel.settle().await;
    let before = wheel.metrics();
    for n in 0..1000 {
        sets[n % 10].0.set_timer(n as u64, 0, ms(10)).unwrap();
    }
    advance(wheel, ms(10)).await;
    for (_, stream) in sets.iter_mut() {
        received(stream);
    }
    let after = wheel.metrics();
    assert_eq!(after.keyed_fired - before.keyed_fired, 1000);
    (after.turns - before.turns, after.commands - before.commands)
}

#[tokio::test(start_paused = true)]
async fn does_work_by_timers_set_and_not_by_sets_there_are() {
    let mut costs = Vec::new();
    for n in [10, 1000] {
        let wheel = TimerWheel::new();
        let mut sets: Vec<_> = (0..n).map(|_| wheel.keyed()).collect();
        for (timers, _) in &sets {
            timers.set_timer(u64::MAX, 0, ms(1_000_000)).unwrap();
        }
        costs.push(cost(&wheel, &mut sets).await);
        let m = wheel.metrics();
        assert_eq!((m.keyed_pending, m.keyed_fired), (n, 1000));
    }
    assert_eq!(
        costs[0], costs[1],
        "turns and commands with 10 sets, and with 1000"
    );
    assert!(
        costs[0].0 <= 30 && costs[0].1 <= 1_010,
        "a timer takes a command, and a turn many timers: {costs:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn delivers_in_order_to_a_thousand_sets_on_one_tick() {
    let wheel = TimerWheel::new();
    let mut sets: Vec<_> = (0..1000).map(|_| wheel.keyed()).collect();
    for key in 0..10 {
        for (n, (timers, _)) in sets.iter().enumerate() {
            timers.set_timer(key, n, ms(7)).unwrap();
        }
    }
    advance(&wheel, ms(7)).await;
    for (n, (_, stream)) in sets.iter_mut().enumerate() {
        assert!(received(stream).into_iter().eq((0..10).map(|key| (key, n))));
    }
    assert_balanced(&wheel);
}

#[tokio::test(start_paused = true)]
async fn keeps_nothing_of_dropped_sets_but_their_counts() {
    let wheel = TimerWheel::new();
    let value = Arc::new(());
    for round in 0..2000_u64 {
        let (timers, mut stream) = wheel.keyed();
        for key in 0..10_u64 {
            timers
                .set_timer(key, Arc::clone(&value), ms(key * 100))
                .unwrap();
        }
        if round % 3 == 0 {
            advance(&wheel, ms(1)).await;
        }
        if round % 2 == 0 {
            received(&mut stream);
            drop(timers);
            drop(stream);
        } else {
            drop(stream);
            drop(timers);
        }
        assert_eq!(Arc::strong_count(&value), 1, "round {round}");
    }
    wheel.settle().await;
    let m = wheel.metrics();
    assert_eq!((m.keyed_set, m.keyed_pending), (20_000, 0));
    assert_balanced(&wheel);
    // None of them is left on the wheel to be processed.
    let turns = wheel.metrics().turns;
    advance(&wheel, ms(100_000)).await;
    assert!(wheel.metrics().turns - turns <= 3);
}

#[tokio::test(start_paused = true)]
async fn closes_only_the_set_whose_stream_is_dropped() {
    let wheel = TimerWheel::new();
    let (a, a_stream) = wheel.keyed();
    let (b, mut b_stream) = wheel.keyed();
    a.set_timer(1, 'a', ms(5)).unwrap();
    b.set_timer(1, 'b', ms(5)).unwrap();
    let other = a.clone();
    drop(a_stream);
    assert!(a.is_closed() && other.is_closed() && a.is_empty());
    let refused = other.set_timer(2, 'x', ms(1)).unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(refused.into_inner(), (2, 'x'));
    assert!(a.move_timer(&1, ms(1)).is_err() && a.remove_timer(&1).is_err());
    assert_eq!((a.deadline(&1), a.contains(&1)), (None, false));
    assert!(a.drain().is_err());
    advance(&wheel, ms(5)).await;
    assert_eq!(received(&mut b_stream), [(1, 'b')]);
    let m = wheel.metrics();
    assert_eq!((m.keyed_fired, m.keyed_drained), (1, 1));
    drop(b);
    assert_eq!(b_stream.try_recv(), Err(TryRecvError::Closed));
    assert_balanced(&wheel);
}
